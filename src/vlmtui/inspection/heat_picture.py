"""Draws how much each cell of a picture matters over the picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

_HOT = np.array((255, 60, 0), np.float32)
_COLD = np.array((0, 110, 255), np.float32)
_STRONGEST = 0.75
"""Share of colour in the hottest cell."""
_DIM = 0.55
"""Brightness of the picture below, so that warm colours in it are not taken for heat."""


def draw_heat(
    picture: Image.Image, heat: Sequence[Sequence[float]], hottest: tuple[int, int, int, int] | None
) -> Image.Image:
    """Return an RGB picture dimmed and grey, red where the answer depends on it, blue where it is in the way.

    `heat`: rows of cells, of which the largest magnitude gets the strongest colour. `hottest`: left, top, right and
    bottom in pixels of what to outline.
    """
    grey = np.asarray(picture.convert("L"), np.float32)[..., None].repeat(3, axis=2) * _DIM
    cells = np.nan_to_num(np.asarray(heat, np.float32))
    most = float(np.abs(cells).max()) or 1.0
    rows = np.arange(picture.height) * cells.shape[0] // picture.height
    columns = np.arange(picture.width) * cells.shape[1] // picture.width
    each = (cells / most)[rows][:, columns][..., None]
    colour = np.where(each >= 0, _HOT, _COLD)
    share = np.abs(each) * _STRONGEST
    drawn = Image.fromarray((grey * (1 - share) + colour * share).astype(np.uint8))
    if hottest is not None:
        left, top, right, bottom = hottest
        box = (left, top, max(left, right - 1), max(top, bottom - 1))
        ImageDraw.Draw(drawn).rectangle(box, outline="white", width=max(1, max(picture.size) // 150))
    return drawn
