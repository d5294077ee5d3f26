"""Markdown that no longer changes, in one widget."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from vlmtui.ui.markdown_lines import markdown_lines


class StillMarkdown(Widget):
    """Looks as Textual's `Markdown` does, which is dozens of widgets for a long answer. `source` has to be visible."""

    DEFAULT_CSS = "StillMarkdown { height: auto; width: 1fr; }"

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self._width = -1
        self._laid_out = Content()
        self._height = 0

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._lay_out(width)
        return self._height

    def render(self) -> Content:
        self._lay_out(self.content_size.width)
        return self._laid_out

    def _lay_out(self, width: int) -> None:
        if width != self._width:
            lines = markdown_lines(self.source, width)
            self._width, self._height = width, len(lines)
            self._laid_out = Content("\n").join(lines)
