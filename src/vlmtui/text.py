"""Text for display: control characters of hostile text made visible, and numbers and sizes for people.

Hostile text comes from models, files, logs and servers, and may hold escapes that would change the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from unicodedata import category

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_INVISIBLE = "\ufeff\u200b\u2060"
_CONTROLS = "\x7f-\x9f\u2028\u2029\ud800-\udfff"
_DIGITS_MAX = 9
_MAY_GROW = re.compile(
    "[\u0903-\u1cf7\u302e\u302f\ua823-\uabec\U00011000-\U0001612c\U00016f51-\U00016ff1\U0001d165-\U0001d172"
    "\U0001f3fb-\U0001f3ff]|(?<=\u200d)[\u2600-\u27bf\U0001f000-\U0001faff]"
)
"""The ranges with spacing vowel signs, skin tones, and what is joined to an emoji."""
_GROWTH = {"Mc": 1, "So": 2, "Sk": 2}
"""Cells by category."""
_SPACE = {"\n": "↵", "\t": "⇥", "\r": "␍"}


def visible(text: str, *, keep: str = "\n\t") -> str:
    """Return `text` with control characters, escapes, bidi marks and lone surrogates made visible, except those in
    `keep`.

    C0 controls become their Unicode control pictures (escape: `␛`), all others `<U+XXXX>`.
    """
    return _to_show(keep).sub(lambda found: _shown(found[0]), text)


@cache
def _to_show(keep: str) -> re.Pattern[str]:
    c0 = "".join(re.escape(chr(code)) for code in range(0x20) if chr(code) not in keep)
    return re.compile(f"[{c0}{_CONTROLS}{_BIDI}{_INVISIBLE}]")


def one_line(text: str) -> str:
    """Like `visible`, but line breaks and tabs are replaced too. For file names, titles and log lines."""
    return visible(text, keep="")


def _shown(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"<U+{code:04X}>"


def growth(text: str) -> int:
    """Return by how many cells a terminal may draw a text wider than its graphemes' widths say: some terminals, such
    as tmux, draw spacing vowel signs (category Mc) and the parts of joined emoji in cells of their own."""
    if text.isascii():
        return 0
    return sum(_GROWTH.get(category(char), 0) for char in _MAY_GROW.findall(text))


def quoted(text: str, *, longest: int = 60) -> str:
    """Return `text` in quotation marks on one line, with line breaks as ↵; longer text is shortened in the middle."""
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return "“" + one_line("".join(_SPACE.get(char, char) for char in text)) + "”"


def cut(text: str, longest: int) -> str:
    """Return `text` with at most `longest` characters; a cut text ends in `…`."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def is_number(text: str) -> bool:
    """Return whether `text` is a whole number of at most nine digits: `int` raises for thousands of digits."""
    return text.isdecimal() and len(text) <= _DIGITS_MAX


def did_you_mean(name: str, known: Iterable[object]) -> str:
    """Return a hint with the most similar of the known names; "" if none is similar."""
    import difflib

    close = difflib.get_close_matches(name, [str(one) for one in known], n=1)
    return f"Did you mean {close[0]!r}?" if close else ""


def counted(count: int, noun: str) -> str:
    """Return `1 turn`, `2 turns`, `1,000 turns`; for nouns whose plural ends in s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def token_place(index: int) -> str:
    """Return `token 0 (first)`, `token 7`: tokens are counted from 0 everywhere."""
    return "token 0 (first)" if index == 0 else f"token {index:,}"


def nats(value: float) -> str:
    """Return a log-probability, or a difference of two, with the digits that matter: `−0.0001`, `−0.32`, `−9.4`."""
    size = abs(value)
    if size < 0.00005:
        return "0"
    digits = 4 if size < 0.1 else 2 if size < 1 else 1 if size < 100 else 0
    return f"{value:,.{digits}f}".replace("-", "−")


def chance(probability: float) -> str:
    """Return a probability: `99.99 %`, `41 %`, `<0.01 %`."""
    if 0 < probability < 0.0001:
        return "<0.01 %"
    digits = 0 if probability in (0, 1) else 2 if probability >= 0.995 or probability < 0.01 else 1
    return f"{100 * probability:.{digits}f} %"


def human_bytes(count: int) -> str:
    """Return a size such as `340 kB` or `1.2 GB`, in powers of 1000."""
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit in ("bytes", "kB") or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
