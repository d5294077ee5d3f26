"""The rows of a batch's results. Only those in view are read and drawn."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from vlmtui.errors import VlmtuiError
from vlmtui.session.batch.result_table import ResultTable
from vlmtui.session.batch.results import StoredResult
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings

_LINE, _ID, _STATE, _TOKENS, _SECONDS = 8, 18, 9, 7, 8
HEADING = f"{'line':>{_LINE}}  {'id':<{_ID}} {'':<{_STATE}} {'tokens':>{_TOKENS}} {'seconds':>{_SECONDS}}  answer"


class ResultRows(ScrollView, can_focus=True):
    """One row a result."""

    COMPONENT_CLASSES = {"result-rows--highlighted"}
    DEFAULT_CSS = """
    ResultRows {
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        overflow-x: hidden;
        overflow-y: auto;
        .result-rows--highlighted {
            color: $block-cursor-foreground;
            background: $block-cursor-background;
        }
    }
    """
    BINDINGS = bindings("batch_rows")

    @dataclass
    class Highlighted(Message):
        """Another row is highlighted."""

        row: int

    @dataclass
    class Opened(Message):
        """The highlighted row was clicked."""

    highlighted: reactive[int] = reactive(0)

    def __init__(self, table: ResultTable, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.table = table

    def rows_changed(self, *, from_top: bool = False) -> None:
        """Draw the table's rows as they are now. `from_top`: they are other ones, so the first is highlighted."""
        self.virtual_size = Size(0, len(self.table))
        self.highlighted = 0 if from_top else self.highlighted
        if from_top:
            self.scroll_to(y=0, animate=False, force=True)
        self.refresh()
        self.post_message(self.Highlighted(self.highlighted))

    @property
    def result(self) -> StoredResult | None:
        """The highlighted result; None if there is none, or if it cannot be read."""
        try:
            return self.table[self.highlighted] if self.highlighted < len(self.table) else None
        except VlmtuiError:
            return None

    def watch_highlighted(self, before: int, now: int) -> None:
        self.refresh_line(before - round(self.scroll_y))
        self.refresh_line(now - round(self.scroll_y))
        self.scroll_to_region(Region(0, now, 1, 1), animate=False, force=True)
        self.post_message(self.Highlighted(now))

    def validate_highlighted(self, row: int) -> int:
        return min(max(row, 0), max(len(self.table) - 1, 0))

    def on_click(self, event: events.Click) -> None:
        row = event.y + round(self.scroll_y)
        if row < len(self.table):
            if row == self.highlighted:
                self.post_message(self.Opened())
            self.highlighted = row

    def render_line(self, y: int) -> Strip:
        row, style, width = y + round(self.scroll_y), self.visual_style, self.size.width
        if row >= len(self.table):
            return Strip.blank(width, style.rich_style)
        if row == self.highlighted:
            style = self.get_visual_style("result-rows--highlighted")
        try:
            line = _line(self.table[row], is_plain=row == self.highlighted)
        except VlmtuiError as error:
            line = Content(one_line(error.message))
        line = line.truncate(max(width, 1), ellipsis=True)
        return Visual.to_strips(self, line, width, 1, style)[0].extend_cell_length(width, style.rich_style)

    def action_move(self, step: int) -> None:
        """Move the highlight by `step` rows."""
        self.highlighted += step

    def action_page(self, step: int) -> None:
        """Move the highlight by a page."""
        self.highlighted += step * max(1, self.size.height - 1)

    def action_first(self) -> None:
        self.highlighted = 0

    def action_last(self) -> None:
        self.highlighted = len(self.table) - 1


def state_of(result: StoredResult) -> tuple[str, str]:
    """Return a word for what became of an item, and its colour."""
    if result.error is not None:
        return "error", "$error"
    if result.correct is None:
        return "", ""
    return ("right", "$success") if result.correct else ("wrong", "$warning")


def _line(result: StoredResult, *, is_plain: bool) -> Content:
    """Return a row. `is_plain`: without colours of its own."""
    word, colour = state_of(result)
    seconds = "" if result.timings.total_s is None else f"{result.timings.total_s:.2f}"
    tokens = f"{result.usage.completion_tokens:,}" if result.error is None else ""
    said = result.answer if result.error is None else result.error.message
    muted = "" if is_plain else "$muted"
    return Content.assemble(
        (f"{result.line:>{_LINE},}  ", muted),
        Content(one_line(result.id or "")).truncate(_ID, ellipsis=True, pad=True),
        " ",
        (f"{word:<{_STATE}} ", "" if is_plain else colour),
        (f"{tokens:>{_TOKENS}} {seconds:>{_SECONDS}}  ", muted),
        one_line(said),
    )
