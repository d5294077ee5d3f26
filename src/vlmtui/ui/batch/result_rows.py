"""The rows of a batch's results. Only those in view are read and drawn."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from vlmtui.errors import VlmtuiError
from vlmtui.session.batch.result_table import ResultTable
from vlmtui.session.batch.results import StoredResult
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.widgets.row_list import RowList

_LINE, _ID, _STATE, _TOKENS, _SECONDS = 7, 18, 5, 6, 7
HEADING = f"{'line':>{_LINE}}  {'id':<{_ID}} {'':<{_STATE}} {'tokens':>{_TOKENS}} {'seconds':>{_SECONDS}}  answer"


class ResultRows(RowList):
    """One row a result."""

    BINDINGS = bindings("batch_rows")

    def __init__(self, table: ResultTable, *, id: str | None = None) -> None:
        super().__init__(lambda: len(table), self._row, id=id)
        self.table = table

    def results_changed(self, *, from_top: bool) -> None:
        """Draw the table's rows as they are now. `from_top`: they are other ones, so the first is highlighted."""
        self.rows_changed()
        self.highlighted = 0 if from_top else self.highlighted
        if from_top:
            self.scroll_to(y=0, animate=False, force=True)
        self.post_message(self.Highlighted(self.highlighted))

    @property
    def result(self) -> StoredResult | None:
        """The highlighted result; None if there is none, or if it cannot be read."""
        try:
            return self.table[self.highlighted] if self.highlighted < len(self.table) else None
        except VlmtuiError:
            return None

    def _row(self, row: int) -> Content:
        try:
            return row_content(self.table[row], is_plain=row == self.highlighted)
        except VlmtuiError as error:
            return Content(one_line(error.message))


def state_of(result: StoredResult) -> tuple[str, str]:
    """Return a word for what became of an item, and its colour."""
    if result.error is not None:
        return "error", "$error"
    if result.correct is None:
        return "", ""
    return ("right", "$success") if result.correct else ("wrong", "$warning")


def row_content(result: StoredResult, *, is_plain: bool) -> Content:
    """Return what a row shows. `is_plain`: without colours of its own."""
    word, colour = state_of(result)
    seconds = "" if result.timings.total_s is None else f"{result.timings.total_s:.2f}"
    tokens = f"{result.usage.completion_tokens:,}" if result.error is None else ""
    said = result.answer if result.error is None else result.error.message.removeprefix(f"Line {result.line}: ")
    muted = "" if is_plain else "$muted"
    return Content.assemble(
        (f"{result.line:>{_LINE},}  ", muted),
        Content(_ending(one_line(result.id or ""), _ID)).truncate(_ID, pad=True),
        " ",
        (f"{word:<{_STATE}} ", "" if is_plain else colour),
        (f"{tokens:>{_TOKENS}} {seconds:>{_SECONDS}}  ", muted),
        one_line(said),
    )


def _ending(text: str, width: int) -> str:
    """Return the end of a text that is too wide: ids differ there, as paths and numbers do."""
    if cell_len(text) <= width:
        return text
    shown = text[-width:]
    while cell_len(shown) >= width:
        shown = shown[1:]
    return f"…{shown}"
