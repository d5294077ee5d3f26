"""The list of conversations: search, open, rename, pin, delete."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer
from textual.visual import Visual
from textual.widgets import Input, Static

from vlmtui.domain.conversation import Attachment
from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.conversation_list import ConversationList, Entry, ago
from vlmtui.session.exchange import stored_answer
from vlmtui.store.records import ConversationId, Snippet, StoredTurn
from vlmtui.text import one_line, visible
from vlmtui.ui.actions import bindings, line_bindings
from vlmtui.ui.document.blocks import TextBlock
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import error_text, with_keys, with_remedy
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.terminal.key_queue import run_before_keys
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.row_list import entry_at, moved

SWATCH = (4, 4)
"""Width and height of the small picture, in pixels; a cell shows two, one above the other."""
_THUMBNAIL = (320, 320)
"""Size in pixels of the thumbnails that swatches are made from: the chat's, which are cached already."""

Swatch = tuple[tuple[str, ...], ...]
"""Rows of colours as `#rrggbb`; its size is `SWATCH`."""


def make_swatches(attachments: Sequence[Attachment], cache: Path) -> dict[str, Swatch]:
    """Return a swatch for each attachment, by its hash; none if its file is gone. `cache` is the folder of the
    thumbnails. Blocking."""
    from vlmtui.media.thumbnails import thumbnail

    swatches: dict[str, Swatch] = {}
    for item in attachments:
        try:
            small = thumbnail(item, cache, _THUMBNAIL).resize(SWATCH).convert("RGB")
        except VlmtuiError:
            continue
        pixels = small.tobytes()
        colours = [f"#{pixels[at : at + 3].hex()}" for at in range(0, len(pixels), 3)]
        width = SWATCH[0]
        swatches[item.sha256] = tuple(tuple(colours[at : at + width]) for at in range(0, len(colours), width))
    return swatches


class SearchInput(Input):
    """The search field. Enter opens, and the arrow keys move in the list below."""

    BINDINGS = [*bindings("conversation_search"), *line_bindings()]

    def on_mount(self) -> None:
        # A blinking cursor would repaint twice a second: over SSH an idle screen sends nothing.
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        """Remove control characters, which a paste may contain."""
        return one_line(value)


class RenameInput(Input):
    """The field for a new title, over the old one."""

    BINDINGS = [*bindings("conversation_title"), *line_bindings()]

    class RenameCancelled(Message):
        """Keep the old title."""

    def on_mount(self) -> None:
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        return one_line(value)

    def on_blur(self) -> None:
        self.post_message(self.RenameCancelled())

    def action_cancel(self) -> None:
        self.post_message(self.RenameCancelled())


_SHORT = 400
"""Most characters of one message among several."""
_WHOLE = 4_000
"""Most characters of a single message."""
_BEFORE = 600
"""Characters shown before a match."""


def preview(entry: Entry, turns: Sequence[StoredTurn], query: str) -> list[TextBlock]:
    """Return what is shown of a conversation: these turns, with the words of `query` highlighted."""
    head = [Content.styled(entry_title(entry), "bold"), Content.styled(facts_of(entry), "$muted")]
    limit = _SHORT if len(turns) > 1 else _WHOLE
    parts = [head, *(_turn(turn, limit, query.split()) for turn in turns)]
    if draft := entry.listed.draft.strip():
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
    """Return the text without its reasoning, unless there is nothing else."""
    answer = stored_answer(turn)
    return answer.parts(turn.text).answer or turn.text


def _excerpt(text: str, limit: int, words: Sequence[str]) -> str:
    """Return the start of the text; of a longer one with a match, the part around the first match."""
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


LINES = 2
"""Rows of an entry."""
_MARK = "▌"
_HALF = "▀"
_UNTITLED = "untitled"
_TITLE_MIN = 8
_DRAFT_MAX = 60
"""Characters of a draft that is shown as a title."""


def entry_title(entry: Entry) -> str:
    """Return the title, control characters visible; for a conversation that was never sent, its draft."""
    title, draft = one_line(entry.conversation.title).strip(), _flat(entry.listed.draft).strip()
    return title or (f"Draft: {draft[:_DRAFT_MAX]}{'…' * (len(draft) > _DRAFT_MAX)}" if draft else _UNTITLED)


