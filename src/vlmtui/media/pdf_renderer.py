"""Draws one page of a PDF, in a process of its own: PDFium is native code, and documents come from anywhere.

`python -m vlmtui.media.pdf_renderer PAGE DPI LONGEST` reads the document from stdin. It writes one line of JSON with
the number of pages and the page's size in points (1/72 inch), and after it a PNG. If it draws no image, its exit code
is one of `Refusal`.
"""

from __future__ import annotations

import ctypes
import json
import sys
from enum import IntEnum

MEMORY_BYTES = 6_000_000_000
CPU_S = 60
"""Maximum processor time for one page, in seconds."""


class Refusal(IntEnum):
    """Why there is no image; the process's exit codes."""

    ENCRYPTED = 10
    BROKEN = 11
    NO_PAGE = 12


def main(arguments: list[str]) -> int:
    """Draw the page. `PAGE` counts from 1. `DPI` may be lowered so that the
    longer side has at most `LONGEST` pixels."""
    _set_limits()
    import pypdfium2  # type: ignore[import-untyped]
    from PIL import Image

    page, dpi, longest = int(arguments[0]), float(arguments[1]), float(arguments[2])
    try:
        document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
    except pypdfium2.PdfiumError as error:
        return Refusal.ENCRYPTED if "password" in str(error).lower() else Refusal.BROKEN
    pages = len(document)
    if not 1 <= page <= pages:
        _write_facts(pages, 0.0, 0.0, 0.0)
        return Refusal.NO_PAGE
    try:
        drawn = document[page - 1]
        wide, high = drawn.get_size()
        scale = min(dpi / 72, longest / max(wide, high, 1e-6))
        if min(wide, high) * scale < 1:
            return Refusal.BROKEN
        image = drawn.render(scale=scale, may_draw_forms=False).to_pil().convert("RGB")
    except (pypdfium2.PdfiumError, ValueError, ctypes.ArgumentError, Image.DecompressionBombError):
        return Refusal.BROKEN
    _write_facts(pages, wide, high, scale * 72)
    image.save(sys.stdout.buffer, "PNG", compress_level=1)
    return 0


def _write_facts(pages: int, wide: float, high: float, dpi: float) -> None:
    line = json.dumps({"pages": pages, "wide": wide, "high": high, "dpi": dpi})
    sys.stdout.buffer.write(line.encode() + b"\n")


def _set_limits() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
