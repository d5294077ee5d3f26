"""Widgets that show an image: drawn by the terminal itself, or with block characters."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal

from PIL.Image import Image, Resampling
from rich.color import Color, ColorType
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from vlmtui.ui.terminal.graphics import GRIDS
from vlmtui.ui.terminal.painter import CELLS_MAX, Painter, placeholder_strip

if TYPE_CHECKING:  # NumPy takes ten megabytes, and half cells do not need it
    import numpy as np
    import numpy.typing as npt

    _BYTES = npt.NDArray[np.uint8]

Symbols = Literal["halfcell", "quadrant", "sextant"]
_FULL_SEXTANTS: Final = (0b010101, 0b101010)
"""The left and the right half, which are not among the sextants in Unicode."""


class PaintedPicture(Widget):
    """An image that the terminal draws; it fills the widget."""

    def __init__(self, image: Image, painter: Painter) -> None:
        super().__init__()
        self.image = image
        self._painter = painter
        self._number: int | None = None
        self._strips: list[Strip] = []

    def render_line(self, y: int) -> Strip:
        width, height = min(self.size.width, CELLS_MAX), min(self.size.height, CELLS_MAX)
        if len(self._strips) != height or (self._strips and self._strips[0].cell_length != width):
            self._draw(width, height)
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)

    def on_unmount(self) -> None:
        self._leave()

    def _draw(self, width: int, height: int) -> None:
        self._leave()
        self._number = self._painter.take(self.image, (width, height)) if width and height else None
        self._strips = (
            [Strip.blank(width) for _ in range(height)]
            if self._number is None
            else [placeholder_strip(self._number, row, width) for row in range(height)]
        )

    def _leave(self) -> None:
        if self._number is not None:
            self._painter.leave(self._number)
            self._number = None


class SymbolPicture(Widget):
    """An image drawn with coloured block characters, which works in every terminal.

    textual-image's widget takes 20 ms for a thumbnail, too long for a screen with a dozen of them.
    """

    def __init__(self, image: Image, symbols: Symbols = "halfcell") -> None:
        super().__init__()
        self.image = image
        self._symbols: Symbols = symbols
        self._strips: list[Strip] = []

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        if len(self._strips) != height or self._strips[0].cell_length != width:
            self._strips = symbol_strips(self.image, width, height, self._symbols)
        return self._strips[y] if y < height else Strip.blank(width)


def symbol_strips(image: Image, width: int, height: int, symbols: Symbols = "halfcell") -> list[Strip]:
    """Return the lines of an image, stretched to `width` × `height` cells."""
    if not width or not height:
        return []
    across, down = GRIDS[symbols]
    scaled = image.convert("RGB").resize((width * across, height * down), Resampling.BICUBIC)
    if symbols == "halfcell":
        return _halfcells(scaled, width)
    import numpy as np

    cells = _by_cell(np.asarray(scaled), across, down)
    masks, inks, papers = best_pairs(cells)
    return [_row(line, ink, paper, symbols) for line, ink, paper in zip(masks, inks, papers, strict=True)]


def best_pairs(cells: _BYTES) -> tuple[npt.NDArray[np.int64], _BYTES, _BYTES]:
    """Return for each cell the two colours that draw its pixels with the least squared error.

    `cells`: rows × columns × pixels × 3. Returns masks (bit k: pixel k has the first colour), first and second colours.
    """
    import numpy as np

    count = cells.shape[2]
    masks = np.arange(1 << (count - 1))  # a mask and its complement are the same
    chosen = ((masks[:, None] >> np.arange(count)) & 1).astype(np.float32)
    sums = cells.astype(np.float32)
    inside = np.einsum("mk,yxkc->yxmc", chosen, sums)
    outside = sums.sum(axis=2)[:, :, None, :] - inside
    n_inside = chosen.sum(axis=1)
    n_outside = count - n_inside
    explained = (inside**2).sum(-1) / np.maximum(n_inside, 1) + (outside**2).sum(-1) / n_outside
    best = explained.argmax(axis=2)
    at = best[:, :, None, None]
    ink = np.take_along_axis(inside, at, 2)[:, :, 0] / np.maximum(n_inside, 1)[best][..., None]
    paper = np.take_along_axis(outside, at, 2)[:, :, 0] / n_outside[best][..., None]
    return best, np.rint(ink).astype(np.uint8), np.rint(paper).astype(np.uint8)


def symbol_of(mask: int, symbols: Symbols) -> str:
    """Return the character that fills those pixels of a cell whose bits are set in `mask`. Bit 0: upper left, bit 1:
    right of it, and so on."""
    if symbols == "halfcell":
        return " ▀▄█"[mask]
    if symbols == "quadrant":
        return " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"[mask]
    if mask in (0, 0b111111, *_FULL_SEXTANTS):
        return {0: " ", 0b111111: "█", _FULL_SEXTANTS[0]: "▌", _FULL_SEXTANTS[1]: "▐"}[mask]
    return chr(0x1FB00 + mask - 1 - sum(mask > full for full in _FULL_SEXTANTS))


def _by_cell(pixels: _BYTES, across: int, down: int) -> _BYTES:
    """Reshape pixels (height × width × 3) to rows × columns × pixels of a cell × 3."""
    high, wide = pixels.shape[0] // down, pixels.shape[1] // across
    split = pixels.reshape(high, down, wide, across, -1).transpose(0, 2, 1, 3, 4)
    return split.reshape(high, wide, down * across, -1)


def _row(masks: npt.NDArray[np.int64], inks: _BYTES, papers: _BYTES, symbols: Symbols) -> Strip:
    cells = zip(masks.tolist(), map(tuple, inks.tolist()), map(tuple, papers.tolist()), strict=True)
    drawn = [(symbol_of(mask, symbols), ink if mask else paper, paper) for mask, ink, paper in cells]
    return Strip(
        [
            Segment("".join([char for char, _, _ in run]), Style.from_color(_colour(ink), _colour(paper)))
            for (ink, paper), run in groupby(drawn, lambda cell: cell[1:])
        ],
        len(drawn),
    )


def _halfcells(scaled: Image, width: int) -> list[Strip]:
    """Return lines of half cells: a cell has two pixels, each with a colour of its own."""
    data = scaled.tobytes()
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


def _colour(pixel: tuple[int, int, int] | bytes) -> Color:
    red, green, blue = pixel
    return Color("", ColorType.TRUECOLOR, None, ColorTriplet(red, green, blue))
