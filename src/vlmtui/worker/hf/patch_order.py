"""The order in which an image processor of Qwen2-VL's kind writes the patches of a picture, found by a drawing."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

_BLOCKS = 2
"""Merged patches on each side of the drawing."""


def cuts_row_by_row(processor: Any, patch: int, merge: int) -> bool:
    """Return whether patches follow each other row by row, and not grouped to be merged. `patch`: the side of one in
    pixels; `merge`: how many of them on each side become one token. False if the processor does not cut the drawing."""
    if merge < 2:
        return False
    side = _BLOCKS * merge
    shades = np.arange(side * side, dtype=np.uint8).reshape(side, side) * (255 // (side * side))
    drawing = Image.fromarray(np.kron(shades, np.ones((patch, patch), np.uint8))).convert("RGB")
    try:
        values = processor(images=[drawing], do_resize=False, return_tensors="np")["pixel_values"]
        means = np.asarray(values, np.float32).reshape(side * side, -1).mean(axis=1)
    except (ArithmeticError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError):
        return False  # it takes no such picture, or cuts it in another way
    return bool((np.diff(means) > 0).all())
