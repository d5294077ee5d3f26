"""How images are drawn: by the terminal itself (kitty, iTerm2, Sixel), with block characters, or not at all.

Of textual-image (0.12) only the Sixel encoder is used. Its other classes ask the terminal questions whenever they draw,
which fails once Textual reads the input. They also write kitty's data past the driver, and support neither multiplexers
nor sextants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec

from vlmtui.terminal import Passage, TerminalQuestion
from vlmtui.ui.terminal.painter import CELLS_MAX, Painter, Protocol

if TYPE_CHECKING:
    from PIL.Image import Image
    from textual.strip import Strip
    from textual.widget import Widget

    from vlmtui.ui.terminal.pictures import Symbols

GraphicsMode = Literal["kitty", "iterm", "sixel", "sextant", "quadrant", "halfcell", "off"]

GRIDS: Final[dict[GraphicsMode, tuple[int, int]]] = {"halfcell": (1, 2), "quadrant": (2, 2), "sextant": (2, 3)}
"""Pixels across and down a cell, for the modes that draw with characters."""
_NOT_ASKED: Final = ("off", "halfcell")


class Drawing(msgspec.Struct, frozen=True):
    """An image ready to show: `size` in columns and rows; `strips`: its lines, if it is drawn with characters."""

    image: Image
    size: tuple[int, int]
    strips: list[Strip]


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

    def widget_for(self, image: Image, *, columns: int, rows: int) -> Widget | None:
        """Return a widget, of the right size, that shows `image` in at most `columns` × `rows` cells; None if images
        are off. Pass a thumbnail: drawing a full-size photo takes 0.1 s."""
        if self.mode == "off" or not image.width or not image.height:
            return None
        from vlmtui.ui.terminal.pictures import PaintedPicture, SymbolPicture

        widget: Widget
        if self.painter is not None:
            widget = PaintedPicture(image, self.painter)
        else:
            widget = SymbolPicture(image, cast("Symbols", self.mode))
        width, height = self.fit(image.width, image.height, columns=columns, rows=rows)
        widget.styles.width, widget.styles.height = width, height
        return widget

    def draw(self, image: Image, *, columns: int, rows: int) -> Drawing:
        """Prepare an image; can be called in a thread. If the result has no strips, show it with `widget_for`."""
        size = self.fit(image.width, image.height, columns=columns, rows=rows)
        return Drawing(image, size, self.strips(image, size) if self.draws_symbols else [])

    def strips(self, image: Image, size: tuple[int, int]) -> list[Strip]:
        """Return an image drawn with characters, in `size` columns and rows. Only for modes that draw with
        characters."""
        from vlmtui.ui.terminal.pictures import symbol_strips

        return symbol_strips(image, *size, cast("Symbols", self.mode))

    def fit(self, width: int, height: int, *, columns: int, rows: int) -> tuple[int, int]:
        """Return the columns and rows for an image of this size in pixels: same aspect ratio, never enlarged."""
        columns, rows = min(columns, CELLS_MAX), min(rows, CELLS_MAX)
        cell_width, cell_height = self.cell
        scale = min(columns * cell_width / width, rows * cell_height / height, 1.0)
        return (
            max(1, min(columns, round(width * scale / cell_width))),
            max(1, min(rows, round(height * scale / cell_height))),
        )
