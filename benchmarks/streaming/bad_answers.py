"""Answers that are hard to lay out. `benchmarks.streaming.engine` sends them as fast as it can."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_WORDS = re.findall(
    r"\w+", "A circle stands left of the square; above both of them one line runs and ends at the border"
)
_SCRIPTS = (
    "A family 👨‍👩‍👧‍👦 and a nurse 👩🏽‍⚕️, the flag 🇨🇭 and 🏴‍☠️, hearts ❤️‍🔥, digits 1️⃣.",
    "שלום עולם, العربية تُكتب من اليمين, and left to right again.",
    "Tabs:\tone\ttwo\t\tthree, and combining marks: e\u0301 a\u0308\u0323 q\u0307\u0323 z\u0336\u0336.",
    "Wide 漢字かな交じり文 and halfwidth ｱｲｳ, Thai ที่นี่, Devanagari क्षत्रिय, Hangul \u1112\u1161\u11ab.",
    "Invisible: a\u200bb\u2060c\u00add\ufeffe, overrides \u202eabc\u202c, and a lone joiner \u200d.",
    "`code 👩‍🚀\tשלום` and **bold 🇯🇵** and | pipes 🧑🏿‍🤝‍🧑🏻 |",
)


def _line(size: int) -> Iterator[str]:
    """Yield `size` bytes without a line break; now and then a word of 3,000 letters."""
    given = number = 0
    while given < size:
        piece = "x" * 3000 if number % 400 == 399 else " ".join(_WORDS[number % 7 :]) + " "
        given, number = given + len(piece), number + 1
        yield piece


def _words(size: int) -> Iterator[str]:
    """Yield `size` lines of one word."""
    for begin in range(0, size, 10):
        yield "".join(f"{_WORDS[number % len(_WORDS)]}\n" for number in range(begin, min(size, begin + 10)))


def _table(size: int) -> Iterator[str]:
    """Yield a table of `size` columns and 20 rows."""
    yield "\n\n"
    for row in range(22):
        cells = ("---" if row == 1 else f"c{column}r{row}" for column in range(size))
        yield from (f"| {cell} " for cell in cells)
        yield "|\n"
    yield "\n"


def _code(size: int) -> Iterator[str]:
    """Yield an unclosed code block of `size` lines."""
    yield "\n\n```python\n"
    for number in range(size):
        yield f"def shape_{number}(one: Shape, *others: Shape) -> str: return f'{{one}} of {{others}}'  # {number}\n"


def _scripts(size: int) -> Iterator[str]:
    """Yield `size` lines with joined emoji, text from right to left, tabs, and characters without a width."""
    for number in range(size):
        yield _SCRIPTS[number % len(_SCRIPTS)]
        yield "\n\n" if number % 5 == 4 else "\n"


KINDS: dict[str, Callable[[int], Iterator[str]]] = {
    "line": _line,
    "words": _words,
    "table": _table,
    "code": _code,
    "scripts": _scripts,
}


def pieces(kind: str, size: int, name: str) -> Iterator[str]:
    """Return the pieces of an answer; the first is `⟨NAME`, the last `NAME⟩`."""
    yield f"⟨{name} "
    yield from KINDS[kind](size)
    yield f" {name}⟩"
