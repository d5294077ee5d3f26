"""A look at a file before it is attached."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageOps

from vlmtui.domain.attachment import VideoSampling
from vlmtui.errors import bad_input
from vlmtui.media.files import human_bytes, shown
from vlmtui.media.images import DECODER_ERRORS
from vlmtui.media.sniff import Kind
from vlmtui.media.stage import sniff_file


def preview(path: Path, size_px: tuple[int, int]) -> tuple[Image.Image, str]:
    """A small upright RGB picture that fits into `size_px` (width, height), and the file's facts in a line.

    Blocking. Raises VlmtuiError when the file cannot be read. It is not checked as thoroughly as by staging.
    """
    if sniff_file(path).kind is Kind.VIDEO:
        from vlmtui.media.video import sample_frames

        frames = sample_frames(path, VideoSampling(num_frames=1))
        image = Image.fromarray(frames.frames[0])
        facts = f"{image.width} × {image.height} · {frames.duration_s:.1f} s"
    else:
        try:
            with Image.open(path) as opened:
                opened.draft("RGB", (size_px[0] * 2, size_px[1] * 2))
                facts = f"{opened.width} × {opened.height} · {human_bytes(path.stat().st_size)}"
                image = ImageOps.exif_transpose(opened).convert("RGB")
        except DECODER_ERRORS as error:
            raise bad_input(f"{shown(path)} cannot be shown.", detail=str(error)) from error
    image.thumbnail(size_px, Image.Resampling.BICUBIC)
    return image, facts
