"""Reduces an attachment's tokens: half the width and height of a picture, half the frames of a video."""

from __future__ import annotations

from pathlib import Path

import msgspec
from PIL import Image

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.media.content_store import store_bytes
from vlmtui.media.images import as_png, open_prepared, smaller_note

SIDE_MIN = 56
"""Minimum side in pixels after halving."""


def smaller_image(attachment: Attachment, store: Path) -> Attachment:
    """Return the image at half its width and height, stored as PNG. Blocking: call it in a thread.

    Raises VlmtuiError if it is too small already, or its stored file is missing.
    """
    width, height = attachment.width // 2, attachment.height // 2
    if min(width, height) < SIDE_MIN:
        size = f"{attachment.width} × {attachment.height}"
        raise bad_input(f"Can't make {attachment.name} smaller: it is only {size} pixels.")
    data = as_png(open_prepared(attachment.path).resize((width, height), Image.Resampling.LANCZOS))
    stored = store_bytes(data, store, ".png", name=attachment.name)
    original = attachment.scaled_from or (attachment.width, attachment.height)
    note = smaller_note(original)
    return msgspec.structs.replace(
        attachment,
        path=str(stored.path),
        sha256=stored.sha256,
        width=width,
        height=height,
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
