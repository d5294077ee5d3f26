"""The table of a prompt's tokens."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.inspector.prompt_lines import MEDIA_STYLE, SPECIAL_STYLE
from vlmtui.ui.inspector.token_rows import TokenRow, TokenRows

_INDEX, _ID, _KIND = 15, 9, 8
_BREAKS = {"\n": "↵", "\t": "⇥", " ": "·"}
_KINDS = {"text": "", "special": "special", "media": "image"}

HEADING = f"{'index':>{_INDEX}} {'id':>{_ID}}  {'kind':<{_KIND}}text"


class TokenTable(ScrollView, can_focus=True):
    """One row for each token, an image's tokens folded into one. Only rows in view are rendered."""

    COMPONENT_CLASSES = {"token-table--highlighted"}
    DEFAULT_CSS = """
    TokenTable {
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        overflow-x: hidden;
        overflow-y: auto;
        .token-table--highlighted {
            color: $block-cursor-foreground;
            background: $block-cursor-background;
        }
    }
    """
    BINDINGS = bindings("token_table")

    highlighted: reactive[int] = reactive(0)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows = TokenRows()

    def show(self, rows: TokenRows) -> None:
        self.rows = rows
        self.highlighted = 0
        self._count()

    def text_of(self, row: int) -> str:
        """Return the text of a row."""
        return _line(self.rows[row]).plain

    def watch_highlighted(self, before: int, now: int) -> None:
        self.refresh_line(before - round(self.scroll_y))
        self.refresh_line(now - round(self.scroll_y))
        self.scroll_to_region(Region(0, now, 1, 1), animate=False, force=True)

    def validate_highlighted(self, row: int) -> int:
        return min(max(row, 0), max(len(self.rows) - 1, 0))

    def on_click(self, event: events.Click) -> None:
        row = event.y + round(self.scroll_y)
        if row < len(self.rows):
            if row == self.highlighted:
                self.action_unfold()
            self.highlighted = row

    def render_line(self, y: int) -> Strip:
        row, style, width = y + round(self.scroll_y), self.visual_style, self.size.width
        if row >= len(self.rows):
            return Strip.blank(width, style.rich_style)
        if row == self.highlighted:
            style = self.get_visual_style("token-table--highlighted")
        line = _line(self.rows[row]).truncate(max(width, 1), ellipsis=True)
        return Visual.to_strips(self, line, width, 1, style)[0].extend_cell_length(width, style.rich_style)

    def action_move(self, step: int) -> None:
        """Move the highlight by `step` tokens."""
        self.highlighted += step

    def action_page(self, step: int) -> None:
        """Move the highlight by a page."""
        self.highlighted += step * max(1, self.size.height - 1)

    def action_first(self) -> None:
        self.highlighted = 0

    def action_last(self) -> None:
        self.highlighted = len(self.rows) - 1

    def action_unfold(self) -> None:
        """Unfold or fold the highlighted image."""
        if len(self.rows):
            head = self.rows.toggle(self.highlighted)
            self._count()
            self.highlighted = head

    def _count(self) -> None:
        self.virtual_size = Size(0, len(self.rows))
        self.refresh()


def _line(row: TokenRow) -> Content:
    index = f"{row.first:,}" if row.first == row.last else f"{row.first:,}–{row.last:,}"
    mark = (" ▾" if row.is_open else " ▸") if row.is_head else ""
    style = {"text": "", "special": SPECIAL_STYLE, "media": MEDIA_STYLE if row.is_head else "$muted"}[row.kind]
    text = row.label if row.is_head else token_label(row.text)
    label = () if row.is_head or not row.label else (f"  {one_line(row.label)}", "$muted")
    return Content.assemble(
        (f"{index + mark:>{_INDEX}} ", "$muted"),
        f"{row.id:>{_ID}}  ",
        (f"{'' if row.is_inner else _KINDS[row.kind]:<{_KIND}}", "$muted"),
        (one_line(text), style),
        *([label] if label else []),
    )


def token_label(text: str) -> str:
    """Return a token's text on one line, with white space visible; hostile."""
    edges = len(text) - len(text.lstrip(" ")), len(text.rstrip(" "))
    return "".join(
        "·" if char == " " and not edges[0] <= at < edges[1] else _BREAKS.get(char, char) if char != " " else char
        for at, char in enumerate(text)
    )
