"""Long text exactly as it is, line by line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import chop_cells
from textual import events, on
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

_NARROWEST = 8


class PromptText(ScrollView, can_focus=True):
    """Broken where the width ends and nowhere else, so that every space is seen. Only the lines in view are made."""

    DEFAULT_CSS = """
    PromptText {
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        overflow-x: hidden;
        overflow-y: auto;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Content] = ()
        self._rows: list[tuple[int, int, int]] = []
        """Of each row the line, and its first and last character in it."""
        self._width = 0

    @property
    def lines(self) -> Sequence[Content]:
        """What is shown, before it is broken."""
        return self._lines

    def show(self, lines: Sequence[Content]) -> None:
        """Show these; control characters have to be visible already."""
        self._lines = lines
        self._width = 0
        self._break()
        self.scroll_to(y=0, animate=False)

    @on(events.Resize)
    def _resized(self) -> None:
        self._break()

    def render_line(self, y: int) -> Strip:
        row, style, width = y + round(self.scroll_y), self.visual_style, self.size.width
        if row >= len(self._rows):
            return Strip.blank(width, style.rich_style)
        line, start, end = self._rows[row]
        strips = Visual.to_strips(self, self._lines[line][start:end], width, 1, style)
        return strips[0].extend_cell_length(width, style.rich_style) if strips else Strip.blank(width, style.rich_style)

    def _break(self) -> None:
        width = self.scrollable_content_region.width
        if width < 1 or width == self._width:
            return
        self._width = width
        self._rows = []
        for number, line in enumerate(self._lines):
            start = 0
            for part in _parts(line.plain, max(width, _NARROWEST)):
                self._rows.append((number, start, start + part))
                start += part
        self.virtual_size = Size(width, len(self._rows))
        self.refresh()


def _parts(text: str, width: int) -> list[int]:
    """How many characters of the text go into each row."""
    if text.isascii():
        full, rest = divmod(len(text), width)
        return [width] * full + ([rest] if rest or not full else [])
    return [len(part) for part in chop_cells(text, width)]
