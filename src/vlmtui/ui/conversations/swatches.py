"""The small pictures beside the stored conversations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import VlmtuiError

SWATCH = (4, 4)
"""Pixels (width, height) of the small picture beside an entry; two of them are in a cell, one above the other."""
_THUMBNAIL = (320, 320)
"""Pixels of the thumbnails that swatches are made from: those of the chat, which are on the disk already."""

Swatch = tuple[tuple[str, ...], ...]
"""Rows of colours as `#rrggbb`, of the size `SWATCH`."""


def make_swatches(attachments: Sequence[Attachment], cache: Path) -> dict[str, Swatch]:
    """Return a swatch for each attachment, by its hash; none for an attachment whose file is gone. `cache` is the
    folder of the thumbnails. Blocks."""
    from vlmtui.media.thumbnails import thumbnail

    swatches: dict[str, Swatch] = {}
    for item in attachments:
        try:
            small = thumbnail(item, cache, _THUMBNAIL).resize(SWATCH).convert("RGB")
        except VlmtuiError:
            continue
        pixels = small.tobytes()
        colours = [f"#{pixels[at : at + 3].hex()}" for at in range(0, len(pixels), 3)]
        width = SWATCH[0]
        swatches[item.sha256] = tuple(tuple(colours[at : at + width]) for at in range(0, len(colours), width))
    return swatches
