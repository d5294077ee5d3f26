"""The list of stored conversations, two lines each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from vlmtui.session.conversation_list import Entry, ago
from vlmtui.store.records import ConversationId, Snippet
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.conversations.swatches import SWATCH, Swatch
from vlmtui.ui.widgets.highlight import entry_at

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
        """Whether less than a page is below them."""

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

    def action_move(self, how: str) -> None:
        """`up`, `down`, `page_up`, `page_down`, `first` or `last`."""
        count, index = len(self.entries), self.highlighted
        if index is None or not count:
            return
        steps = {"up": -1, "down": 1, "page_up": -self._page, "page_down": self._page, "first": -count, "last": count}
        self.highlighted = min(max(0, index + steps[how]), count - 1)

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
