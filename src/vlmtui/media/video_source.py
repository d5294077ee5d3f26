"""The interface of video decoders: facts, and frames at given times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vlmtui.media.sampling import VideoFacts

Pixels = npt.NDArray[np.uint8]


class VideoSource(Protocol):
    """An open video. `frames_at` raises VlmtuiError for an unreadable frame."""

    @property
    def facts(self) -> VideoFacts: ...

    def frames_at(self, times_s: Sequence[float], size: tuple[int, int]) -> Iterator[tuple[float, Pixels]]:
        """Yield for each time (ascending) the frame shown then: its own time, and its pixels, `(H, W, 3) uint8` RGB.

        `size` is (width, height) in pixels, upright.
        """
        ...

    def close(self) -> None: ...
