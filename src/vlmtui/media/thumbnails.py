"""Thumbnails of attachments, cached on disk by content hash, size and video sampling."""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress
from pathlib import Path

import msgspec
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.files import write_private
from vlmtui.media.images import DECODER_ERRORS
from vlmtui.reading import shown_name

# Where one of these is not imported, Pillow imports all of its forty formats.
_PNG = PngImageFile.format
_STORED = JpegImageFile.format, _PNG

KEPT_MAX = 512
"""Most thumbnails on disk; the least recently used are deleted first."""


def thumbnail(attachment: Attachment, cache: Path, size_px: tuple[int, int]) -> Image.Image:
    """Return an RGB picture of the attachment (of a video its first sampled frame, of sound its waveform) that fits in
    `size_px` (width, height), never larger than the original.

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
        raise bad_input(
            f"The stored image {shown_name(path)} is missing or damaged.",
            detail=str(error),
            hint="Attach the picture again.",
        ) from error
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
    from vlmtui.media.sound_picture import SIZE, sound_picture

    scale = min(size_px[0] / SIZE[0], size_px[1] / SIZE[1], 1.0)
    return sound_picture(Path(attachment.path), (max(1, round(SIZE[0] * scale)), max(1, round(SIZE[1] * scale))))


def _prune(cache: Path) -> None:
    """Delete the least recently used thumbnails. Another process may do so at the same time."""
    used: list[tuple[int, Path]] = []
    for path in cache.glob("*.png"):
        with suppress(OSError):
            used.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(used, reverse=True)[KEPT_MAX:]:
        path.unlink(missing_ok=True)
