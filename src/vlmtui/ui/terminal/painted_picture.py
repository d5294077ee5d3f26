"""A picture that the terminal itself draws."""

from __future__ import annotations

from PIL.Image import Image
from textual.strip import Strip
from textual.widget import Widget

from vlmtui.ui.terminal.painter import Painter
from vlmtui.ui.terminal.placeholders import CELLS_MAX, placeholder_strip


class PaintedPicture(Widget):
    """Placeholders of a picture, which fills the widget."""

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
