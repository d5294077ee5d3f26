"""The same picture or video with fewer tokens: half the width and height, half the frames."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
from PIL import Image

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.media.files import store_bytes
from vlmtui.media.images import open_prepared

SIDE_MIN = 56
"""Pixels below which no side is halved: then nothing is left to be seen."""


def smaller_image(attachment: Attachment, store: Path) -> Attachment:
    """The image at half its width and height, kept as PNG. Blocking: call it in a thread.

    Raises VlmtuiError when it is too small already, or its stored file is gone.
    """
    width, height = attachment.width // 2, attachment.height // 2
    if min(width, height) < SIDE_MIN:
        size = f"{attachment.width} × {attachment.height}"
        raise bad_input(f"{attachment.name} is only {size} pixels: it is not made smaller.")
    image = open_prepared(attachment.path).resize((width, height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    stored = store_bytes(buffer.getvalue(), store, ".png", name=attachment.name)
    first = next((note for note in attachment.notes if note.startswith("made smaller")), None)
    note = first or f"made smaller from {attachment.width} × {attachment.height}"
    notes = (*(kept for kept in attachment.notes if kept != first), note)
    return msgspec.structs.replace(
        attachment, path=str(stored.path), sha256=stored.sha256, width=width, height=height, notes=notes
    )


def fewer_frames(attachment: Attachment) -> Attachment:
    """The video with half its frames. Raises VlmtuiError when it has only one."""
    sampling = attachment.sampling or VideoSampling()
    if sampling.fps is not None:
        return msgspec.structs.replace(attachment, sampling=msgspec.structs.replace(sampling, fps=sampling.fps / 2))
    if sampling.num_frames < 2:
        raise bad_input(f"{attachment.name} is sent as one frame already.")
    halved = msgspec.structs.replace(sampling, num_frames=sampling.num_frames // 2)
    return msgspec.structs.replace(attachment, sampling=halved)
