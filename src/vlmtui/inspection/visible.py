"""Hostile text made fit for a page, and white space made visible in a quotation."""

from __future__ import annotations

import unicodedata

_MARKS = frozenset("\u2028\u2029\ufeff\u200b\u2060\u061c\u200e\u200f")
_SPACE = {"\n": "↵", "\t": "⇥", "\r": "␍"}


def visible(text: str, *, keep: str = "\n\t") -> str:
    """`text` with control characters, escapes, bidi marks and lone surrogates made visible; those in `keep` stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in keep else _shown(char) for char in text)


def quoted(text: str, *, longest: int = 60) -> str:
    """`text` in quotation marks on one line, its line breaks as ↵, cut in the middle where it is longer."""
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return "“" + visible("".join(_SPACE.get(char, char) for char in text), keep="") + "”"


def _shown(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    bidi = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
    return f"<U+{code:04X}>" if bidi or char in _MARKS or unicodedata.category(char) in ("Cc", "Cs") else char