def facts_of(entry: Entry) -> str:
    """Return `imported · shapes · 6 messages · 4 attachments`. A message and its answer count as one, as `/edit`
    numbers them."""
    conversation, count = entry.conversation, entry.pictures.count
    messages = (conversation.length + 1) // 2
    told = ["imported"] if conversation.imported else []
    told += [one_line(conversation.model)] if conversation.model else []
    told.append(f"{messages:,} message{'s' * (messages != 1)}")
    told += [f"{count:,} attachment{'s' * (count != 1)}"] if count else []
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


def entry_lines(
    entry: Entry, width: int, *, highlighted: bool, is_open: bool, swatch: Swatch | None, swatches: bool, now_s: float
) -> list[Content]:
    """Return the entry's lines, each `width` cells wide."""
    conversation = entry.conversation
    when = ago(conversation.updated_ms, now_s)
    room = max(_TITLE_MIN, width - 2 - (SWATCH[0] + 1) * swatches - len(when) - 2)
    pin = "★ " if conversation.pinned else ""
    style = "bold $text-accent" if is_open else "bold"
    title = Content.assemble((pin, "$text-warning"), (entry_title(entry), style)).truncate(room, ellipsis=True)
    first = Content.assemble(title, " " * max(0, room - title.cell_length), "  ", (when, "$muted"))
    below = snippet_content(entry.listed.snippet) if entry.listed.snippet else Content.styled(facts_of(entry), "$muted")
    mark = (_MARK if highlighted else " ", "$text-accent")
    return [
        Content.assemble(mark, _swatch_line(swatch, line) if swatches else "", text).truncate(
            max(1, width), ellipsis=True
        )
        for line, text in enumerate((first, below))
    ]


def _swatch_line(swatch: Swatch | None, line: int) -> Content:
    """Return a row of the small picture, and a gap."""
    if swatch is None:
        return Content(" " * (SWATCH[0] + 1))
    upper, lower = swatch[2 * line], swatch[2 * line + 1]
    cells = [(_HALF, f"{above} on {below}") for above, below in zip(upper, lower, strict=True)]
    return Content.assemble(*cells, " ")


def _flat(text: str) -> str:
    """Return the text on one line, with line breaks as spaces."""
    return one_line(text.replace("\n", " ").replace("\t", " "))


