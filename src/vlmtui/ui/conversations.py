"""The screen with the list of stored conversations: search, open, rename, pin, delete."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input, Static

from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.conversation_list import ConversationList, ago
from vlmtui.session.exchange import stored_answer
from vlmtui.store.records import ConversationId, ListEntry, Snippet, StoredTurn
from vlmtui.text import counted, one_line, visible
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.blocks import TextBlock
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import with_keys, with_remedy
from vlmtui.ui.terminal.key_queue import ask_user, run_before_keys
from vlmtui.ui.widgets.dialogs import NameScreen
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.line_editing import LineInput
from vlmtui.ui.widgets.row_list import RowList

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp


class SearchInput(LineInput):
    """The search field. Enter opens the highlighted conversation; arrow keys move the highlight."""

    BINDINGS = bindings("conversation_search")

    def validate_value(self, value: str) -> str:
        """Make control characters visible, which pasted text may contain."""
        return one_line(value)


_SHORT = 400
"""Most characters of a message if several are shown."""
_WHOLE = 4_000
"""Most characters if only one message is shown."""
_BEFORE = 600
"""Characters shown before a match."""


def preview(entry: ListEntry, turns: Sequence[StoredTurn], query: str) -> list[TextBlock]:
    """Return the preview of a conversation: its title, its facts, `turns` with the words of `query` highlighted, and
    the unsent draft."""
    head = [Content.styled(entry_title(entry), "bold"), Content.styled(facts_of(entry), "$muted")]
    limit = _SHORT if len(turns) > 1 else _WHOLE
    parts = [head, *(_turn(turn, limit, query.split()) for turn in turns)]
    if draft := entry.draft.strip():
        parts.append([Content.styled("Not sent yet", "$muted"), Content(visible(_excerpt(draft, _SHORT, ())))])
    return [TextBlock(Content("\n").join(part), margin=1) for part in parts]


def _turn(turn: StoredTurn, limit: int, words: Sequence[str]) -> list[Content]:
    is_user = turn.role == "user"
    names = [one_line(item.name) for item in turn.turn.attachments]
    head = Content.styled("You" if is_user else turn.role.capitalize(), "$text-accent" if is_user else "$muted")
    said = [Content.styled(f"▣ {name}", "$muted") for name in names]
    text = turn.text if is_user or words else _answer_of(turn)
    excerpt = _excerpt(text.strip(), limit, words)
    return [head, *said, *([_marked(visible(excerpt), words)] if excerpt else [])]


def _answer_of(turn: StoredTurn) -> str:
    """Return the answer without its reasoning. If there is nothing but reasoning, return the reasoning."""
    answer = stored_answer(turn)
    return answer.parts(turn.text).answer or turn.text


def _excerpt(text: str, limit: int, words: Sequence[str]) -> str:
    """Return the first `limit` characters of a text. If the text is longer and contains one of `words`, return the
    characters around the first match instead."""
    folded = text.casefold()
    found = [at for at in (folded.find(word.casefold()) for word in words) if at >= 0]
    start = max(0, min(found, default=0) - _BEFORE) if len(text) > limit else 0
    shown = text[start : start + limit]
    return f"{'…' if start else ''}{shown}{'…' if start + limit < len(text) else ''}"


def _marked(text: str, words: Sequence[str]) -> Content:
    content, folded = Content(text), text.casefold()
    if len(folded) != len(text):
        return content
    for word in (word.casefold() for word in words):
        at = folded.find(word)
        while at >= 0 and word:
            content = content.stylize("bold $text-warning", at, at + len(word))
            at = folded.find(word, at + len(word))
    return content


_UNTITLED = "untitled"
_TITLE_MIN = 8
_DRAFT_MAX = 60
"""Most characters of a draft that serves as a title."""


def entry_title(entry: ListEntry) -> str:
    """Return the title with control characters visible; if there is no title, the beginning of the draft."""
    title, draft = one_line(entry.conversation.title).strip(), _flat(entry.draft).strip()
    return title or (f"Draft: {draft[:_DRAFT_MAX]}{'…' * (len(draft) > _DRAFT_MAX)}" if draft else _UNTITLED)


def facts_of(entry: ListEntry) -> str:
    """Return a line such as `imported · shapes · 6 messages · 4 attachments`."""
    conversation = entry.conversation
    told = ["imported"] if conversation.imported else []
    told += [one_line(conversation.model)] if conversation.model else []
    told.append(counted(conversation.messages, "message"))
    told += [counted(entry.attachments, "attachment")] if entry.attachments else []
    return " · ".join(told)


def snippet_content(snippet: Snippet) -> Content:
    """Return the words around a match in one line, with the match highlighted."""
    pieces: list[Content | tuple[str, str]] = []
    end = 0
    for start, stop in snippet.marks:
        pieces.append((_flat(snippet.text[end:start]), "$muted"))
        pieces.append((_flat(snippet.text[start:stop]), "bold $text-warning"))
        end = stop
    return Content.assemble(*pieces, (_flat(snippet.text[end:]), "$muted"))


def entry_lines(entry: ListEntry, width: int, *, is_open: bool, now_s: float) -> list[Content]:
    """Return an entry's two lines: the title and its age, `width` cells wide; then facts or the search match."""
    conversation = entry.conversation
    when = ago(conversation.updated_ms, now_s)
    room = max(_TITLE_MIN, width - len(when) - 2)
    pin = "★ " if conversation.pinned else ""
    style = "bold $text-accent" if is_open else "bold"
    title = Content.assemble((pin, "$text-warning"), (entry_title(entry), style)).truncate(room, ellipsis=True)
    first = Content.assemble(title, " " * max(0, room - title.cell_length), "  ", (when, "$muted"))
    below = snippet_content(entry.snippet) if entry.snippet else Content.styled(facts_of(entry), "$muted")
    return [first, below]


