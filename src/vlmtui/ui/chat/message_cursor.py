"""The cursor that selects a message or an answer: a line above the composer, which has the focus while a message is
selected."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.widgets import Static

from vlmtui.session.conversation import Conversation
from vlmtui.ui.actions import bindings
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.chat.marked import Marked, Part
from vlmtui.ui.chat.transcript import Transcript
from vlmtui.ui.document.answer_parts import PartKind
from vlmtui.ui.keys import short_keys

_PAGES = {"page_up": -1, "page_down": 1}


class MessageCursor(Static):
    """Moves the transcript's selection. The chat's own actions act on it."""

    can_focus = True
    SCOPE = "message_cursor"
    BINDINGS = bindings(SCOPE)
    DEFAULT_CSS = """
    MessageCursor {
        display: none; height: 1; margin: 1 2 0 2; padding: 0 1; color: $accent;
        text-wrap: nowrap; text-overflow: ellipsis;
        &.-shown { display: block; }
    }
    """

    def __init__(self, chat: Conversation, transcript: Transcript) -> None:
        super().__init__(markup=False)
        self._chat = chat
        self._transcript = transcript
        self._live: object = None
        """The conversation of the selection."""
        self._at: Marked | None = None
        self._part: int | None = None
        """Index of the selected part of the answer `_at`; None: the whole answer."""
        self._number = 0
        """Number of the selected exchange, from 1."""

    def on_mount(self) -> None:
        self.watch(self._transcript, "marked", self._show, init=False)

    @property
    def marked(self) -> Marked | None:
        """The selection; None if it just left the branch."""
        marked = self._transcript.marked
        return marked if marked is not None and marked.exchange in self._chat.all_exchanges() else None

    async def begin(self) -> bool:
        """Select the newest message or answer; False if there is none."""
        places = self._places()
        if places:
            await self.select(places[-1])
        return bool(places)

    async def select(self, marked: Marked) -> None:
        """Select this message or answer."""
        if marked in self._places():
            self._live = self._chat.live
            await self._go_to(marked)
            self.add_class("-shown")
            self.focus(scroll_visible=False)

    def leave(self) -> None:
        """Return to the composer."""
        self._transcript.unmark()

    async def conversation_shown(self) -> None:
        """Handle a redrawn conversation. On another branch of it the cursor stays at its place."""
        marked = self._transcript.marked
        if marked is None:
            return
        everything = self._chat.all_exchanges()
        if marked.exchange in everything:
            await self._go_to(marked)
        elif self._live is self._chat.live and 1 <= self._number <= len(everything):
            await self._go_to(Marked(everything[self._number - 1], marked.part))
        else:
            self.leave()

    def on_blur(self) -> None:
        """End the selection: the composer was clicked, or something else took the focus."""
        if self.screen.focused is not None and self.screen.focused is not self:
            self.leave()

    async def on_paste(self, event: events.Paste) -> None:
        """Pass pasted text to the composer."""
        event.stop()
        self.leave()
        self.app.post_message(events.Paste(event.text))

    async def action_move(self, where: str) -> None:
        """Select another message or answer."""
        marked, places = self.marked, self._places()
        if marked is None or marked not in places:
            self.leave()
            return
        at = places.index(marked)
        if where in _PAGES:
            pages = _PAGES[where]
            if not self._transcript.page(pages):
                await self._go_to(places[0 if pages < 0 else -1])
            return
        at = {"first": 0, "last": len(places) - 1, "up": max(0, at - 1), "down": at + 1}[where]
        if at < len(places):
            await self._go_to(places[at])
        else:
            self.leave()

    async def action_open(self) -> None:
        """View a message's pictures, or show or hide an answer's reasoning or long JSON."""
        marked = self.marked
        if marked is None:
            return
        if marked.part is Part.ANSWER and self._unfolds_json(marked):
            self._transcript.toggle_json(marked.exchange)
            return
        id = "view" if marked.part is Part.MESSAGE else "toggle_thinking"
        await self.run_action(f"screen.run('{id}')")

    def action_part(self, by: int) -> None:
        """Select the next or the previous part of an answer; after the last one, the whole answer again."""
        marked = self.marked
        if marked is None:
            return
        choices = [None, *range(len(marked.parts))]
        self._part = choices[(choices.index(self._part_of(marked)) + by) % len(choices)]
        self._show(marked)

    def action_copy_part(self) -> None:
        """Copy the selected part, or the whole message or answer."""
        marked = self.marked
        at = self._part_of(marked) if marked is not None else None
        text = marked.parts[at].text if marked is not None and at is not None else marked.text if marked else ""
        if text:
            self.app.copy_to_clipboard(text)
            self.notify(f"Copied {len(text):,} characters.", markup=False)

    def _part_of(self, marked: Marked) -> int | None:
        """Return the index of the selected part; None: the whole answer."""
        return self._part if self._part is not None and self._part < len(marked.parts) else None

    def _unfolds_json(self, marked: Marked) -> bool:
        at, kinds = self._part_of(marked), [part.kind for part in marked.parts]
        return PartKind.JSON in kinds and (
            PartKind.REASONING not in kinds if at is None else kinds[at] is PartKind.JSON
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        marked = self.marked
        if action != "open" or marked is None:
            return True
        if marked.part is Part.MESSAGE:
            return bool(marked.exchange.user.attachments)
        return any(part.kind in (PartKind.REASONING, PartKind.JSON) for part in marked.parts)

    def action_leave(self) -> None:
        self.leave()

    def _places(self) -> list[Marked]:
        """Return everything selectable, from the start of the conversation."""
        return [
            Marked(exchange, part)
            for exchange in self._chat.all_exchanges()
            for part in Part
            if part is Part.ANSWER or exchange.user.text.strip() or exchange.user.attachments
        ]

    async def _go_to(self, marked: Marked) -> None:
        if not self._transcript.has(marked.exchange):
            await self._chat.load_older(self._chat.older - self._chat.number_of(marked.exchange) + 1)
            self._transcript.add_older(self._chat.exchanges)
        self._transcript.mark_message(marked)

    def _show(self, marked: Marked | None) -> None:
        """Show the selection's line, or hide it."""
        if marked is None:
            if self.screen.focused is self:
                self.screen.query_one(Composer).focus()
            self.remove_class("-shown")
        elif marked.exchange in (everything := self._chat.all_exchanges()):
            if marked != self._at:
                self._at, self._part = marked, None
            self._number = everything.index(marked.exchange) + 1
            self.update(self._line(marked, len(everything)))
        self.screen.refresh_bindings()

    def _line(self, marked: Marked, count: int) -> Content:
        which = "Your message" if marked.part is Part.MESSAGE else "Answer"
        keys = f"{short_keys(self.app, 'message_cursor.up', 'message_cursor.down')} move"
        parts, at = marked.parts, self._part_of(marked)
        if len(parts) > 1:
            keys += f" · {short_keys(self.app, 'message_cursor.next_part')} part"
        told = "" if at is None else f" · part {at + 1} of {len(parts)}: {parts[at]}"
        keys += "" if at is None else f" · {short_keys(self.app, 'message_cursor.copy_part')} copy it"
        return Content.assemble((f"█ {which} {self._number} of {count}{told}", "bold"), (f" · {keys}", "$muted"))