class ConversationListView(ScrollView):
    """Renders only lines in view: thousands of conversations stay fast."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES = {"conversations--highlighted", "conversations--hover"}
    DEFAULT_CSS = """
    ConversationListView {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        & > .conversations--highlighted {
            background: $block-cursor-background;
            color: $block-cursor-foreground;
        }
        & > .conversations--hover { background: $block-hover-background; }
    }
    """
    BINDINGS = bindings("conversation_rows")

    highlighted: reactive[int | None] = reactive(None, repaint=False)
    _hovered: reactive[int | None] = reactive(None, repaint=False)

    @dataclass
    class Highlighted(Message):
        """Another conversation is highlighted; None: none."""

        entry: Entry | None

    @dataclass
    class Chosen(Message):
        """Open this conversation."""

        entry: Entry

    @dataclass
    class InView(Message):
        """The conversations in view."""

        entries: Sequence[Entry]
        is_near_end: bool
        """True if less than a page follows below these conversations."""

    def __init__(
        self, swatches: Mapping[str, Swatch] | None, *, open_id: ConversationId | None = None, id: str | None = None
    ) -> None:
        """`swatches`: small pictures by their attachment's hash, read whenever a line is drawn; None: pictures are
        off. `open_id`: the conversation marked as open."""
        super().__init__(id=id)
        self.entries: Sequence[Entry] = ()
        self._swatches = swatches
        self._open_id = open_id

    @property
    def current(self) -> Entry | None:
        """The highlighted conversation."""
        return entry_at(self.entries, self.highlighted)

    def show(self, entries: Sequence[Entry], *, highlight: ConversationId | None = None) -> None:
        """Show these; highlight the given one, or keep the highlight, or highlight the one in its place."""
        before, place = self.current, self.highlighted or 0
        wanted = highlight or (before.id if before else None)
        self.entries = entries
        self.virtual_size = Size(0, LINES * len(entries))
        found = next((index for index, entry in enumerate(entries) if entry.id == wanted), None)
        kept = min(place, len(entries) - 1) if found is None else found
        self.set_reactive(ConversationListView.highlighted, kept if entries else None)
        self._hovered = None
        self.call_after_refresh(self._settle)
        self.refresh()
        self.post_message(self.Highlighted(self.current))

    def region_of_title(self) -> Region | None:
        """Return where the highlighted title is, in the list's coordinates; None if out of view."""
        if self.highlighted is None:
            return None
        y = self.highlighted * LINES - round(self.scroll_y)
        left = 1 + (SWATCH[0] + 1) * (self._swatches is not None)
        region = Region(left, y, max(_TITLE_MIN, self.scrollable_content_region.width - left), 1)
        return region if 0 <= y < self.scrollable_content_region.height else None

    def on_resize(self) -> None:
        self._settle()

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self._tell_view()

    def watch_highlighted(self, before: int | None, now: int | None) -> None:
        self._refresh_entries(before, now)
        self._keep_in_view()
        self.post_message(self.Highlighted(self.current))
        self._tell_view()

    def watch__hovered(self, before: int | None, now: int | None) -> None:
        self._refresh_entries(before, now)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._hovered = self._entry_at(event.y)

    def on_leave(self) -> None:
        self._hovered = None

    def on_click(self, event: events.Click) -> None:
        index = self._entry_at(event.y)
        if index is not None:
            was_here = index == self.highlighted
            self.highlighted = index
            if was_here:
                self.post_message(self.Chosen(self.entries[index]))

    def render_line(self, y: int) -> Strip:
        index, width, style = self._entry_at(y), self.scrollable_content_region.width, self.visual_style
        if index is None:
            return Strip.blank(width, style.rich_style)
        if index == self.highlighted:
            style = self.get_visual_style("conversations--highlighted")
        elif index == self._hovered:
            style = self.get_visual_style("conversations--hover")
        line = self._lines(index, width)[(y + round(self.scroll_y)) % LINES]
        return Visual.to_strips(self, line, width, 1, style)[0].extend_cell_length(width, style.rich_style)

    def action_move(self, way: str) -> None:
        """Move the highlight: `up`, `down`, `page_up`, `page_down`, `first` or `last`."""
        if self.highlighted is not None and self.entries:
            self.highlighted = moved(self.highlighted, way, len(self.entries), page=self._page)

    @property
    def _page(self) -> int:
        return max(1, self.scrollable_content_region.height // LINES)

    def _lines(self, index: int, width: int) -> list[Content]:
        entry = self.entries[index]
        first = entry.pictures.first
        return entry_lines(
            entry,
            width - 1,
            highlighted=index == self.highlighted,
            is_open=entry.id == self._open_id,
            swatch=self._swatches.get(first.sha256) if self._swatches is not None and first else None,
            swatches=self._swatches is not None,
            now_s=time.time(),
        )

    def _entry_at(self, y: int) -> int | None:
        """Return the conversation in this row of the view; None below the last."""
        index = (y + round(self.scroll_y)) // LINES
        return index if index < len(self.entries) else None

    def _refresh_entries(self, *indices: int | None) -> None:
        for index in indices:
            if index is not None:
                self.refresh_lines(index * LINES, LINES)

    def _keep_in_view(self) -> None:
        if self.highlighted is not None:
            self.scroll_to_region(Region(0, self.highlighted * LINES, 1, LINES), animate=False, force=True)

    def _settle(self) -> None:
        self._keep_in_view()
        self._tell_view()

    def _tell_view(self) -> None:
        top = round(self.scroll_y) // LINES
        bottom = min(len(self.entries), top + self._page + 1)
        is_near_end = bool(self.entries) and bottom + self._page >= len(self.entries)
        self.post_message(self.InView(self.entries[top:bottom], is_near_end))


_WIDE = 110
"""Fewest columns for the preview."""
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
        """True if Enter was pressed before the search finished."""
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
            told = with_remedy(self.app, f"Deleted “{entry_title(entry)}”.", Remedy.RESTORE_CONVERSATION)
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
