"""Draws one page of a PDF, in a process of its own: PDFium is native code, and documents come from anywhere.

`python -m vlmtui.media.pdf_renderer PAGE DPI LONGEST` reads the document from stdin. It writes one line of JSON with
the number of pages, the page's size in points (1/72 inch) and notes on what is not drawn as a viewer draws it, and
after it a PNG. If it draws no image, its exit code is one of `Refusal`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import IntEnum
from itertools import islice
from typing import Any

from vlmtui.processes import limit_process

MEMORY_BYTES = 1_000_000_000
"""Maximum memory for one page, besides the document's own bytes."""
CPU_S = 30

_END_BYTES = 4096
"""Where a document's end mark is looked for."""
_OBJECTS_MAX = 20_000
"""How many annotations and objects of a page are looked at."""
_INVISIBLE = 3
"""The mode of text that a scanner's software lays below the picture of a page."""
_NAME_BYTES = 128
_FONTS_NAMED = 3
_USUAL_FONTS = ("Helvetica", "Times", "Courier", "Symbol", "ZapfDingbats", "Arial")
"""Fonts that PDFium brings along, or their doubles."""


class Refusal(IntEnum):
    """Why there is no image; the process's exit codes."""

    ENCRYPTED = 10
    BROKEN = 11
    NO_PAGE = 12
    TOO_COSTLY = 13


def main(arguments: list[str]) -> int:
    """Draw the page. `PAGE` counts from 1. `DPI` may be lowered so that the
    longer side has at most `LONGEST` pixels."""
    content = sys.stdin.buffer.read()
    limit_process(memory_bytes=MEMORY_BYTES + len(content), cpu_s=CPU_S)
    import ctypes

    import pypdfium2  # type: ignore[import-untyped]
    from PIL import Image

    page, dpi, longest = int(arguments[0]), float(arguments[1]), float(arguments[2])
    try:
        document = pypdfium2.PdfDocument(content)
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
        bitmap = drawn.render(scale=scale, may_draw_forms=False)
        _draw_forms(document, drawn, bitmap)
        image = bitmap.to_pil().convert("RGB")
    except (pypdfium2.PdfiumError, ValueError, ctypes.ArgumentError, Image.DecompressionBombError):
        return Refusal.BROKEN
    except MemoryError:
        return Refusal.TOO_COSTLY
    differs, damaged = _told(document, drawn)
    if b"%%EOF" not in content[-_END_BYTES:]:
        damaged.append("the end of the document is missing, and perhaps parts of the page")
    _write_facts(pages, wide, high, scale * 72, differs, damaged)
    image.save(sys.stdout.buffer, "PNG", compress_level=1)
    return 0


def _draw_forms(document: Any, page: Any, bitmap: Any) -> None:
    """Draw the form's fields over the page, also those that have no appearance, or that no form lists. Runs no
    scripts: PDFium runs them only on request."""
    from pypdfium2 import raw

    settings = raw.FPDF_FORMFILLINFO(version=2)
    form = raw.FPDFDOC_InitFormFillEnvironment(document, settings)
    if form:
        raw.FORM_OnAfterLoadPage(page, form)
        raw.FPDF_FFLDraw(form, bitmap, page, 0, 0, bitmap.width, bitmap.height, 0, raw.FPDF_ANNOT)
        raw.FORM_OnBeforeClosePage(page, form)
        raw.FPDFDOC_ExitFormFillEnvironment(form)


def _told(document: Any, page: Any) -> tuple[list[str], list[str]]:
    """Return what a viewer may draw otherwise, and what is damaged, for a page that has been drawn."""
    import ctypes

    from pypdfium2 import raw

    notes, damaged = [], []
    if raw.FPDF_GetFormType(document) in (raw.FORMTYPE_XFA_FULL, raw.FORMTYPE_XFA_FOREGROUND):
        notes.append("an XFA form, of which only the plain PDF part is drawn")
    notes += _annotation_notes(page)
    fonts, images = set(), 0
    for part in islice(page.get_objects(), _OBJECTS_MAX):
        if part.type == raw.FPDF_PAGEOBJ_IMAGE:
            facts = raw.FPDF_IMAGEOBJ_METADATA()
            images += bool(raw.FPDFImageObj_GetImageMetadata(part, page, facts)) and not facts.bits_per_pixel
        elif part.type == raw.FPDF_PAGEOBJ_TEXT and raw.FPDFTextObj_GetTextRenderMode(part) != _INVISIBLE:
            font = raw.FPDFTextObj_GetFont(part)
            name = ctypes.create_string_buffer(_NAME_BYTES)
            if font and not raw.FPDFFont_GetIsEmbedded(font) and raw.FPDFFont_GetBaseFontName(font, name, len(name)):
                fonts.add(name.value.decode("utf-8", "replace"))
    if images:
        damaged.append(f"{images} image{'s' * (images > 1)} of the page can't be decoded")
    missing = sorted(name for name in fonts if name and not name.startswith(_USUAL_FONTS))
    if missing:
        more = f" and {len(missing) - _FONTS_NAMED} more" * (len(missing) > _FONTS_NAMED)
        named = ", ".join(missing[:_FONTS_NAMED]) + more
        notes.append(f"text in fonts that the document lacks is drawn with others or missing: {named}")
    return notes, damaged


def _annotation_notes(page: Any) -> list[str]:
    from pypdfium2 import raw

    unseen = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
    others = (raw.FPDF_ANNOT_UNKNOWN, raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP, raw.FPDF_ANNOT_WIDGET)
    undrawn = layers = 0
    for number in range(min(raw.FPDFPage_GetAnnotCount(page), _OBJECTS_MAX)):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        if not raw.FPDFAnnot_GetFlags(annotation) & unseen:
            kind = raw.FPDFAnnot_GetSubtype(annotation)
            undrawn += kind not in others and not raw.FPDFAnnot_HasKey(annotation, b"AP")
            layers += bool(raw.FPDFAnnot_HasKey(annotation, b"OC"))
        raw.FPDFPage_CloseAnnot(annotation)
    notes = []
    if undrawn:
        notes.append(f"{undrawn} annotation{'s' * (undrawn > 1)} without an appearance not drawn")
    if layers:
        notes.append(f"{layers} annotation{'s' * (layers > 1)} of layers drawn, even if the layer is off")
    return notes


def _write_facts(
    pages: int, wide: float, high: float, dpi: float, differs: Sequence[str] = (), damaged: Sequence[str] = ()
) -> None:
    facts = {"pages": pages, "wide": wide, "high": high, "dpi": dpi, "differs": differs, "damaged": damaged}
    sys.stdout.buffer.write(json.dumps(facts).encode() + b"\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