def _flat(text: str) -> str:
    """Return the text on one line, with line breaks as spaces."""
    return one_line(text.replace("\n", " ").replace("\t", " "))


class ConversationListView(RowList[ListEntry]):
    """Two lines for each conversation."""

    BINDINGS = bindings("conversation_rows")
    ROW_LINES = 2

    def __init__(self, open_id: ConversationId | None, *, id: str | None = None) -> None:
        """`open_id`: the conversation to mark as open."""
        super().__init__(id=id)
        self._open_id = open_id

    def draw(self, index: int, width: int) -> list[Content]:
        entry = self.rows[index]
        return entry_lines(entry, width, is_open=entry.id == self._open_id, now_s=time.time())


_WIDE = 110
"""Fewest columns of a screen with a preview."""
_SEARCH_AFTER_S = 0.15
"""Seconds without typing before the search starts."""
_PREVIEW_AFTER_S = 0.08
_EMPTY = "No conversations yet. They are stored automatically. {conversation_list.back} goes back."


class ConversationsScreen(Screen[None]):
    """A search field, the conversations below it, and a preview beside them."""

    CSS_PATH = "conversations.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]
    SCOPE = "conversation_list"
    BINDINGS = bindings(SCOPE)

    def __init__(self, store: AsyncStore, *, open_id: ConversationId | None = None) -> None:
        """`open_id`: the conversation that the chat shows."""
        super().__init__()
        self.conversations = ConversationList(store, open_id)
        self._search_timer: Timer | None = None
        self._open_found = False
        """True if Enter was pressed before the search finished: the first match is then opened."""
        self._moved_in = ""
        """The search text when the highlight was moved: a result for the same text leaves it there."""
        self._preview_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static("vlmtui", id="brand")
            yield Static("Conversations", id="subtitle")
            yield Static(id="count", markup=False)
        hint = with_keys(self.app, "{conversation_list.search} searches all messages")
        yield SearchInput(id="search", placeholder=hint, compact=True)
        with Horizontal(id="body"):
            yield ConversationListView(self.conversations.open_id, id="list")
            yield DocumentView(follows=True, from_top=True, has_edge=False, id="side")
        yield FooterBar()

    def on_mount(self) -> None:
        self._view.focus()
        run_before_keys(self, partial(self._find, ""))

    @property
    def main_app(self) -> VlmtuiApp:
        return cast("VlmtuiApp", self.app)

    @property
    def _side(self) -> DocumentView:
        return self.query_one("#side", DocumentView)

    # -- the list

    def _show_list(self, highlight: ConversationId | None = None, *, searched: str = "") -> None:
        """Show the list again. `highlight`: the conversation to highlight. `searched`: the search text, if a search has
        just ended."""
        found, current = self.conversations, self._view.current
        wanted = highlight or (current.id if current is not None else None)
        is_new = bool(searched) and searched != self._moved_in
        kept = self._view.highlighted
        at = 0 if is_new else next((at for at, entry in enumerate(found.entries) if entry.id == wanted), kept)
        count = f"{len(found.entries):,}{'' if found.is_whole else '+'}"
        noun = "found" if found.query else "conversation" if count == "1" else "conversations"
        self.query_one("#count", Static).update(f"{count} {noun}")
        nothing = f"No message matches “{one_line(found.query)}”. {{conversation_list.back}} clears the search."
        empty = with_keys(self.app, nothing if found.query else _EMPTY)
        self._view.show(found.entries, highlight=at, empty=empty)
        self.refresh_bindings()
        if self._open_found and found.query == self.query_one(SearchInput).value.strip():
            self._open_found = False
            self.action_open()

    # -- messages of the list and the inputs

    @on(RowList.Highlighted)
    def _highlighted(self) -> None:
        if self._view.current is None:
            self._side.show()
        elif self._preview_timer is None:
            self._preview_timer = self.set_timer(_PREVIEW_AFTER_S, self._preview_current)
        self.refresh_bindings()

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

    # -- actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "open" | "rename" | "pin" | "delete" | "export":
                return self.is_mounted and self._view.current is not None
            case "undo":
                return bool(self.conversations.deleted)
            case _:
                return True

    @on(RowList.Opened)
    def action_open(self) -> None:
        entry = self._view.current
        if entry is None:
            self.app.bell()
        else:
            self.main_app.stored.open(entry.id, entry.turn, self.conversations.query)

    def action_search(self) -> None:
        self.set_focus(self.query_one(SearchInput))

    def action_rename(self) -> None:
        if (entry := self._view.current) is not None:
            run_before_keys(self, partial(self._rename, entry))

    def action_pin(self) -> None:
        entry = self._view.current
        if entry is not None:
            self._change(self.conversations.toggle_pin(entry))

    def action_export(self) -> None:
        if (entry := self._view.current) is not None:
            app = self.main_app
            app.start_dialog(partial(app.perform, partial(app.stored.export, entry.id)))

    def action_delete(self) -> None:
        entry = self._view.current
        if entry is not None:
            told = with_remedy(self.app, f"Deleted “{entry_title(entry)}”.", Remedy.RESTORE_CONVERSATION)
            self._change(self.conversations.delete(entry), told=told)

    def action_undo(self) -> None:
        run_before_keys(self, self._undo)

    def action_new(self) -> None:
        self.dismiss()
        self.main_app.call_later(self.main_app.run_action_id, "new_chat")

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
        """Move the highlight, while the search field keeps the focus."""
        self._moved_in = self.query_one(SearchInput).value.strip()
        self._view.action_move(how)

    # -- store operations, off the event loop

    def _search_now(self) -> None:
        if self._search_timer is not None:
            self._search_timer.stop()
            self._search_timer = None
        find = self._find(self.query_one(SearchInput).value.strip())
        self.run_worker(find, group="search", exclusive=True)

    def _preview_current(self) -> None:
        self._preview_timer = None
        if self._view.current is not None and self.has_class("-wide"):
            self._preview(self._view.current)

    async def _find(self, query: str) -> None:
        try:
            await self.conversations.find(query)
        except VlmtuiError as error:
            self.main_app.tell_error(error)
            return
        self._show_list(searched=query)

    async def _rename(self, entry: ListEntry) -> None:
        title = one_line(entry.conversation.title)
        new = await ask_user(self.app, NameScreen("Title of the conversation", value=title))
        if new is not None:
            self._change(self.conversations.rename(entry, new))

    def _change(self, change: Awaitable[object], *, told: str = "") -> None:
        run_before_keys(self, partial(self._tell, change, told=told))

    async def _tell(self, change: Awaitable[object], *, told: str = "") -> None:
        try:
            await change
        except VlmtuiError as error:
            self.main_app.tell_error(error)
            return
        self._show_list()
        if told:
            self.main_app.tell(told)

    async def _undo(self) -> None:
        try:
            last = await self.conversations.undo()
        except VlmtuiError as error:
            self.main_app.tell_error(error)
            return
        self._show_list(last.id)
        self.main_app.tell(f"Restored “{one_line(last.title) or 'untitled'}”.")

    @work(group="preview", exclusive=True)
    async def _preview(self, entry: ListEntry) -> None:
        try:
            turns = await self.conversations.preview(entry)
        except VlmtuiError as error:
            self.main_app.tell_error(error)
            return
        current = self._view.current
        if current is not None and current.id == entry.id:
            blocks = preview(entry, turns, self.conversations.query)
            self._side.show(*blocks)
            if self.conversations.query:
                self._side.show_block(blocks[0])

    @property
    def _view(self) -> ConversationListView:
        return self.query_one(ConversationListView)
