"""The list of conversations: search, open, rename, pin, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input, Static

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.conversation_list import ConversationList, Entry
from vlmtui.store.records import ConversationId, StoredTurn
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.conversations.conversation_list import ConversationListView, entry_title
from vlmtui.ui.conversations.conversation_preview import preview
from vlmtui.ui.conversations.inputs import RenameInput, SearchInput
from vlmtui.ui.conversations.swatches import Swatch, make_swatches
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import error_text, with_keys, with_remedy
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.terminal.key_queue import run_before_keys
from vlmtui.ui.widgets.footer_bar import FooterBar

_WIDE = 110
"""Fewest columns for the preview."""
_SEARCH_AFTER_S = 0.15
"""Seconds without typing before the search starts."""
_PREVIEW_AFTER_S = 0.08
_EMPTY = "No conversations yet. They are stored automatically. {conversation_list.back} goes back."


class ConversationsScreen(Screen[None]):
    """A search field, the conversations below it, and a preview beside them."""

    CSS_PATH = "screen.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]
    SCOPE = "conversation_list"
    BINDINGS = bindings(SCOPE)

    @dataclass
    class ConversationChosen(Message):
        """Open this conversation."""

        id: ConversationId

    class NewChatWanted(Message):
        """Start a new conversation."""

    @dataclass
    class ListChanged(Message):
        """The list changed; `highlight`: the conversation to highlight, `searched`: the search that it is for."""

        highlight: ConversationId | None = None
        searched: str = ""

    @dataclass
    class StoreFailed(Message):
        """A store operation failed."""

        error: VlmtuiError

    @dataclass
    class PreviewRead(Message):
        """A conversation's preview was read."""

        entry: Entry
        turns: Sequence[StoredTurn]

    @dataclass
    class SwatchesMade(Message):
        """Small pictures, by their attachment's hash."""

        swatches: dict[str, Swatch]

    def __init__(self, store: AsyncStore, *, cache: Path, open_id: ConversationId | None = None) -> None:
        """`cache`: the folder of the thumbnails. `open_id`: the conversation of the chat below, if any."""
        super().__init__()
        self.conversations = ConversationList(store, open_id)
        self._cache = cache
        self._swatches: dict[str, Swatch] = {}
        self._swatches_asked: set[str] = set()
        self._search_timer: Timer | None = None
        self._open_found = False
        """Whether Enter was pressed before the search finished."""
        self._moved_in = ""
        """The search in which the highlight was moved."""
        self._preview_timer: Timer | None = None
        self._renamed: Entry | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static("vlmtui", id="brand")
            yield Static("Conversations", id="subtitle")
            yield Static(id="count", markup=False)
        hint = with_keys(self.app, "{conversation_list.search} searches all messages")
        yield SearchInput(id="search", placeholder=hint, compact=True)
        with Horizontal(id="body"):
            with Container(id="conversations"):
                pictures = self._swatches if self._has_pictures else None
                yield ConversationListView(pictures, open_id=self.conversations.open_id, id="list")
                yield Static(id="nothing", markup=False)
                yield RenameInput(id="rename", compact=True)
            yield DocumentView(follows=True, from_top=True, has_edge=False, id="side")
        yield FooterBar()

    def on_mount(self) -> None:
        self._view.focus()
        run_before_keys(self, partial(self._find, ""))

    @property
    def _side(self) -> DocumentView:
        return self.query_one("#side", DocumentView)

    # -- results of the store

    @on(ListChanged)
    def _list_changed(self, event: ListChanged) -> None:
        found, highlight = self.conversations, event.highlight
        if event.searched and event.searched != self._moved_in and found.entries:
            highlight = found.entries[0].id
        self._view.show(found.entries, highlight=highlight)
        count = f"{len(found.entries):,}{'' if found.is_whole else '+'}"
        self.query_one("#count", Static).update(f"{count} found" if found.query else count)
        nothing = self.query_one("#nothing", Static)
        nothing.display = not found.entries
        self._view.display = bool(found.entries)
        clear = with_keys(self.app, "{conversation_list.back} clears the search.")
        told = f"No message matches “{one_line(found.query)}”. {clear}"
        nothing.update(told if found.query else with_keys(self.app, _EMPTY))
        self.refresh_bindings()
        if self._open_found and found.query == self.query_one(SearchInput).value.strip():
            self._open_found = False
            self.action_open()

    @on(StoreFailed)
    def _store_failed(self, event: StoreFailed) -> None:
        self.notify(error_text(self.app, event.error), severity="error", timeout=10, markup=False)

    @on(PreviewRead)
    def _preview_read(self, event: PreviewRead) -> None:
        current = self._view.current
        if current is not None and current.id == event.entry.id:
            blocks = preview(event.entry, event.turns, self.conversations.query)
            self._side.show(*blocks)
            if self.conversations.query:
                self._side.show_block(blocks[0])

    @on(SwatchesMade)
    def _swatches_made(self, event: SwatchesMade) -> None:
        self._swatches.update(event.swatches)
        self._view.refresh()

    # -- messages of the list and the inputs

    @on(ConversationListView.Highlighted)
    def _highlighted(self, event: ConversationListView.Highlighted) -> None:
        if event.entry is None:
            self._side.show()
        elif self._preview_timer is None:
            self._preview_timer = self.set_timer(_PREVIEW_AFTER_S, self._preview_current)
        self.refresh_bindings()

    @on(ConversationListView.Chosen)
    def _chosen(self, event: ConversationListView.Chosen) -> None:
        self.post_message(self.ConversationChosen(event.entry.id))

    @on(ConversationListView.InView)
    def _in_view(self, event: ConversationListView.InView) -> None:
        if event.is_near_end and not self.conversations.is_whole:
            self._load_more()
        firsts = [entry.pictures.first for entry in event.entries if entry.pictures.first is not None]
        wanted = [item for item in firsts if item.sha256 not in self._swatches_asked]
        if wanted and self._has_pictures:
            self._swatches_asked.update(item.sha256 for item in wanted)
            self._make_swatches(wanted)

    @on(Input.Changed, "#search")
    def _search_changed(self) -> None:
        self._open_found = False
        if self._search_timer is not None:
            self._search_timer.stop()
        self._search_timer = self.set_timer(_SEARCH_AFTER_S, self._search_now)

    @on(Input.Submitted, "#search")
    def _search_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip() == self.conversations.query:
            self.action_open()
        else:  # the list does not match the search yet
            self._open_found = True
            self._search_now()

    @on(Input.Submitted, "#rename")
    def _title_written(self, event: Input.Submitted) -> None:
        entry = self._renamed
        self._leave_rename()
        if entry is not None:
            self._change(self.conversations.rename(entry, event.value))

    @on(RenameInput.RenameCancelled)
    def _leave_rename(self) -> None:
        if self._renamed is not None:
            self._renamed = None
            self.query_one(RenameInput).display = False
            self._view.focus()
            self.refresh_bindings()

    # -- actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if self._renamed is not None:
            return False
        match action:
            case "open" | "rename" | "pin" | "delete":
                return self.is_mounted and self._view.current is not None
            case "undo":
                return bool(self.conversations.deleted)
            case _:
                return True

    def action_open(self) -> None:
        """Open the highlighted conversation."""
        entry = self._view.current
        if entry is None:
            self.app.bell()
        else:
            self.post_message(self.ConversationChosen(entry.id))

    def action_search(self) -> None:
        """Focus the search field."""
        self.set_focus(self.query_one(SearchInput))

    def action_rename(self) -> None:
        """Edit the highlighted title in place."""
        entry, region = self._view.current, self._view.region_of_title()
        if entry is None or region is None:
            return
        self._renamed = entry
        title = self.query_one(RenameInput)
        title.value = one_line(entry.conversation.title)
        title.styles.offset = region.offset
        title.styles.width = region.width
        title.display = True
        self.set_focus(title)
        self.refresh_bindings()

    def action_pin(self) -> None:
        """Pin or unpin the highlighted conversation."""
        entry = self._view.current
        if entry is not None:
            self._change(self.conversations.toggle_pin(entry))

    def action_delete(self) -> None:
        """Delete the highlighted conversation; undo restores it."""
        entry = self._view.current
        if entry is not None:
            told = with_remedy(self.app, f"Deleted “{entry_title(entry)}”.", Remedy.UNDO_DELETE)
            self._change(self.conversations.delete(entry), told=told)

    def action_undo(self) -> None:
        """Restore the conversation deleted last on this screen."""
        run_before_keys(self, self._undo)

    def action_undelete(self) -> None:
        """Restore the conversation deleted last, here or earlier."""
        run_before_keys(self, self._undo)

    def action_new(self) -> None:
        self.post_message(self.NewChatWanted())

    def action_back(self) -> None:
        """Clear the search; if it is empty, close the list."""
        search = self.query_one(SearchInput)
        if search.value:
            search.value = ""
            self._view.focus()
        elif search.has_focus:
            self._view.focus()
        else:
            self.dismiss()

    def action_move(self, how: str) -> None:
        """Move the highlight while the search field has the focus."""
        self._moved_in = self.query_one(SearchInput).value.strip()
        self._view.action_move(how)

    # -- store operations, off the event loop

    def _search_now(self) -> None:
        if self._search_timer is not None:
            self._search_timer.stop()
            self._search_timer = None
        self._search(self.query_one(SearchInput).value.strip())

    def _preview_current(self) -> None:
        self._preview_timer = None
        if self._view.current is not None and self.has_class("-wide"):
            self._preview(self._view.current)

    @work(group="search", exclusive=True)
    async def _search(self, query: str) -> None:
        await self._find(query)

    async def _find(self, query: str) -> None:
        try:
            await self.conversations.find(query)
        except VlmtuiError as error:
            self.post_message(self.StoreFailed(error))
            return
        self.post_message(self.ListChanged(searched=query))

    @work(group="more", exclusive=True)
    async def _load_more(self) -> None:
        await self._tell(self.conversations.more())

    def _change(self, change: Awaitable[object], *, told: str = "") -> None:
        run_before_keys(self, partial(self._tell, change, told=told))

    async def _tell(self, change: Awaitable[object], *, told: str = "") -> None:
        try:
            await change
        except VlmtuiError as error:
            self.post_message(self.StoreFailed(error))
            return
        self.post_message(self.ListChanged())
        if told:
            self.notify(told, timeout=8, markup=False)

    async def _undo(self) -> None:
        try:
            last = await self.conversations.undo()
        except VlmtuiError as error:
            self.post_message(self.StoreFailed(error))
            return
        self.post_message(self.ListChanged(last.id))
        self.notify(f"Restored “{one_line(last.title) or 'untitled'}”.", markup=False)

    @work(group="preview", exclusive=True)
    async def _preview(self, entry: Entry) -> None:
        try:
            self.post_message(self.PreviewRead(entry, await self.conversations.preview(entry)))
        except VlmtuiError as error:
            self.post_message(self.StoreFailed(error))

    @work(thread=True, group="swatches")
    def _make_swatches(self, attachments: Sequence[Attachment]) -> None:
        self.post_message(self.SwatchesMade(make_swatches(attachments, self._cache)))

    @property
    def _view(self) -> ConversationListView:
        return self.query_one(ConversationListView)

    @property
    def _has_pictures(self) -> bool:
        return Graphics.of(self.app).mode != "off"
