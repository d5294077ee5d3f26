"""What every decoder of videos offers: its facts, and the frames at given moments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vlmtui.media.sampling import VideoFacts

Pixels = npt.NDArray[np.uint8]


class VideoSource(Protocol):
    """An open video. `frames_at` raises VlmtuiError where a frame is damaged beyond use."""

    @property
    def facts(self) -> VideoFacts: ...

    def frames_at(self, times_s: Sequence[float], size: tuple[int, int]) -> Iterator[tuple[float, Pixels]]:
        """For each time (ascending) the frame that is on screen then: its own time, and `(H, W, 3) uint8` RGB.

        `size` is (width, height) in pixels, upright.
        """
        ...

    def close(self) -> None: ...
