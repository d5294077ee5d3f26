"""Real files, changed: flipped and overwritten bytes, cuts, repeats, splices, odd numbers and words, deep nesting."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_WORD = re.compile(rb'"[^"\n]{0,200}"')
_LONGEST = 4_000_000
_NUMBERS = (
    b"0", b"-1", b"1e999", b"-1e999", b"NaN", b"0.5", b"9007199254740993", b"253402300800000", b"4294967296",
    b"99999999999999999999", b"-9223372036854775809", b"9" * 5000, b"null", b"true", b'"x"', b"[]", b"{}",
)  # fmt: skip
_WORDS = (
    b'""', b'"x"', b'"\\ud800"', b'"\\u0000"', b'"\\u001b[31m"', b'"\\u202e"', b'"../../../etc/passwd"', b'"/dev/zero"',
    b'"\xff\xfe"', b'"' + b"a" * 100_000 + b'"', b'"{i}{content}"', b'"*a*a*a*a*a*a*a*a*b"', b"null", b"-1", b"1e400",
    b'[["x"]]', b'{"a": 1}', b"true",
)  # fmt: skip
_OPENINGS = (b"[", b'{"a":', b"(", b'{"a":[', b"<div>")
_DEPTHS = (10, 100, 1000, 10_000, 100_000)
_VALUES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)
_Draw = Callable[[st.SearchStrategy[int]], int]


@st.composite
def mutated(draw: Callable[[st.SearchStrategy[int]], int], seeds: Sequence[bytes]) -> bytes:
    """Return a file with up to three changes."""
    data = seeds[_below(draw, len(seeds))]
    for _ in range(_below(draw, 4)):
        changes = _BINARY if b"\0" in data[:400] else _TEXT
        data = changes[_below(draw, len(changes))](draw, data, seeds)[:_LONGEST]
    return data


def _below(draw: _Draw, count: int) -> int:
    return draw(st.integers(0, max(0, count - 1)))


def _flip(draw: _Draw, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _below(draw, len(data))
    return data[:at] + bytes(byte ^ (1 + _below(draw, 255)) for byte in data[at : at + 1]) + data[at + 1 :]


def _overwrite(draw: _Draw, data: bytes, _: Sequence[bytes]) -> bytes:
    """A whole number of 1 to 8 bytes, by the values that readers stumble over."""
    size = 1 << _below(draw, 4)
    at, value = _below(draw, len(data)), _VALUES[_below(draw, len(_VALUES))] % (1 << 8 * size)
    return data[:at] + value.to_bytes(size, "little" if _below(draw, 2) else "big") + data[at + size :]


def _overwrite_early(draw: _Draw, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Headers are at the beginning."""
    return _overwrite(draw, data[:200], seeds) + data[200:]


def _cut_off(draw: _Draw, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: _below(draw, len(data) + 1)]


def _cut_out(draw: _Draw, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _below(draw, len(data))
    return data[:at] + data[at + _below(draw, 200) :]


def _repeat(draw: _Draw, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _below(draw, len(data))
    span = data[at : at + _below(draw, 500)]
    return data[:at] + span * (1 + _below(draw, 200)) + data[at:]


def _splice(draw: _Draw, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = seeds[_below(draw, len(seeds))]
    return data[: _below(draw, len(data))] + other[_below(draw, len(other)) :]


def _number(draw: _Draw, data: bytes, _: Sequence[bytes]) -> bytes:
    return _replaced(draw, data, _NUMBER, _NUMBERS)


def _word(draw: _Draw, data: bytes, _: Sequence[bytes]) -> bytes:
    return _replaced(draw, data, _WORD, _WORDS)


def _nest(draw: _Draw, data: bytes, _: Sequence[bytes]) -> bytes:
    found = [match.start() for match in _WORD.finditer(data[:20_000])] or [0]
    at, opening = found[_below(draw, len(found))], _OPENINGS[_below(draw, len(_OPENINGS))]
    return data[:at] + opening * _DEPTHS[_below(draw, len(_DEPTHS))] + data[at:]


def _replaced(draw: _Draw, data: bytes, what: re.Pattern[bytes], by: Sequence[bytes]) -> bytes:
    found = list(what.finditer(data[:20_000]))
    if not found:
        return data
    match = found[_below(draw, len(found))]
    return bytes(data[: match.start()] + by[_below(draw, len(by))] + data[match.end() :])


_BINARY = (_flip, _flip, _overwrite, _overwrite, _overwrite_early, _cut_off, _cut_out, _repeat, _splice)
_TEXT = (_number, _number, _word, _word, _word, _flip, _cut_off, _cut_out, _repeat, _splice, _nest)
