"""A widget with a list of rows, one of them highlighted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from rich.segment import Segment
from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

T = TypeVar("T")
_MARK = "▌"
"""Marks the highlighted row, also without colours."""


class RowList(ScrollView, Generic[T], can_focus=True):
    """Draws only the rows in view. A click highlights a row; a click on the highlighted row opens it. Subclasses define
    `draw`."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES = {"row-list--highlighted"}
    DEFAULT_CSS = """
    RowList {
        height: 1fr;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        overflow-x: hidden;
        overflow-y: auto;
        .row-list--highlighted {
            color: $block-cursor-foreground;
            background: $block-cursor-background;
        }
    }
    """
    ROW_LINES = 1
    """Screen lines of each row."""

    class Highlighted(Message):
        """Another row is highlighted, or other rows are shown."""

    class Opened(Message):
        """The highlighted row was clicked."""

    highlighted: reactive[int] = reactive(0, repaint=False)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: Sequence[T] = ()
        self._empty = ""

    def draw(self, index: int, width: int) -> list[Content]:
        """Return the lines of a row. What is wider than `width` cells is cut off."""
        raise NotImplementedError

    @property
    def current(self) -> T | None:
        """The highlighted row; None if there are none."""
        return self.rows[self.highlighted] if self.highlighted < len(self.rows) else None

    def show(self, rows: Sequence[T], *, highlight: int = 0, empty: str = "") -> None:
        """Show these rows, and highlight the one with index `highlight`. `empty`: the text if there are no rows."""
        self.rows, self._empty = rows, empty
        self.virtual_size = Size(0, self.ROW_LINES * len(rows))
        self.set_reactive(RowList.highlighted, self.validate_highlighted(highlight))
        self.call_after_refresh(self._keep_in_view)
        self.refresh()
        self.post_message(self.Highlighted())

    def validate_highlighted(self, index: int) -> int:
        return max(min(index, len(self.rows) - 1), 0)

    def watch_highlighted(self, before: int, now: int) -> None:
        for index in (before, now):
            self.refresh_lines(index * self.ROW_LINES, self.ROW_LINES)
        self._keep_in_view()
        self.post_message(self.Highlighted())

    def on_click(self, event: events.Click) -> None:
        index = (event.y + round(self.scroll_y)) // self.ROW_LINES
        if index < len(self.rows):
            if index == self.highlighted:
                self.post_message(self.Opened())
            self.highlighted = index

    def render_line(self, y: int) -> Strip:
        index, part = divmod(y + round(self.scroll_y), self.ROW_LINES)
        width, style = self.scrollable_content_region.width, self.visual_style
        if not self.rows:
            return self._empty_line(y, width)
        if index >= len(self.rows):
            return Strip.blank(width, style.rich_style)
        if index == self.highlighted:
            style = self.get_visual_style("row-list--highlighted")
        room = max(1, width - 2)
        line = self.draw(index, room)[part]
        line = line if line.cell_length <= room else line.truncate(room, ellipsis=True)
        line = Content.assemble((_MARK, "$text-accent") if index == self.highlighted else " ", line)
        # Not `Visual.to_strips`, which also handles wrapping, links and selections, and is slower.
        pieces = line.render(style, end="", parse_style=self.app.stylesheet.parse_style)
        strip = Strip([Segment(text, of_text.rich_style) for text, of_text in pieces])
        return strip.adjust_cell_length(width, style.rich_style)

    def action_move(self, way: str) -> None:
        """Move the highlight: `up`, `down`, `page_up`, `page_down`, `first` or `last`."""
        count, page = len(self.rows), max(1, self.scrollable_content_region.height // self.ROW_LINES)
        steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "first": -count, "last": count}
        self.highlighted += steps[way]

    def _empty_line(self, y: int, width: int) -> Strip:
        style = self.visual_style
        text = Content.styled(self._empty, "$muted")
        lines = Visual.to_strips(self, text, max(1, width - 2), None, style)
        line = lines[y] if y < len(lines) else Strip([])
        return Strip.join([Strip.blank(1, style.rich_style), line]).adjust_cell_length(width, style.rich_style)

    def _keep_in_view(self) -> None:
        region = Region(0, self.highlighted * self.ROW_LINES, 1, self.ROW_LINES)
        self.scroll_to_region(region, animate=False, force=True)
