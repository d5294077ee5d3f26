"""Screenshots as SVG."""

from __future__ import annotations

import re

_TEXTUALS = "font-family: Fira Code, monospace;"
_FONT = "font-family: ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace; font-variant-ligatures: none;"
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def without_ligatures(svg: str) -> str:
    """Return Textual's SVG in fonts of the reader's machine, and with ligatures off."""
    return _FONT_FACE.sub("", svg).replace(_TEXTUALS, _FONT)
