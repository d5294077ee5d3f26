"""Compare the pixel values of two processors for an image, and guess the step in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from vlmtui.errors import bad_input

Floats = np.ndarray[Any, np.dtype[np.float32]]
FILE_BYTES_MAX = 1_000_000_000
_LEVEL = 1 / 255 / 0.2
"""The largest normalised difference of two adjacent levels: processors have a standard deviation of at least 0.2."""
_FIT = 0.02
"""The largest residual of a linear fit, as a share of the values' standard deviation."""
_NORMALISED_MAX = 16.0
"""Larger values are levels of 0 to 255: normalised values are far smaller."""


class PixelStep(StrEnum):
    """The step of a processor in which two processors probably differ."""

    COUNT = "tiles"
    SIZE = "size"
    LEVELS = "missing normalisation"
    NORMALISATION = "normalisation"
    CHANNELS = "channel order"
    ROUNDING = "rounding"
    RESAMPLING = "resampling"


class PixelDifference(msgspec.Struct, frozen=True):
    """The difference of two processors' values for an image."""

    largest: float
    """The largest absolute difference of normalised values; infinite if the shapes differ."""
    mean: float
    """The mean absolute difference of normalised values; infinite if the shapes differ."""
    step: PixelStep | None = None
    """None if the values are equal within the tolerance."""
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """The shapes of both sides; empty if unknown."""


def read_pixel_values(path: str) -> Floats:
    """Read a file of `SeenMedium.values`. Raises VlmtuiError."""
    try:
        if Path(path).stat().st_size > FILE_BYTES_MAX:
            raise bad_input("The processor's values are too large to compare.")
        found: Floats = np.asarray(np.load(path, allow_pickle=False, mmap_mode="r"), np.float32)
    except (OSError, ValueError, EOFError) as error:
        raise bad_input("The processor's values can't be read.", detail=str(error)) from error
    return found


def compare_values(ours: Sequence[Floats], theirs: Sequence[Floats], tolerance: float) -> PixelDifference:
    """Compare the tiles or frames of an attachment pairwise. Return the largest difference. `theirs`: the reference."""
    if len(ours) != len(theirs):
        shapes = ((len(ours), *_shape(ours)), (len(theirs), *_shape(theirs)))
        return PixelDifference(float("inf"), float("inf"), PixelStep.COUNT, shapes)
    for one, other in zip(ours, theirs, strict=True):
        if one.shape != other.shape:
            return PixelDifference(float("inf"), float("inf"), PixelStep.SIZE, (one.shape, other.shape))
    gaps = [np.abs(one - other) for one, other in zip(ours, theirs, strict=True)]
    count = sum(gap.size for gap in gaps)
    if not count:
        return PixelDifference(0.0, 0.0)
    worst = max(range(len(gaps)), key=lambda at: float(gaps[at].max(initial=0.0)))
    largest = float(gaps[worst].max(initial=0.0))
    mean = float(sum(float(gap.sum(dtype=np.float64)) for gap in gaps) / count)
    if not np.isfinite(largest):
        largest = mean = float("inf")
    shapes = (ours[worst].shape, theirs[worst].shape)
    if largest <= tolerance:
        return PixelDifference(largest, mean, None, shapes)
    return PixelDifference(largest, mean, _step(ours[worst], theirs[worst], largest), shapes)


def _shape(values: Sequence[Floats]) -> tuple[int, ...]:
    return values[0].shape if values else ()


def _step(ours: Floats, theirs: Floats, largest: float) -> PixelStep:
    """Return the step that explains the difference of two tiles of the same shape."""
    if ours.ndim == 3 and ours.shape[0] == 3 and np.abs(ours[::-1] - theirs).max() <= 1e-3 * max(1.0, largest):
        return PixelStep.CHANNELS
    if largest <= _LEVEL:
        return PixelStep.ROUNDING
    channels = range(ours.shape[0]) if ours.ndim == 3 else range(1)
    pairs = [
        (ours[at].ravel(), theirs[at].ravel()) if ours.ndim == 3 else (ours.ravel(), theirs.ravel()) for at in channels
    ]
    if all(_is_linear(one, other) for one, other in pairs):
        is_levels = [side.max() > _NORMALISED_MAX for side in (ours, theirs)]
        return PixelStep.LEVELS if is_levels[0] != is_levels[1] else PixelStep.NORMALISATION
    return PixelStep.RESAMPLING


def _is_linear(ours: Floats, theirs: Floats) -> bool:
    centred, target = theirs - theirs.mean(), ours - ours.mean()
    spread = float(centred @ centred)
    if spread <= 1e-9:
        return bool(np.ptp(ours) <= 1e-3)
    slope = float(target @ centred) / spread
    left = np.abs(target - slope * centred).max()
    return bool(left <= _FIT * max(1e-6, float(ours.std())))
