"""Makes Textual's SVG screenshots independent of the network, and equal for equal screens."""

from __future__ import annotations

import re
import zlib

_TEXTUALS = "font-family: Fira Code, monospace;"
_FONT = "font-family: ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace; font-variant-ligatures: none;"
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
_ID = re.compile(r"terminal-\d+")


def portable_svg(svg: str) -> str:
    """Return Textual's SVG with fonts of the reader's machine, without ligatures.

    The ids in the SVG become a checksum of its content, so that equal screens give equal files. Rich's own ids also
    depend on how blanks are split.
    """
    plain = _FONT_FACE.sub("", svg).replace(_TEXTUALS, _FONT)
    number = zlib.crc32(_ID.sub("", plain).encode())
    return _ID.sub(f"terminal-{number}", plain)
