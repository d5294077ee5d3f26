"""Reads animations (GIF, WebP, AVIF, PNG) as videos with Pillow, which implements their blending and disposal rules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media import colour, images
from vlmtui.media.pages import most_parts
from vlmtui.media.sampling import VideoFacts
from vlmtui.media.video_source import Pixels
from vlmtui.reading import shown_name

FRAME_PIXELS_MAX = 40_000_000
"""Most pixels per frame. Decoders keep several frames in memory."""
_DEFAULT_DURATION_MS = 100
"""How long browsers show a frame with a duration of 10 ms or less."""
_SOON = 1e-6


class AnimatedImage:
    """A `VideoSource` for an image with one or more frames."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._path = path
        data = file.read(images.BYTES_MAX)
        self._image = images.open_image(data, path)
        self._frames_max = most_parts(self._image, len(data))
        try:
            self._starts, end = self._timeline()
            notes = self._notes()
        except images.DECODER_ERRORS as error:
            raise bad_input(
                f"{shown_name(path)} is cut off or damaged: its frames cannot be read.",
                detail=f"{type(error).__name__}: {error}",
                hint="Copy or download it again.",
            ) from error
        kind = str(self._image.format)
        self._facts = VideoFacts(
            format=kind,
            suffix=f".{kind.lower()}",
            width=self._image.width,
            height=self._image.height,
            fps=len(self._starts) / end,
            last_s=self._starts[-1],
            total_frames=len(self._starts),
            notes=notes,
        )

    @property
    def facts(self) -> VideoFacts:
        return self._facts

    def frames_at(self, times_s: Sequence[float], size: tuple[int, int]) -> Iterator[tuple[float, Pixels]]:
        """See `VideoSource.frames_at`. Transparency becomes white."""
        for time in times_s:
            number = max(bisect_right(self._starts, time + _SOON) - 1, 0)
            try:
                self._image.seek(number)
                frame = colour.to_rgb(self._image.copy()).pixels
            except images.DECODER_ERRORS as error:
                raise bad_input(
                    f"Frame {number + 1} of {shown_name(self._path)} is damaged.",
                    detail=f"{type(error).__name__}: {error}",
                ) from error
            if frame.size != size:
                frame = frame.resize(size, Image.Resampling.BICUBIC)
            yield self._starts[number], np.array(frame)

    def close(self) -> None:
        self._image.close()

    def _notes(self) -> tuple[str, ...]:
        """Return the notes of the first frame, which apply to all."""
        self._image.seek(0)
        return colour.to_rgb(self._image.copy()).notes

    def _timeline(self) -> tuple[list[float], float]:
        """Return when each frame appears and when the last one ends, in seconds."""
        image, starts, now_ms = self._image, list[float](), 0.0
        is_large = image.width * image.height > FRAME_PIXELS_MAX
        if is_large and getattr(image, "is_animated", False):
            raise self._too_large(2)
        # A GIF does not store its frame count: asking Pillow for it would decode all frames.
        count = None if image.format == "GIF" else getattr(image, "n_frames", 1)
        if count is not None and count > self._frames_max:
            raise self._too_large(count)
        while len(starts) != count:
            try:
                image.seek(len(starts))
            except EOFError:
                if count is None and starts:
                    break
                raise
            if len(starts) == self._frames_max:
                raise self._too_large(len(starts) + 1)
            image.load()
            starts.append(now_ms / 1000)
            shown_ms = image.info.get("duration", 0)
            now_ms += shown_ms if isinstance(shown_ms, int | float) and shown_ms > 10 else _DEFAULT_DURATION_MS
        return starts, now_ms / 1000

    def _too_large(self, frames: int) -> VlmtuiError:
        """Return the error for an animation with at least this many frames."""
        image = self._image
        return bad_input(
            f"{shown_name(self._path)} has too many frames: at least {frames} of {image.width} × {image.height} "
            f"pixels; the limit at this size is {self._frames_max}.",
            hint="Convert it to MP4.",
        )
