"""How images are drawn: by the terminal itself (kitty, iTerm2, Sixel), with block characters, or not at all.

Of textual-image (0.12) only the Sixel encoder is used. Its other classes ask the terminal questions whenever they draw,
which fails once Textual reads the input. They also write kitty's data past the driver, and support neither multiplexers
nor sextants.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec
from rich.color import Color, ColorType
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from vlmtui.terminal import Passage, TerminalQuestion
from vlmtui.ui.terminal.painter import CELLS_MAX, Painter, Protocol, placeholder_strip

if TYPE_CHECKING:  # NumPy takes ten megabytes, and half cells do not need it
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image

    _BYTES = npt.NDArray[np.uint8]

Symbols = Literal["halfcell", "quadrant", "sextant"]
GraphicsMode = Literal["kitty", "iterm", "sixel", "sextant", "quadrant", "halfcell", "off"]

GRIDS: Final[dict[GraphicsMode, tuple[int, int]]] = {"halfcell": (1, 2), "quadrant": (2, 2), "sextant": (2, 3)}
"""Pixels across and down a cell, for the modes that draw with characters."""
_NOT_ASKED: Final = ("off", "halfcell")
_FULL_SEXTANTS: Final = (0b010101, 0b101010)
"""The left and the right half, which are not among the sextants in Unicode."""


class Drawing(msgspec.Struct, frozen=True):
    """An image ready to show: `size` in columns and rows; `strips`: its lines, if it is drawn with characters."""

    image: Image
    size: tuple[int, int]
    strips: list[Strip]

    def widget(self, graphics: Graphics) -> Picture:
        """Return a widget of this size that shows the drawing."""
        return Picture(self, graphics)


class Graphics:
    """Draws images in one mode, as widgets or strips. Packages for drawing are imported with the first image."""

    def __init__(
        self,
        mode: GraphicsMode = "halfcell",
        *,
        cell: tuple[int, int] = (10, 20),
        passage: Passage | None = None,
    ) -> None:
        self.mode: GraphicsMode = mode
        self.cell = cell
        """Width and height of a terminal cell, in pixels."""
        self.draws_symbols = mode in GRIDS
        """True if images are drawn with characters."""
        self.pixels = GRIDS.get(mode, cell)
        """Pixels across and down a cell in this mode."""
        is_painted = not self.draws_symbols and mode != "off"
        self.painter = Painter(cast(Protocol, mode), cell, passage or Passage()) if is_painted else None
        """Lets the terminal itself draw; None in the other modes."""

    @classmethod
    def detect(
        cls,
        setting: str = "auto",
        question: TerminalQuestion | None = None,
        *,
        coloured: bool = True,
        paints: bool = True,
    ) -> Graphics:
        """Return the graphics for a setting (`auto` or a mode) and the terminal. Call it before `App.run`.

        `question`: questions that were sent to the terminal earlier; None: ask now. For `off` and `halfcell` no answer
        is needed. `coloured`: False if the user wants no colours; then images can't be drawn with characters. `paints`:
        False if the driver can't let the terminal draw.
        """
        if setting in _NOT_ASKED:
            return cls(cast(GraphicsMode, setting) if coloured else "off")
        if question is not None:
            terminal = question.answer()
        else:
            with TerminalQuestion().ask() as asked:
                terminal = asked.answer()
        mode = cast(GraphicsMode, terminal.mode if setting == "auto" else setting)
        if not paints and mode not in (*GRIDS, "off"):
            drawn = (way.name for way in terminal.ways if way.is_possible and way.name in GRIDS)
            mode = next(drawn, "halfcell")
        if not coloured and mode in GRIDS:
            mode = "off"
        graphics = cls(mode, cell=terminal.cell, passage=Passage(is_through=terminal.passes_on(mode)))
        if graphics.painter is not None and graphics.painter.draws_over:
            graphics.painter.passage.locate()
        return graphics

    @classmethod
    def of(cls, app: object) -> Graphics:
        """Return the graphics of an app; for an app that has none, graphics in the mode `off`."""
        found = getattr(app, "graphics", None)
        return found if isinstance(found, cls) else cls("off")

    def widget_for(self, image: Image, *, columns: int, rows: int) -> Picture | None:
        """Return a widget, of the right size, that shows `image` in at most `columns` × `rows` cells; None if images
        are off. Pass a thumbnail: drawing a full-size photo takes 0.1 s."""
        if self.mode == "off" or not image.width or not image.height:
            return None
        return self.draw(image, self.fit(image.width, image.height, columns=columns, rows=rows)).widget(self)

    def draw(self, image: Image, size: tuple[int, int]) -> Drawing:
        """Draw an image, stretched to `size` columns and rows. Blocking for modes that draw with characters."""
        return Drawing(image, size, symbol_strips(image, *size, cast(Symbols, self.mode)) if self.draws_symbols else [])

    def place(self, drawing: Drawing) -> tuple[list[Strip], int | None]:
        """Return the lines that show a drawing, and its number in the painter, if the terminal draws it. Call `leave`
        with that number when the lines are no longer on the screen."""
        if self.painter is None:
            return drawing.strips, None
        columns, rows = (min(side, CELLS_MAX) for side in drawing.size)
        number = self.painter.take(drawing.image, (columns, rows))
        if number is None:
            return [], None
        return [placeholder_strip(number, row, columns) for row in range(rows)], number

    def leave(self, number: int | None) -> None:
        """Let the painter forget an image."""
        if self.painter is not None and number is not None:
            self.painter.leave(number)

    def fit(self, width: int, height: int, *, columns: int, rows: int) -> tuple[int, int]:
        """Return the columns and rows for an image of this size in pixels: same aspect ratio, never enlarged."""
        columns, rows = min(columns, CELLS_MAX), min(rows, CELLS_MAX)
        cell_width, cell_height = self.cell
        scale = min(columns * cell_width / width, rows * cell_height / height, 1.0)
        return (
            max(1, min(columns, round(width * scale / cell_width))),
            max(1, min(rows, round(height * scale / cell_height))),
        )


class Picture(Widget):
    """Shows a drawing. textual-image's widget takes 20 ms for a thumbnail, too long for a screen with a dozen."""

    ALLOW_SELECT = False

    def __init__(self, drawing: Drawing, graphics: Graphics) -> None:
        super().__init__(classes="picture")
        self.styles.width, self.styles.height = drawing.size
        self._drawing = drawing
        self._graphics = graphics
        self._placed: tuple[list[Strip], int | None] | None = None
        """None until a line is drawn for the first time."""

    def render_line(self, y: int) -> Strip:
        if self._placed is None:
            self._placed = self._graphics.place(self._drawing)
        strips, _ = self._placed
        return strips[y] if y < len(strips) else Strip.blank(self.size.width)

    def on_unmount(self) -> None:
        if self._placed is not None:
            self._graphics.leave(self._placed[1])


def symbol_strips(image: Image, width: int, height: int, symbols: Symbols = "halfcell") -> list[Strip]:
    """Return the lines of an image, stretched to `width` × `height` cells."""
    from PIL.Image import Resampling

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
