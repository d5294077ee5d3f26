"""A widget for long text, shown exactly, line by line."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from textual import events, on
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from vlmtui.ui.document.blocks import row_lengths

_NARROWEST = 8
_BAR, _NO_BAR = Content.styled("▌ ", "$warning"), Content.styled("  ", "$faint")


class PromptText(ScrollView, can_focus=True):
    """Wraps at the width, not at words, so that every space is visible; a run with its own style (a special token,
    an image) moves to the next row whole if it fits there. Only rows in view are rendered."""

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
        """For each row the line, and its first and last character in it."""
        self._width = 0
        self._barred: Collection[int] | None = None

    @property
    def lines(self) -> Sequence[Content]:
        """The lines shown, before wrapping."""
        return self._lines

    @property
    def text_width(self) -> int:
        """Cells of a row of text."""
        return max(self.scrollable_content_region.width - self._edge, _NARROWEST)

    def show(self, lines: Sequence[Content], *, barred: Collection[int] | None = None) -> None:
        """Show these lines; control characters must be visible already. `barred` are the numbers of the lines with a
        bar at the left edge; None: no line has one, nor room for it."""
        self._lines = lines
        self._barred = barred
        self._rows = []
        self._width = 0
        self._break()
        self.scroll_to(y=0, animate=False)

    def scroll_to_line(self, line: int) -> None:
        """Scroll so that a line, from 0, is in the upper half."""
        row = next((number for number, (at, _, _) in enumerate(self._rows) if at >= line), 0)
        self.scroll_to(y=max(0, row - self.size.height // 3), animate=False)

    @on(events.Resize)
    def _resized(self) -> None:
        self._break()

    def render_line(self, y: int) -> Strip:
        row, style, width = y + round(self.scroll_y), self.visual_style, self.size.width
        if row >= len(self._rows):
            return Strip.blank(width, style.rich_style)
        line, start, end = self._rows[row]
        content = self._lines[line][start:end]
        if self._barred is not None:
            content = Content.assemble(_BAR if line in self._barred else _NO_BAR, content)
        strips = Visual.to_strips(self, content, width, 1, style)
        return strips[0].extend_cell_length(width, style.rich_style) if strips else Strip.blank(width, style.rich_style)

    @property
    def _edge(self) -> int:
        return 0 if self._barred is None else _BAR.cell_length

    def _break(self) -> None:
        width = self.scrollable_content_region.width
        if width < 1 or width == self._width:
            return
        self._width = width
        self._rows = []
        for number, line in enumerate(self._lines):
            start = 0
            for part in row_lengths(line, self.text_width):
                self._rows.append((number, start, start + part))
                start += part
        self.virtual_size = Size(width, len(self._rows))
        self.refresh()
