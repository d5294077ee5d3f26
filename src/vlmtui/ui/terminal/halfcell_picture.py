"""A picture drawn with half cells."""

from __future__ import annotations

from itertools import groupby

from PIL.Image import Image, Resampling
from rich.color import Color, ColorType
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget


class HalfcellPicture(Widget):
    """Two coloured pixels in each cell: works in every terminal.

    textual-image's own widget takes 20 ms for a thumbnail; with a dozen of them the screen would freeze noticeably.
    """

    def __init__(self, image: Image) -> None:
        super().__init__()
        self.image = image
        self._strips: list[Strip] = []

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        if len(self._strips) != height or self._strips[0].cell_length != width:
            self._strips = halfcell_strips(self.image, width, height)
        return self._strips[y] if y < height else Strip.blank(width)


def halfcell_strips(image: Image, width: int, height: int) -> list[Strip]:
    """Return the image scaled to `width` × `height` cells, ignoring its aspect ratio."""
    if not width or not height:
        return []
    data = image.convert("RGB").resize((width, height * 2), Resampling.BICUBIC).tobytes()
    pixels = [data[at : at + 3] for at in range(0, len(data), 3)]
    rows = [pixels[at : at + width] for at in range(0, len(pixels), width)]
    return [
        Strip(
            [
                Segment("▀" * len(list(cells)), Style.from_color(_colour(upper), _colour(lower)))
                for (upper, lower), cells in groupby(zip(above, below, strict=True))
            ],
            width,
        )
        for above, below in zip(rows[::2], rows[1::2], strict=True)
    ]


def _colour(pixel: bytes) -> Color:
    return Color("", ColorType.TRUECOLOR, None, ColorTriplet(*pixel))
