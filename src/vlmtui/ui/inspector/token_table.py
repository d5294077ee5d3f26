"""The table of a prompt's tokens."""

from __future__ import annotations

from textual.content import Content

from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.inspector.prompt_lines import MEDIA_STYLE, SPECIAL_STYLE
from vlmtui.ui.inspector.token_rows import TokenRow, TokenRows
from vlmtui.ui.widgets.row_list import RowList

_INDEX, _ID, _KIND = 15, 9, 8
_BREAKS = {"\n": "↵", "\t": "⇥", " ": "·"}
_KINDS = {"text": "", "special": "special", "media": "image"}

HEADING = f"{'index':>{_INDEX}} {'id':>{_ID}}  {'kind':<{_KIND}}text"


class TokenTable(RowList):
    """One row for each token, an image's tokens folded into one."""

    BINDINGS = bindings("token_table")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(lambda: len(self.rows), lambda row: _content(self.rows[row]), id=id)
        self.rows = TokenRows()

    def show(self, rows: TokenRows) -> None:
        self.rows = rows
        self.highlighted = 0
        self.rows_changed()

    def text_of(self, row: int) -> str:
        """Return the text of a row."""
        return _content(self.rows[row]).plain

    def on_row_list_opened(self) -> None:
        self.action_unfold()

    def action_unfold(self) -> None:
        """Unfold or fold the highlighted image."""
        if len(self.rows):
            head = self.rows.toggle(self.highlighted)
            self.rows_changed()
            self.highlighted = head


def _content(row: TokenRow) -> Content:
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
