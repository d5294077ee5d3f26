"""Screenshots as SVG."""

from __future__ import annotations

import re
import zlib

_TEXTUALS = "font-family: Fira Code, monospace;"
_FONT = "font-family: ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace; font-variant-ligatures: none;"
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
_ID = re.compile(r"terminal-\d+")


def portable_svg(svg: str) -> str:
    """Return Textual's SVG in fonts of the reader's machine, with ligatures off.

    Its ids come from what it shows. Rich's also depend on how blanks happen to be divided, so that two screenshots of
    the same screen could differ.
    """
    plain = _FONT_FACE.sub("", svg).replace(_TEXTUALS, _FONT)
    number = zlib.crc32(_ID.sub("", plain).encode())
    return _ID.sub(f"terminal-{number}", plain)
