"""One attachment looked at closely: its stored pixels, the part of them that is seen, and its facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from textual.content import Content

from vlmtui.domain.attachment import Attachment
from vlmtui.ui.text import one_line

if TYPE_CHECKING:
    from PIL.Image import Image

    from vlmtui.media.video import Frames

_CRISP = 3.0
"""Enlarged more than this, the picture's own pixels are shown as squares."""
_LABEL = 10
_TEXT_MAX = 400
_SHA_SHOWN = 16

Size = tuple[int, int]
"""Width and height in pixels."""


class View(msgspec.Struct, frozen=True):
    """What is to be seen: the attachment, its frame, and the part around a centre (0 to 1), at `zoom` times the fit."""

    at: int
    frame: int = 0
    zoom: float = 1.0
    x: float = 0.5
    y: float = 0.5

    def seen(self, size: Size, room: Size) -> tuple[float, float]:
        """How much of the width and of the height of a picture is seen at once in `room`, both 0 to 1."""
        scale = self.scale(size, room)
        return min(1.0, room[0] / (size[0] * scale)), min(1.0, room[1] / (size[1] * scale))

    def scale(self, size: Size, room: Size) -> float:
        """Screen pixels a pixel of the picture."""
        return min(room[0] / size[0], room[1] / size[1]) * self.zoom

    def within(self, size: Size, room: Size) -> View:
        """The centre moved so that nothing beyond the edges is seen."""
        across, down = self.seen(size, room)
        x, y = (min(max(at, part / 2), 1 - part / 2) for at, part in ((self.x, across), (self.y, down)))
        return msgspec.structs.replace(self, x=x, y=y)


class Source(NamedTuple):
    """The stored pixels of one attachment: a picture, or the frames that the model is given."""

    picture: Image | None
    frames: Frames | None = None

    @property
    def size(self) -> Size:
        """Of the picture, or of each frame."""
        if self.frames is not None:
            height, width = self.frames.frames.shape[1:3]
            return int(width), int(height)
        assert self.picture is not None
        return self.picture.size

    @property
    def times_s(self) -> tuple[float, ...]:
        """When the frames appear; of a picture none."""
        return self.frames.times_s if self.frames is not None else ()

    def image(self, frame: int) -> Image:
        """The pixels, full size."""
        if self.frames is not None:
            from PIL.Image import fromarray

            return fromarray(self.frames.frames[frame])
        assert self.picture is not None
        return self.picture


def open_source(attachment: Attachment) -> Source:
    """What the model is given. Blocking. Raises VlmtuiError when the stored file is gone or damaged."""
    if attachment.modality == "video":
        from vlmtui.media.video import sample_frames

        return Source(None, sample_frames(attachment.path, attachment.sampling))
    from vlmtui.media.images import open_prepared

    return Source(open_prepared(attachment.path))


def camera_facts(attachment: Attachment) -> list[tuple[str, str]]:
    """What the camera wrote into the file, where that still is: the stored copy may have lost it. Blocking.

    A file of another size is another file by now, and is not asked.
    """
    if attachment.modality != "image" or not attachment.source.startswith("/"):
        return []
    from vlmtui.media.exif import exif_facts

    path = Path(attachment.source)
    try:
        is_same = path.stat().st_size == attachment.size_bytes
    except (OSError, ValueError):
        return []
    return exif_facts(path) if is_same else []


def draw(source: Source, view: View, room: Size) -> Image:
    """The part of the picture that `view` tells, cut from the full size and scaled to fill `room`. Blocking."""
    from PIL.Image import Resampling

    size = source.size
    scale, (across, down) = view.scale(size, room), view.seen(size, room)
    left, top = (view.x - across / 2) * size[0], (view.y - down / 2) * size[1]
    box = (max(0.0, left), max(0.0, top), min(size[0], left + across * size[0]), min(size[1], top + down * size[1]))
    target = max(1, round(across * size[0] * scale)), max(1, round(down * size[1] * scale))
    how = Resampling.NEAREST if scale > _CRISP else Resampling.BICUBIC
    return source.image(view.frame).resize(target, how, box=box, reducing_gap=2.0 if scale < 1 else None)


def facts(attachment: Attachment, exif: Sequence[tuple[str, str]], width: int) -> Content:
    """Everything that is known, a line or more each, in `width` cells."""
    lines: list[Content] = []
    for label, value in (*_known(attachment), *exif):
        text = one_line(value if len(value) <= _TEXT_MAX else value[: _TEXT_MAX - 1] + "…")
        first, *rest = Content(text).wrap(max(_LABEL, width - _LABEL)) or [Content("")]
        lines.append(Content.assemble((label.ljust(_LABEL), "$muted"), first))
        lines.extend(Content.assemble(" " * _LABEL, line) for line in rest)
    return Content("\n").join(lines)


def _known(attachment: Attachment) -> Iterator[tuple[str, str]]:
    from vlmtui.media.describe import human_duration

    yield "Name", attachment.name
    if attachment.source:
        yield "From", attachment.source
    yield "Size", f"{attachment.width} × {attachment.height} pixels"
    yield "Format", attachment.format
    yield "File", f"{attachment.size_bytes:,} bytes"
    yield "SHA-256", f"{attachment.sha256[:_SHA_SHOWN]}…"
    if attachment.pages > 1:
        yield "Page", f"{attachment.page} of {attachment.pages}"
    if attachment.duration_s is not None:
        rate = "" if attachment.fps is None else f" · {attachment.fps:g} fps"
        yield "Length", human_duration(attachment.duration_s) + rate
    for number, note in enumerate(attachment.notes):
        yield "" if number else "Notes", note
