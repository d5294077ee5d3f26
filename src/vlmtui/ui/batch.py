"""The screen with the results of `vlmtui batch`: a table, and the highlighted item."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
from rich.cells import cell_len, set_cell_size
from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from vlmtui.domain.conversation import Attachment
from vlmtui.errors import VlmtuiError
from vlmtui.session.batch.media_desk import MediaDesk
from vlmtui.session.batch.results import ResultFilter, ResultTable, StoredResult
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.seeing import RoomImage
from vlmtui.text import one_line, visible
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.blocks import TextBlock
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import error_text, with_keys
from vlmtui.ui.widgets.attachment_view import AttachmentView
from vlmtui.ui.widgets.clicks import one_frame
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.row_list import RowList
from vlmtui.ui.widgets.thumbnails import DRAWER

_SETTLE_S = 0.1
"""Seconds that a row must be highlighted before its media are read, so that a held key skips it."""
_COLUMNS = 26
_NOTHING = PromptReport(title="")
_SHOWN_MAX = 2
"""Most media beside an answer; the image room shows all."""
_DETAIL_MAX = 4_000
"""Most characters of a question or answer below the table; the inspector shows all."""
_LINE, _ID, _STATE, _TOKENS = 7, 18, 6, 6
_HEADING = f" {'line':>{_LINE}}  {'id':<{_ID}} {'':<{_STATE}} {'tokens':>{_TOKENS}}  answer"
_COLOURS = {"failed": "$text-error", "wrong": "$text-warning", "right": "$text-success", "": ""}


class ResultRows(RowList[StoredResult]):
    """A row for each result. Only the rows in view are read from the file."""

    BINDINGS = bindings("batch_rows")

    def draw(self, index: int, width: int) -> list[Content]:
        try:
            return [row_content(self.rows[index])]
        except VlmtuiError as error:
            return [Content(one_line(error.message))]


class BatchScreen(Screen[None]):
    """Shows the results in a file, as they were when the screen was opened."""

    CSS_PATH = "batch.tcss"
    SCOPE = "batch_results"
    BINDINGS = bindings(SCOPE)

    def __init__(
        self,
        table: ResultTable,
        desk: MediaDesk,
        cache: Path,
        *,
        show_inspector: Callable[[PromptReport], object],
        show_images: Callable[[Sequence[RoomImage], int], object],
    ) -> None:
        """`table`: the results. `desk`: prepares their media. Both are closed when the screen closes. `cache`: the
        folder of thumbnails. `show_inspector`: shows the prompt and answer of a result. `show_images`: shows the images
        of a result, first the one with this index."""
        super().__init__()
        self.table = table
        self._cache = cache
        self._shown = ResultFilter.ALL
        self._show_inspector = show_inspector
        self._show_images = show_images
        self._desk = desk
        self._looked_at = _NOTHING
        """The highlighted item, once its media are staged."""
        self._settling: Timer | None = None

    def compose(self) -> ComposeResult:
        counts = self.table.counts()
        about = f"{counts.total():,} items · {counts['failed']:,} failed"
        if checked := counts["right"] + counts["wrong"]:
            about += f" · {counts['right']:,} of {checked:,} right ({counts['right'] / checked:.1%})"
        with Horizontal(id="top"):
            yield Static(f"Batch · {one_line(self.table.path.name)}", id="title", markup=False)
            yield Static(about, id="about", markup=False)
        yield Static(id="shown", markup=False)
        yield Static(_HEADING, id="heading", markup=False)
        yield ResultRows(id="rows")
        with Horizontal(id="details"):
            yield DocumentView(has_edge=False, id="item")
            yield Horizontal(id="media")
        yield FooterBar()

    def on_mount(self) -> None:
        self._rows.focus()
        self._show(ResultFilter.ALL)

    def on_unmount(self) -> None:
        self.table.close()
        DRAWER.submit(self._desk.close)  # after the medium that it may be preparing

    def on_resize(self) -> None:
        self._highlighted()

    @on(RowList.Highlighted)
    def _highlighted(self) -> None:
        result = None
        try:
            result = self._rows.current
            empty = with_keys(self.app, "Nothing to show. {batch_results.next} shows others.")
            told = Content(empty) if result is None else _details(result)
        except VlmtuiError as error:
            told = Content(error_text(self.app, error))
        self.query_one("#item", DocumentView).show(TextBlock(told))
        self._looked_at = _NOTHING
        self.workers.cancel_group(self, "media")
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(_SETTLE_S, partial(self._show_media, result))

    @work(group="media", exclusive=True)
    async def _show_media(self, result: StoredResult | None) -> None:
        """Show the media of an item beside its answer."""
        views: list[Widget] = []
        media: Sequence[Attachment] = ()
        if result is not None:
            try:
                media = await asyncio.get_running_loop().run_in_executor(DRAWER, self._desk.prepare_again, result)
                self._looked_at = _report(result, media)
            except VlmtuiError as error:
                views = [Static(one_line(error.message), markup=False)]
        if self not in self.app.screen_stack:  # it was closed meanwhile
            return
        place = self.query_one("#media")
        rows = place.content_size.height - 1
        for number, one in enumerate(media[:_SHOWN_MAX], 1):
            views.append(AttachmentView(one, number, cache=self._cache, columns=_COLUMNS, rows=rows, brief=True))
        with one_frame(self):
            await place.remove_children()
            await place.mount_all(views)

    @on(AttachmentView.Clicked)
    def _clicked(self, event: AttachmentView.Clicked) -> None:
        event.stop()
        self.action_image(event.at)

    def action_image(self, at: int = 0) -> None:
        found, result = self._looked_at, self._rows.current
        if result is not None and result.error is not None:
            found = msgspec.structs.replace(found, answer="")  # it is an error's message

        async def report() -> PromptReport:
            return found

        images = [RoomImage(one, number, report) for number, one in enumerate(found.attachments, 1)]
        if images:
            self._show_images(images, at)

    @on(RowList.Opened)
    def action_open(self) -> None:
        try:
            if (result := self._rows.current) is not None:
                self._show_inspector(_report(result, self._looked_at.attachments))
        except VlmtuiError as error:
            self.notify(error.message, severity="error", markup=False)

    def action_next(self) -> None:
        kinds = list(ResultFilter)
        self._show(kinds[(kinds.index(self._shown) + 1) % len(kinds)])

    def action_back(self) -> None:
        self.dismiss()

    def _show(self, shown: ResultFilter) -> None:
        self._shown = shown
        self.table.show(shown)
        self.query_one("#shown", Static).update(f"{len(self.table):,} shown: {shown.value}")
        self._rows.show(self.table)

    @property
    def _rows(self) -> ResultRows:
        return self.query_one(ResultRows)


def row_content(result: StoredResult) -> Content:
    """Return a row of the table. A long id is cut at its start: ids such as paths and numbers differ at the end."""
    item_id, state = one_line(result.id or ""), result.state
    if cell_len(item_id) > _ID:
        while cell_len(item_id) >= _ID:
            item_id = item_id[1:]
        item_id = f"…{item_id}"
    tokens = f"{result.usage.completion_tokens:,}" if result.error is None else ""
    said = result.answer if result.error is None else result.error.message.removeprefix(f"Line {result.line}: ")
    return Content.assemble(
        (f"{result.line:>{_LINE},}  ", "$muted"),
        set_cell_size(item_id, _ID),
        " ",
        (f"{state:<{_STATE}} ", _COLOURS[state]),
        (f"{tokens:>{_TOKENS}}  ", "$muted"),
        one_line(said),
    )


def _report(result: StoredResult, media: Sequence[Attachment]) -> PromptReport:
    answer, prompt = result.answer if result.error is None else result.error.message, result.prompt or ""
    return PromptReport(
        title=one_line(result.title),
        prompt_text=prompt,
        answer=answer,
        attachments=tuple(media),
        model_name=result.model,
    )


def _details(result: StoredResult) -> Content:
    colour = _COLOURS[result.state]
    parts: list[Content | str | tuple[str, str]] = [(visible(result.question[:_DETAIL_MAX]), "$muted"), "\n"]
    if result.error is not None:
        parts.append((visible(result.error.message), colour))
        parts += [f"\n{visible(more[:_DETAIL_MAX])}" for more in (result.error.hint, result.error.detail) if more]
    else:
        parts.append(visible(result.answer[:_DETAIL_MAX]))
    if result.expect is not None:
        parts += ["\n", (f"{result.state}, expected: ", colour), visible(result.expect.text[:_DETAIL_MAX])]
    return Content.assemble(*parts)
