"""Real media files, made by Pillow and PyAV, whose frames carry their own number."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from PIL import Image

_BITS = 10
Pixels = npt.NDArray[np.uint8]


def numbered(number: int, size: tuple[int, int] = (80, 48)) -> Pixels:
    """A frame that carries its number as black and white bars, the lowest bit at the left."""
    width, height = size
    frame = np.zeros((height, width, 3), np.uint8)
    for bit in range(_BITS):
        frame[:, bit * width // _BITS : (bit + 1) * width // _BITS] = 255 * (number >> bit & 1)
    return frame


def numbers(frames: Pixels) -> tuple[int, ...]:
    """The numbers that frames `(T, H, W, 3)` carry."""
    width = frames.shape[2]
    bars = [(bit * width // _BITS + 2, (bit + 1) * width // _BITS - 2) for bit in range(_BITS)]
    return tuple(
        sum((int(frame[:, left:right].mean() > 128)) << bit for bit, (left, right) in enumerate(bars))
        for frame in frames
    )


def video(
    path: Path,
    *,
    frames: int | Sequence[Pixels] = 50,
    rate: int = 25,
    codec: str = "libx264",
    pts: Sequence[int] | None = None,
    rotation: int | None = None,
    gop: int = 12,
    options: dict[str, str] | None = None,
) -> Path:
    """A video of numbered frames (or the given ones); `pts` in units of 1 / rate make its frame rate vary."""
    pixels = [numbered(number) for number in range(frames)] if isinstance(frames, int) else frames
    with av.open(str(path), "w", options=options or {}) as container:
        stream: Any = container.add_stream(codec, rate=rate)
        stream.height, stream.width = pixels[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = gop
        if rotation is not None:
            stream.set_display_rotation(rotation)
        for number, array in enumerate(pixels):
            frame = av.VideoFrame.from_ndarray(array, format="rgb24")
            frame.pts = pts[number] if pts else number
            frame.time_base = Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def sound(path: Path) -> Path:
    """A file of half a second of silence."""
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("aac", rate=44100)
        for _ in range(20):
            frame = av.AudioFrame.from_ndarray(np.zeros((2, 1024), np.float32), format="fltp", layout="stereo")
            frame.rate = 44100
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def gif(path: Path, *, frames: int = 12, duration_ms: int | list[int] = 100) -> Path:
    """A moving picture of numbered frames; the format follows the name (GIF, WebP, PNG, AVIF)."""
    images = [Image.fromarray(numbered(number)) for number in range(frames)]
    images[0].save(path, save_all=True, append_images=images[1:], duration=duration_ms, loop=0, lossless=True)
    return path


def corners(size: tuple[int, int] = (64, 48)) -> Image.Image:
    """Red top left, green top right, blue bottom left, white bottom right."""
    width, height = size
    image = Image.new("RGB", size, "white")
    image.paste("red", (0, 0, width // 2, height // 2))
    image.paste("lime", (width // 2, 0, width, height // 2))
    image.paste("blue", (0, height // 2, width // 2, height))
    return image
