"""The small pictures beside the conversations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import VlmtuiError

SWATCH = (4, 4)
"""Width and height of the small picture, in pixels; a cell shows two, one above the other."""
_THUMBNAIL = (320, 320)
"""Size in pixels of the thumbnails that swatches are made from: the chat's, which are cached already."""

Swatch = tuple[tuple[str, ...], ...]
"""Rows of colours as `#rrggbb`; its size is `SWATCH`."""


def make_swatches(attachments: Sequence[Attachment], cache: Path) -> dict[str, Swatch]:
    """Return a swatch for each attachment, by its hash; none if its file is gone. `cache` is the folder of the
    thumbnails. Blocking."""
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
