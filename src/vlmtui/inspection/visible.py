"""White space made visible in a quotation."""

from __future__ import annotations

from vlmtui.domain.text import one_line, visible

__all__ = ["quoted", "visible"]

_SPACE = {"\n": "↵", "\t": "⇥", "\r": "␍"}


def quoted(text: str, *, longest: int = 60) -> str:
    """`text` in quotation marks on one line, its line breaks as ↵, cut in the middle where it is longer."""
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return "“" + one_line("".join(_SPACE.get(char, char) for char in text)) + "”"
