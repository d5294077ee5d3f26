"""Changed copies of attachments: fewer pixels or frames; grey, blurred or partly covered, to test what an answer
depends on."""

from __future__ import annotations

from pathlib import Path

import msgspec
from PIL import Image, ImageFilter

from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.media.content_store import store_bytes
from vlmtui.media.images import as_png, open_prepared, smaller_note

_GREY = (128, 128, 128)
_BLUR_PART = 16
"""The blur's radius is the longer side divided by this: places and colours stay recognizable, shapes and letters do
not."""


def grey_image(attachment: Attachment, store: Path) -> Attachment:
    """Return a plain grey image of the same size. Blocking. Raises VlmtuiError."""
    return _stored(attachment, Image.new("RGB", (attachment.width, attachment.height), _GREY), store, "grey")


def blurred_image(attachment: Attachment, store: Path) -> Attachment:
    """Return a blurred copy. Blocking. Raises VlmtuiError if the stored file is missing."""
    pixels = open_prepared(attachment.path)
    radius = max(pixels.size) / _BLUR_PART
    return _stored(attachment, pixels.filter(ImageFilter.GaussianBlur(radius)), store, "blurred")


def occluded_image(attachment: Attachment, box: tuple[int, int, int, int], store: Path) -> Attachment:
    """Return a copy with a grey rectangle (left, top, right, bottom in pixels). Blocking. Raises VlmtuiError."""
    pixels = open_prepared(attachment.path)
    pixels.paste(_GREY, box)
    return _stored(attachment, pixels, store, "partly grey")


def bounded_image(attachment: Attachment, pixels_max: int, store: Path) -> Attachment:
    """Return a copy with at most `pixels_max` pixels, or the attachment itself if it is small enough. Blocking. Raises
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


SIDE_MIN = 56


def smaller_image(attachment: Attachment, store: Path) -> Attachment:
    """Return the image at half its width and height, stored as PNG. Blocking: call it in a thread.

    Raises VlmtuiError if it is too small already, or its stored file is missing.
    """
    width, height = attachment.width // 2, attachment.height // 2
    if min(width, height) < SIDE_MIN:
        size = f"{attachment.width} × {attachment.height}"
        raise bad_input(f"Can't make {attachment.name} smaller: it is only {size} pixels.")
    smaller = open_prepared(attachment.path).resize((width, height), Image.Resampling.LANCZOS)
    original = attachment.scaled_from or (attachment.width, attachment.height)
    note = smaller_note(original)
    return msgspec.structs.replace(
        _stored(attachment, smaller, store, note),
        name=attachment.name,
        size_bytes=attachment.size_bytes,
        scaled_from=original,
        notes=(*(earlier for earlier in attachment.notes if earlier != note), note),
    )


def fewer_frames(attachment: Attachment) -> Attachment:
    """Return the video with half its frames. Raises VlmtuiError if it has only one."""
    sampling = attachment.sampling or VideoSampling()
    if sampling.fps is not None:
        return msgspec.structs.replace(attachment, sampling=msgspec.structs.replace(sampling, fps=sampling.fps / 2))
    if sampling.num_frames < 2:
        raise bad_input(f"{attachment.name} already has only one frame.")
    halved = msgspec.structs.replace(sampling, num_frames=sampling.num_frames // 2)
    return msgspec.structs.replace(attachment, sampling=halved)
