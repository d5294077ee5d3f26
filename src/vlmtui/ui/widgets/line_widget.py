"""A widget of styled lines."""

from __future__ import annotations

from abc import abstractmethod

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from vlmtui.ui.widgets.markdown_lines import Lines


class LineWidget(Widget):
    """As tall as its lines. Call `lay_out_again` after they change."""

    DEFAULT_CSS = "LineWidget { height: auto; width: 1fr; }"

    def __init__(self, *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._lines: Lines = []
        self._lines_width = -1

    @abstractmethod
    def lines_of(self, width: int) -> Lines:
        """Return the lines, each at most `width` cells wide."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines_at(width))

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        """As Textual's, without a second layout after each growth, which would find everything in its place."""
        return super()._size_updated(size, virtual_size, container_size, layout=False)

    def render(self) -> Content:
        return Content("\n").join(self._lines_at(self.content_size.width))

    def lay_out_again(self) -> None:
        """Lay out and repaint after the lines changed."""
        self._lines_width = -1
        self.refresh(layout=True)

    def _lines_at(self, width: int) -> Lines:
        if width != self._lines_width:
            self._lines, self._lines_width = self.lines_of(width), width
        return self._lines
