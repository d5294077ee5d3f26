"""The stored pixels of an attachment, and drawing a zoomed part of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vlmtui.domain.attachment import Attachment

if TYPE_CHECKING:
    from PIL.Image import Image

    from vlmtui.media.frames import Frames

_CRISP = 3.0
"""Above this magnification, pixels are shown as squares instead of being smoothed."""

Size = tuple[int, int]
"""Width and height in pixels."""


class Viewport(msgspec.Struct, frozen=True):
    """The visible part: the attachment's index, its frame, the centre (0 to 1) and the zoom relative to fitting."""

    at: int
    frame: int = 0
    zoom: float = 1.0
    x: float = 0.5
    y: float = 0.5

    def seen(self, size: Size, room: Size) -> tuple[float, float]:
        """Return the visible share of the picture's width and height in `room`, both 0 to 1."""
        scale = self.scale(size, room)
        return min(1.0, room[0] / (size[0] * scale)), min(1.0, room[1] / (size[1] * scale))

    def scale(self, size: Size, room: Size) -> float:
        """Return screen pixels per picture pixel."""
        return min(room[0] / size[0], room[1] / size[1]) * self.zoom

    def within(self, size: Size, room: Size) -> Viewport:
        """Return the viewport moved so that nothing beyond the picture's edges is visible."""
        across, down = self.seen(size, room)
        x, y = (min(max(at, part / 2), 1 - part / 2) for at, part in ((self.x, across), (self.y, down)))
        return msgspec.structs.replace(self, x=x, y=y)


class StoredPixels(NamedTuple):
    """The stored pixels of one attachment: a picture, or the frames that the model gets."""

    picture: Image | None
    frames: Frames | None = None

    @property
    def size(self) -> Size:
        """Size of the picture, or of each frame."""
        if self.frames is not None:
            height, width = self.frames.frames.shape[1:3]
            return int(width), int(height)
        assert self.picture is not None
        return self.picture.size

    @property
    def times_s(self) -> tuple[float, ...]:
        """When the frames appear; empty for a picture."""
        return self.frames.times_s if self.frames is not None else ()

    def image(self, frame: int) -> Image:
        """Return the picture or a frame at full size."""
        if self.frames is not None:
            from PIL.Image import fromarray

            return fromarray(self.frames.frames[frame])
        assert self.picture is not None
        return self.picture


def open_pixels(attachment: Attachment) -> StoredPixels:
    """Return the pixels that the model gets; of sound its waveform. Blocking. Raises VlmtuiError if the stored file is
    missing or damaged."""
    if attachment.modality == "video":
        from vlmtui.media.frames import sample_frames

        return StoredPixels(None, sample_frames(attachment.path, attachment.sampling))
    if attachment.modality == "audio":
        from vlmtui.media.sound_picture import sound_picture

        return StoredPixels(sound_picture(Path(attachment.path)))
    from vlmtui.media.images import open_prepared

    return StoredPixels(open_prepared(attachment.path))


def draw(source: StoredPixels, view: Viewport, room: Size) -> Image:
    """Return the part of the picture shown in `view`, scaled to fill `room`. Blocking."""
    from PIL.Image import Resampling

    size = source.size
    scale, (across, down) = view.scale(size, room), view.seen(size, room)
    left, top = (view.x - across / 2) * size[0], (view.y - down / 2) * size[1]
    box = (max(0.0, left), max(0.0, top), min(size[0], left + across * size[0]), min(size[1], top + down * size[1]))
    target = max(1, round(across * size[0] * scale)), max(1, round(down * size[1] * scale))
    how = Resampling.NEAREST if scale > _CRISP else Resampling.BICUBIC
    return source.image(view.frame).resize(target, how, box=box, reducing_gap=2.0 if scale < 1 else None)
