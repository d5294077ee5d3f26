"""Lists that draw their own lines: a list of rows of one line each, one of them highlighted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

T = TypeVar("T")


def entry_at(entries: Sequence[T], highlighted: int | None) -> T | None:
    """Return the entry at `highlighted`; None if nothing is highlighted or the list is shorter now."""
    return entries[highlighted] if highlighted is not None and highlighted < len(entries) else None


class RowList(ScrollView, can_focus=True):
    """Draws only the rows in view. A subclass has the keys."""

    COMPONENT_CLASSES = {"row-list--highlighted"}
    DEFAULT_CSS = """
    RowList {
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

    @dataclass
    class Highlighted(Message):
        """Another row is highlighted."""

        row: int

    @dataclass
    class Opened(Message):
        """The highlighted row was clicked."""

    highlighted: reactive[int] = reactive(0)

    def __init__(self, count: Callable[[], int], line: Callable[[int], Content], *, id: str | None = None) -> None:
        """`count` returns the number of rows, `line` the content of one; call `rows_changed` when either changes."""
        super().__init__(id=id)
        self._count, self._line = count, line

    def rows_changed(self) -> None:
        """Draw the rows as they are now."""
        self.virtual_size = Size(0, self._count())
        self.refresh()

    def watch_highlighted(self, before: int, now: int) -> None:
        self.refresh_line(before - round(self.scroll_y))
        self.refresh_line(now - round(self.scroll_y))
        self.scroll_to_region(Region(0, now, 1, 1), animate=False, force=True)
        self.post_message(self.Highlighted(now))

    def validate_highlighted(self, row: int) -> int:
        return min(max(row, 0), max(self._count() - 1, 0))

    def on_click(self, event: events.Click) -> None:
        row = event.y + round(self.scroll_y)
        if row < self._count():
            if row == self.highlighted:
                self.post_message(self.Opened())
            self.highlighted = row

    def render_line(self, y: int) -> Strip:
        row, style, width = y + round(self.scroll_y), self.visual_style, self.size.width
        if row >= self._count():
            return Strip.blank(width, style.rich_style)
        if row == self.highlighted:
            style = self.get_visual_style("row-list--highlighted")
        in_view = max(self.scrollable_content_region.width, 1)
        line = self._line(row).truncate(in_view, ellipsis=True)
        return Visual.to_strips(self, line, width, 1, style)[0].extend_cell_length(width, style.rich_style)

    def action_move(self, way: str) -> None:
        """Move the highlight: `up`, `down`, `page_up`, `page_down`, `first` or `last`."""
        self.highlighted = moved(self.highlighted, way, self._count(), page=self.size.height - 1)


def moved(index: int, way: str, count: int, *, page: int, wraps: bool = False) -> int:
    """Return the row to highlight after a move from row `index` of `count`. `way`: `up`, `down`, `page_up`,
    `page_down`, `first` or `last`; `page`: the rows of a page; `wraps`: whether `up` on the first row goes to the
    last, and `down` back."""
    page = max(1, page)
    steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "first": -count, "last": count}
    if wraps and way in ("up", "down"):
        return (index + steps[way]) % count
    return min(max(0, index + steps[way]), count - 1)
