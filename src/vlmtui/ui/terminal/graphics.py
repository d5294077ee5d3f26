"""How pictures are drawn: the terminal's own graphics, coloured half cells, or not at all."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from vlmtui.ui.terminal.query import TerminalQuestion

if TYPE_CHECKING:
    from PIL.Image import Image
    from textual.strip import Strip
    from textual.widget import Widget

GraphicsMode = Literal["kitty", "sixel", "halfcell", "off"]

_IMPORTING = threading.Lock()

MAX_CELLS = 297
"""Longest side of a picture in kitty's protocol, in cells: it has this many row and column marks."""


class Drawing(msgspec.Struct, frozen=True):
    """A picture ready to show: `size` in columns and rows, `strips` its lines if drawn as half cells."""

    image: Image
    size: tuple[int, int]
    strips: list[Strip]


class Graphics:
    """Creates the widgets that show pictures.

    Imports the drawing packages with the first picture, so that the first paint does not wait for them.
    """

    def __init__(self, mode: GraphicsMode = "halfcell", *, cell: tuple[int, int] = (10, 20)) -> None:
        self.mode: GraphicsMode = mode
        self.cell = cell
        """Width and height of a terminal cell, in pixels."""

    @classmethod
    def detect(cls, setting: str = "auto", question: TerminalQuestion | None = None) -> Graphics:
        """Detect the mode from the setting (`auto`, `kitty`, `sixel`, `halfcell`, `off`) and the terminal; call it
        before `App.run`.

        `question` may have been sent earlier, so that its answer has arrived. With `off` and `halfcell` the terminal is
        not queried.
        """
        if setting in ("off", "halfcell"):
            return cls(cast(GraphicsMode, setting))
        with question or TerminalQuestion().ask() as asked:
            terminal = asked.answer()
        mode = terminal.mode if setting == "auto" else setting
        return cls(cast(GraphicsMode, mode), cell=terminal.cell)

    @classmethod
    def of(cls, app: object) -> Graphics:
        """Return the graphics of an app; `off` if it has none."""
        found = getattr(app, "graphics", None)
        return found if isinstance(found, cls) else cls("off")

    def widget_for(self, image: Image, *, columns: int, rows: int) -> Widget | None:
        """Return a widget that shows `image` in at most `columns` × `rows` cells; None if pictures are off.

        Sets its width and height. Pass a thumbnail: drawing a full-size photo takes 0.1 s.
        """
        if self.mode == "off" or not image.width or not image.height:
            return None
        widget = self._kind()(image)
        width, height = self.fit(image.width, image.height, columns=columns, rows=rows)
        widget.styles.width, widget.styles.height = width, height
        return widget

    def draw(self, image: Image, *, columns: int, rows: int) -> Drawing:
        """Prepare a drawing; may run in a thread. The first call imports the drawing packages. If the result has no
        strips, `widget_for` draws the picture."""
        from vlmtui.ui.terminal.halfcell_picture import halfcell_strips

        size = self.fit(image.width, image.height, columns=columns, rows=rows)
        if self.mode == "halfcell":
            return Drawing(image, size, halfcell_strips(image, *size))
        self._kind()
        return Drawing(image, size, [])

    def _kind(self) -> Callable[[Image], Widget]:
        if self.mode == "halfcell":
            from vlmtui.ui.terminal.halfcell_picture import HalfcellPicture

            return HalfcellPicture
        with _IMPORTING, _nothing_asked(self.cell):
            from vlmtui.ui.terminal.terminal_picture import KittyPicture, SixelPicture
        return KittyPicture if self.mode == "kitty" else SixelPicture

    def fit(self, width: int, height: int, *, columns: int, rows: int) -> tuple[int, int]:
        """Return the cells that an image of this size in pixels takes: aspect ratio kept, never enlarged."""
        columns, rows = min(columns, MAX_CELLS), min(rows, MAX_CELLS)
        cell_width, cell_height = self.cell
        scale = min(columns * cell_width / width, rows * cell_height / height, 1.0)
        return (
            max(1, min(columns, round(width * scale / cell_width))),
            max(1, min(rows, round(height * scale / cell_height))),
        )


@contextmanager
def _nothing_asked(cell: tuple[int, int]) -> Iterator[None]:
    """Keep textual-image from querying the terminal on import, since Textual reads the answers by then.

    It queries only if `sys.__stdout__` is a terminal; otherwise it takes the cell size from these two variables.
    """
    stdout = sys.__stdout__
    size = {"TEXTUAL_CELL_WIDTH": str(cell[0]), "TEXTUAL_CELL_HEIGHT": str(cell[1])}
    before = {name: os.environ.get(name) for name in size}
    sys.__stdout__ = io.StringIO()  # type: ignore[assignment,misc]
    os.environ.update(size)
    try:
        yield
    finally:
        sys.__stdout__ = stdout  # type: ignore[misc]
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
