"""The results of a batch, running or done: filter, order, search, and each item in the inspector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input, Static

from vlmtui.config.duration import describe_duration
from vlmtui.errors import VlmtuiError
from vlmtui.session.batch.formats import target_of
from vlmtui.session.batch.records import BatchRecord, BatchState
from vlmtui.session.batch.result_table import ResultFilter, ResultOrder, ResultTable, TableLook
from vlmtui.session.batch.results import StoredResult
from vlmtui.session.prompt_report import PromptReport
from vlmtui.text import one_line, visible
from vlmtui.ui.actions import bindings, line_bindings
from vlmtui.ui.batch.result_rows import HEADING, ResultRows, state_of
from vlmtui.ui.keys import error_text, with_keys
from vlmtui.ui.terminal.key_queue import run_before_keys
from vlmtui.ui.widgets.footer_bar import FooterBar

_DETAIL_MAX = 4_000
"""Most characters of a question or answer below the table; the inspector has all."""


class RunControl(Protocol):
    """What can be done with batches and their items."""

    def read_state(self, output: Path) -> tuple[BatchRecord, BatchState] | None:
        """Return what is known of the batch that writes a file; None: nothing. Blocking."""

    def pause_or_resume(self, output: Path) -> None:
        """Pause a batch that runs; go on with one that does not."""

    def ask_again(self, output: Path, result: StoredResult) -> None:
        """Ask one item again."""

    def open_item(self, output: Path, result: StoredResult) -> None:
        """Put an item into a new conversation."""

    def compare_item(self, output: Path, result: StoredResult, look: TableLook) -> None:
        """Put an item into a new conversation and compare it there; then show the table again as it looks now."""


class BatchSearch(Input):
    """The words that results must have."""

    BINDINGS = [*bindings("batch_search"), *line_bindings()]

    def on_mount(self) -> None:
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        return one_line(value)


class BatchScreen(Screen[None]):
    """The results that a table has, and those that a running batch appends."""

    CSS_PATH = "screen.tcss"
    SCOPE = "batch_results"
    BINDINGS = bindings(SCOPE)

    @dataclass
    class Arranged(Message):
        """The rows are those of the file, and of what is to be shown."""

        from_top: bool

    @dataclass
    class Failed(Message):
        """The file cannot be read."""

        error: VlmtuiError

    def __init__(
        self,
        table: ResultTable,
        runs: RunControl,
        *,
        look_again: float,
        show_inspector: Callable[[PromptReport], object],
        look: TableLook | None = None,
    ) -> None:
        """`table` is closed with the screen. look_again: seconds between two looks at a file that may be growing.
        look: how it was when it was shown before."""
        super().__init__()
        self.table = table
        self._first_row = 0
        if look is not None:
            table.shown, table.order, table.text = look.shown, look.order, look.text
            self._first_row = look.row
        self._runs = runs
        self._run = ""
        """What is known of the batch, for people."""
        self.is_read = False
        """Whether the whole file has been read once."""
        self._look_again = look_again
        self._show_inspector = show_inspector
        self._reading = asyncio.Lock()

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(f"Batch · {one_line(self.table.path.name)}", id="title", markup=False)
            yield Static("reading …", id="about", markup=False)
        yield Static(id="shown", markup=False)
        yield BatchSearch(id="search", placeholder="words of the id, question, answer or error", compact=True)
        yield Static(HEADING, id="heading", markup=False)
        yield ResultRows(self.table, id="rows")
        with VerticalScroll(id="item", can_focus=False):
            yield Static(id="details", markup=False)
        yield FooterBar()

    def on_mount(self) -> None:
        if self.table.text:
            search = self.query_one(BatchSearch)
            search.add_class("-open")
            search.value = self.table.text
        self._rows.focus()
        run_before_keys(self, partial(self._read, from_top=True))
        self.set_interval(self._look_again, self._look)

    def on_unmount(self) -> None:
        self.table.close()

    # -- reading

    @work(group="look")
    async def _look(self) -> None:
        """Read what a running batch has appended, unless it is being read: on a busy machine that may take longer than
        until the next look, which must not end it."""
        if self.is_read and not self._reading.locked():
            await self._read(from_top=False)

    async def _read(self, *, from_top: bool) -> None:
        async with self._reading:
            try:
                changed = await asyncio.to_thread(self._take, from_top)
            except VlmtuiError as error:
                self.post_message(self.Failed(error))
                return
        self.is_read = True
        if changed or from_top:
            self.post_message(self.Arranged(from_top))

    def _take(self, is_other: bool) -> bool:
        """Read new lines and arrange the rows, and read what the batch is doing; return whether there is anything
        new."""
        found = self._runs.read_state(self.table.path)
        before, self._run = self._run, "" if found is None else run_text(*found)
        self.table.read_more()
        is_new = not self.table.is_current
        if is_new or is_other:
            self.table.arrange()
        return is_new or before != self._run

    @on(Failed)
    def _failed(self, event: Failed) -> None:
        self.query_one("#about", Static).update("")
        self.query_one("#details", Static).update(error_text(self.app, event.error))

    @on(Arranged)
    def _arranged(self, event: Arranged) -> None:
        counts = self.table.counts()
        about = [f"{counts.items:,} items", f"{counts.errors:,} error{'s' * (counts.errors != 1)}"]
        if self._run:
            about.insert(0, self._run)
        if counts.expected:
            right = counts.expected - counts.wrong
            about.append(f"{right:,} of {counts.expected:,} right ({right / counts.expected:.1%})")
        self.query_one("#about", Static).update(" · ".join(about))
        table = self.table
        shown = [f"{len(table):,} shown: {table.shown.value}", table.order.value]
        if table.text:
            shown.append(f"with “{one_line(table.text)}”")
        self.query_one("#shown", Static).update(" · ".join(shown))
        self._rows.results_changed(from_top=event.from_top)
        if event.from_top and self._first_row:
            self._rows.highlighted, self._first_row = self._first_row, 0

    # -- the highlighted item

    @on(ResultRows.Highlighted)
    def _highlighted(self) -> None:
        result = self._rows.result
        empty = with_keys(self.app, "Nothing to show. {batch_results.next} shows others.")
        self.query_one("#details", Static).update(Content(empty) if result is None else _details(result))

    @on(ResultRows.Opened)
    def action_open(self) -> None:
        """Show the highlighted item in the inspector."""
        if (result := self._rows.result) is not None:
            self._show_inspector(item_report(result))

    def action_copy(self) -> None:
        """Copy the answer, through the terminal (OSC 52)."""
        if (result := self._rows.result) is not None:
            self.app.copy_to_clipboard(result.answer)
            self.notify(f"Copied {len(result.answer):,} characters.", markup=False)

    def action_compare(self) -> None:
        """Compare the highlighted item with a raw prompt, in a new conversation."""
        if (result := self._rows.result) is not None:
            table = self.table
            look = TableLook(table.shown, table.order, table.text, self._rows.highlighted)
            self._runs.compare_item(table.path, result, look)

    def action_edit(self) -> None:
        """Put the highlighted item into a new conversation."""
        if (result := self._rows.result) is not None:
            self._runs.open_item(self.table.path, result)

    def action_run(self) -> None:
        """Ask the highlighted item again."""
        if (result := self._rows.result) is not None:
            self._runs.ask_again(self.table.path, result)

    def action_pause(self) -> None:
        """Pause the batch, or go on with it."""
        self._runs.pause_or_resume(self.table.path)

    # -- which rows

    def action_show(self, step: int) -> None:
        """Show the next kind of results."""
        kinds = list(ResultFilter)
        self.table.shown = kinds[(kinds.index(self.table.shown) + step) % len(kinds)]
        self._arrange()

    def action_order(self) -> None:
        """Use the next order."""
        orders = list(ResultOrder)
        self.table.order = orders[(orders.index(self.table.order) + 1) % len(orders)]
        self._arrange()

    def action_search(self) -> None:
        search = self.query_one(BatchSearch)
        search.add_class("-open")
        search.focus()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        self._rows.focus()
        self._find(event.value.strip())

    def action_back(self) -> None:
        """Clear the search, or leave."""
        search = self.query_one(BatchSearch)
        if not search.has_class("-open"):
            self.dismiss()
            return
        search.remove_class("-open")
        search.value = ""
        self._rows.focus()
        self._find("")

    def _find(self, text: str) -> None:
        if text != self.table.text:
            self.table.text = text
            self._arrange()

    def _arrange(self) -> None:
        run_before_keys(self, partial(self._read, from_top=True))

    @property
    def _rows(self) -> ResultRows:
        return self.query_one(ResultRows)


def run_text(record: BatchRecord, state: BatchState) -> str:
    """Return what a batch is doing, in a few words."""
    if state is BatchState.FAILED:
        return f"failed: {one_line(record.error)}"
    counts = record.progress
    if state is not BatchState.RUNNING:
        return state.value
    if not counts.elapsed_s:
        return "running: the engine is not ready yet"
    words = [f"running, {(counts.answered + counts.failed) / counts.elapsed_s:.1f} items/s"]
    if (left_s := counts.left_s) is not None:
        words.append(f"~{describe_duration(max(1, round(left_s)))} left")
    return ", ".join(words)


def item_report(result: StoredResult) -> PromptReport:
    """Return what a line tells of an item, for the inspector."""
    title = f"line {result.line:,}" if result.id is None else f"item {one_line(result.id)}"
    answer = result.answer if result.error is None else result.error.message
    return PromptReport(title=title, prompt_text=result.prompt or "", answer=answer)


def _details(result: StoredResult) -> Content:
    word, colour = state_of(result)
    parts: list[Content | str | tuple[str, str]] = [(visible(result.question[:_DETAIL_MAX]), "$muted"), "\n"]
    if result.error is not None:
        parts.append((visible(result.error.message), colour))
        parts += [f"\n{visible(more[:_DETAIL_MAX])}" for more in (result.error.hint, result.error.detail) if more]
    else:
        parts.append(visible(result.answer[:_DETAIL_MAX]))
    if result.expect is not None:
        parts += ["\n", (f"{word}, expected: ", colour), visible(target_of(result.expect)[:_DETAIL_MAX])]
    return Content.assemble(*parts)
