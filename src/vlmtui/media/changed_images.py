"""Makes changed copies of a picture, to test whether an answer depends on it: grey, blurred, or with fewer pixels."""

from __future__ import annotations

from pathlib import Path

import msgspec
from PIL import Image, ImageFilter

from vlmtui.domain.attachment import Attachment
from vlmtui.media.content_store import store_bytes
from vlmtui.media.images import as_png, open_prepared

_GREY = (128, 128, 128)
_BLUR_PART = 16
"""The blur's radius as a divisor of the longer side: places and colours stay recognizable, shapes and letters do
not."""


def grey_image(attachment: Attachment, store: Path) -> Attachment:
    """Return a grey picture of the same size. Blocking. Raises VlmtuiError."""
    return _stored(attachment, Image.new("RGB", (attachment.width, attachment.height), _GREY), store, "grey")


def blurred_image(attachment: Attachment, store: Path) -> Attachment:
    """Return the picture, blurred. Blocking. Raises VlmtuiError if its stored file is missing."""
    pixels = open_prepared(attachment.path)
    radius = max(pixels.size) / _BLUR_PART
    return _stored(attachment, pixels.filter(ImageFilter.GaussianBlur(radius)), store, "blurred")


def occluded_image(attachment: Attachment, box: tuple[int, int, int, int], store: Path) -> Attachment:
    """Return the picture with a grey rectangle (left, top, right, bottom in pixels). Blocking. Raises VlmtuiError."""
    pixels = open_prepared(attachment.path)
    pixels.paste(_GREY, box)
    return _stored(attachment, pixels, store, "partly grey")


def bounded_image(attachment: Attachment, pixels_max: int, store: Path) -> Attachment:
    """Return the picture with at most `pixels_max` pixels; unchanged if it has no more. Blocking. Raises
    VlmtuiError."""
    pixels = attachment.width * attachment.height
    if pixels <= pixels_max:
        return attachment
    factor = (pixels_max / pixels) ** 0.5
    size = max(1, int(attachment.width * factor)), max(1, int(attachment.height * factor))
    smaller = open_prepared(attachment.path).resize(size, Image.Resampling.LANCZOS)
    return _stored(attachment, smaller, store, f"{size[0]} × {size[1]}")


def _stored(attachment: Attachment, image: Image.Image, store: Path, what: str) -> Attachment:
    data = as_png(image)
    stored = store_bytes(data, store, ".png", name=attachment.name)
    return msgspec.structs.replace(
        attachment,
        name=f"{attachment.name} ({what})",
        path=str(stored.path),
        sha256=stored.sha256,
        width=image.width,
        height=image.height,
        size_bytes=len(data),
        notes=(*attachment.notes, what),
    )
