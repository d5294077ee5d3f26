"""The stored pixels of attachments, the part of them that a screen shows, and thumbnails, cached on disk by content
hash, size and video sampling."""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.files import write_private
from vlmtui.media.images import DECODER_ERRORS, open_prepared, stored_copy_damaged

if TYPE_CHECKING:
    from vlmtui.media.frames import Frames


Size = tuple[int, int]
"""Width and height in pixels."""


class Viewport(msgspec.Struct, frozen=True):
    """The visible part of one attachment: the attachment's index `at`, the centre (`x` and `y`, 0 to 1), and
    the zoom (1: the whole image fits)."""

    at: int
    zoom: float = 1.0
    x: float = 0.5
    y: float = 0.5

    def seen(self, size: Size, room: Size) -> tuple[float, float]:
        """Return the visible share of the image's width and height in `room`, both 0 to 1."""
        scale = self.scale(size, room)
        return min(1.0, room[0] / (size[0] * scale)), min(1.0, room[1] / (size[1] * scale))

    def scale(self, size: Size, room: Size) -> float:
        return min(room[0] / size[0], room[1] / size[1]) * self.zoom

    def box(self, size: Size, room: Size) -> tuple[float, float, float, float]:
        """Return left, top, right and bottom of the visible part, in pixels of the image."""
        (wide, high), (across, down) = size, self.seen(size, room)
        left, top = max(0.0, (self.x - across / 2) * wide), max(0.0, (self.y - down / 2) * high)
        return left, top, min(wide, left + across * wide), min(high, top + down * high)

    def within(self, size: Size, room: Size) -> Viewport:
        """Return the viewport moved so that nothing beyond the image's edges is visible."""
        across, down = self.seen(size, room)
        x, y = (min(max(at, part / 2), 1 - part / 2) for at, part in ((self.x, across), (self.y, down)))
        return msgspec.structs.replace(self, x=x, y=y)


class StoredPixels(NamedTuple):
    """The stored pixels of one attachment: an image, or the sampled frames of a video."""

    picture: Image.Image | None
    frames: Frames | None = None

    @property
    def times_s(self) -> tuple[float, ...]:
        """The frames' times in seconds; empty for an image."""
        return self.frames.times_s if self.frames is not None else ()

    def image(self, frame: int) -> Image.Image:
        if self.frames is not None:
            return Image.fromarray(self.frames.frames[frame])
        assert self.picture is not None
        return self.picture


def open_pixels(attachment: Attachment) -> StoredPixels:
    """Return the pixels that the model gets; for audio, its waveform. Blocking. Raises VlmtuiError if the stored file
    is missing or damaged."""
    if attachment.modality == "video":
        from vlmtui.media.frames import sample_frames

        return StoredPixels(None, sample_frames(attachment.path, attachment.sampling))
    if attachment.modality == "audio":
        from vlmtui.media.sound import sound_picture

        return StoredPixels(sound_picture(Path(attachment.path)))
    return StoredPixels(open_prepared(attachment.path))


# If one of these two is not imported, Pillow imports all of its forty formats.
_PNG = PngImageFile.format
_STORED = JpegImageFile.format, _PNG

KEPT_MAX = 512
"""Maximum number of thumbnails on disk; the least recently used are deleted first."""


def thumbnail(attachment: Attachment, cache: Path, size_px: tuple[int, int]) -> Image.Image:
    """Return an RGB image that fits in `size_px` (width, height), never larger than the original: of a video the first
    sampled frame, of audio the waveform.

    Blocking: call it in a thread. `cache` is a dedicated folder, created if missing. Raises VlmtuiError if the stored
    file is missing or damaged.
    """
    kept = cache / f"{_key(attachment, size_px)}.png"
    with suppress(*DECODER_ERRORS), Image.open(kept, formats=(_PNG,)) as image:
        image.load()
        kept.touch()
        return image.convert("RGB")
    made = {"image": _of_image, "video": _of_video, "audio": _of_sound}[attachment.modality](attachment, size_px)
    buffer = io.BytesIO()
    made.save(buffer, "PNG", compress_level=1)
    write_private(kept, buffer.getvalue())
    _prune(cache)
    return made


def _key(attachment: Attachment, size_px: tuple[int, int]) -> str:
    sampling = msgspec.json.encode(attachment.sampling) if attachment.sampling else b""
    sampling += b"sound" if attachment.modality == "audio" else b""
    text = f"{attachment.sha256} {size_px[0]}x{size_px[1]} ".encode() + sampling
    return hashlib.sha256(text).hexdigest()[:40]


def _of_image(attachment: Attachment, size_px: tuple[int, int]) -> Image.Image:
    path = Path(attachment.path)
    try:
        with Image.open(path, formats=_STORED) as image:
            # `draft` lets libjpeg decode at an eighth to half of the size, which is most of the work for a large photo.
            image.draft("RGB", (size_px[0] * 2, size_px[1] * 2))
            small = image.convert("RGB")
    except DECODER_ERRORS as error:
        raise stored_copy_damaged(path, error) from error
    small.thumbnail(size_px, Image.Resampling.BICUBIC)
    return small


def _of_video(attachment: Attachment, size_px: tuple[int, int]) -> Image.Image:
    from vlmtui.media.frames import sample_frames

    sampling = attachment.sampling or VideoSampling()
    frames = sample_frames(attachment.path, msgspec.structs.replace(sampling, num_frames=1, fps=None))
    small = Image.fromarray(frames.frames[0])
    small.thumbnail(size_px, Image.Resampling.BICUBIC)
    return small


def _of_sound(attachment: Attachment, size_px: tuple[int, int]) -> Image.Image:
    from vlmtui.media.sound import PICTURE_SIZE, sound_picture

    width, height = PICTURE_SIZE
    scale = min(size_px[0] / width, size_px[1] / height, 1.0)
    return sound_picture(Path(attachment.path), (max(1, round(width * scale)), max(1, round(height * scale))))


def _prune(cache: Path) -> None:
    """Delete the least recently used thumbnails. Another process may do so at the same time."""
    used: list[tuple[int, Path]] = []
    for path in cache.glob("*.png"):
        with suppress(OSError):
            used.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(used, reverse=True)[KEPT_MAX:]:
        path.unlink(missing_ok=True)
