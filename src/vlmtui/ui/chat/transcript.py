"""The scrolling conversation, and the line that selects its messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from textual import events, on
from textual.content import Content
from textual.message import Message
from textual.reactive import var
from textual.timer import Timer
from textual.widgets import Static

from vlmtui.domain.conversation import Attachment
from vlmtui.session.conversation import Conversation
from vlmtui.session.exchange import Exchange
from vlmtui.ui.actions import bindings
from vlmtui.ui.chat.blocks import REASONING, AnswerBlock, Marked, MessageBlock, Part
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.document.answer_parts import PartKind
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.view import DocumentView, Rhythm
from vlmtui.ui.keys import short_keys
from vlmtui.ui.widgets.attachment_view import AttachmentView
from vlmtui.ui.widgets.thumbnails import Thumbnails

OLDER = 50
"""Number of exchanges (a message and its answer) loaded from the store at a time."""
_NEAR_TOP = 3
"""Screens below the top at which older exchanges are loaded."""
_PAGES = {"page_up": -1, "page_down": 1}


class Transcript(DocumentView):
    """The conversation's messages and answers. Follows the newest text until the user scrolls up, and again once the
    end is in view."""

    DEFAULT_CSS = """
    Transcript { height: 1fr; padding: 0 0 0 2; background: $background; }
    """
    marked: var[Marked | None] = var(None)
    """The selected message or answer. When it scrolls out of view, a visible message is selected."""

    class EndSeen(Message):
        """The end of the conversation came into view, or left it."""

        def __init__(self, is_seen: bool) -> None:
            super().__init__()
            self.is_seen = is_seen

    class Ticked(Message):
        """Another second has passed while an answer runs."""

    class Selected(Message):
        """A message or an answer was clicked."""

        def __init__(self, marked: Marked, branch: int) -> None:
            super().__init__()
            self.marked = marked
            self.branch = branch
            """-1: an arrow to the previous branch was clicked; 1: to the next; 0: no arrow."""

    class OlderWanted(Message):
        """The view is near the oldest loaded exchange. The handler must load up to `limit` older exchanges and call
        `add_older`, even if there are none."""

        def __init__(self, limit: int) -> None:
            super().__init__()
            self.limit = limit

    def __init__(self, *, cache: Path, id: str | None = None) -> None:
        super().__init__(follows=True, id=id)
        self._thumbnails = Thumbnails(self, cache, self._picture_drawn)
        self._shown: dict[Exchange, tuple[MessageBlock, AnswerBlock]] = {}
        self._media_above = 0
        """Number of attachments before the loaded exchanges that prompts include."""
        self._has_older = True
        self._waits_for_older = False
        self._end_seen = True
        self._rhythm = Rhythm(self, self._show_running)
        self._clock: Timer | None = None
        """Updates the shown seconds while an answer waits or reasons."""

    def on_unmount(self) -> None:
        self._thumbnails.leave()
        for exchange in self._shown:
            self._unfollow(exchange)

    @property
    def text_width(self) -> int:
        """Columns of a line of text; one is left free before the scrollbar."""
        return max(0, super().text_width - 1)

    # -- exchanges

    @property
    def exchanges(self) -> list[Exchange]:
        """The loaded exchanges, oldest first."""
        return list(self._shown)

    def has(self, exchange: Exchange) -> bool:
        """Return whether the exchange is loaded."""
        return exchange in self._shown

    def append(self, *exchanges: Exchange, media_above: int = 0) -> None:
        """Add exchanges at the end, and scroll there. `media_above`: the number of attachments before them; used only
        if the transcript was empty."""
        if not self._shown:
            self._media_above = media_above
        blocks = [block for exchange in exchanges for block in self._blocks_of(exchange)]
        self._number()
        self.add(*blocks)
        if self.marked is None:
            self.show_end()

    def add_older(self, exchanges: Sequence[Exchange]) -> None:
        """Add older exchanges at the start, without moving the view. `exchanges`: all loaded exchanges, the new ones
        included, oldest first. If none of them is new, there are no older exchanges to load."""
        self._waits_for_older = False
        newer = self._shown
        first = next(iter(newer), None)
        if first not in exchanges:
            return
        older = list(takewhile(lambda exchange: exchange is not first, exchanges))
        self._has_older = bool(older)
        if not older:
            return
        self._shown = {}
        blocks = [block for exchange in older for block in self._blocks_of(exchange)]
        self._shown |= newer
        self._media_above -= sum(len(exchange.sent_attachments) for exchange in older)
        self._number()
        self.add(*blocks, before=self.document.blocks[0])

    def renumber(self, media_above: int) -> None:
        """Number the attachments again. Only attachments that prompts include have numbers. `media_above`: how many
        such attachments there are before the loaded exchanges."""
        self._media_above = media_above
        for block in self._number():
            self.changed(block)

    def restart(self, exchange: Exchange) -> None:
        """Show a new answer for the exchange."""
        found = self._shown.get(exchange)
        if found is not None:
            found[1].restart()
            self._follow(exchange)
            self.changed(found[1])
            if self.marked is None:
                self.show_end()

    def finish(self, exchange: Exchange) -> None:
        """Show the complete answer of an exchange."""
        if exchange in self._shown:
            self._show_answer(exchange)

    def clear(self) -> None:
        for exchange in self._shown:
            self._unfollow(exchange)
        self._shown = {}
        self._media_above = 0
        self._has_older, self._waits_for_older = True, False
        super().clear()

    def _blocks_of(self, exchange: Exchange) -> tuple[MessageBlock, AnswerBlock]:
        self._shown[exchange] = blocks = MessageBlock(exchange, self._thumbnails, self), AnswerBlock(self.app, exchange)
        if exchange.is_running:
            self._follow(exchange)
        return blocks

    def _number(self) -> list[MessageBlock]:
        """Number the attachments. Return the blocks of messages whose numbers have changed."""
        changed, number = [], self._media_above + 1
        for exchange, (message, _) in self._shown.items():
            first = number if exchange.sent_attachments else None
            number += len(exchange.sent_attachments)
            if first != message.first_number:
                message.first_number = first
                changed.append(message)
        return changed

    # -- streaming answers

    def _follow(self, exchange: Exchange) -> None:
        exchange.answer.on_event = self._rhythm.wake
        if self._clock is None:
            self._clock = self.set_interval(1.0, self._tick)

    def _unfollow(self, exchange: Exchange) -> None:
        if exchange.answer.on_event == self._rhythm.wake:
            exchange.answer.on_event = None

    def _show_running(self) -> None:
        for exchange, (_, block) in self._shown.items():
            if block.answer.on_event == self._rhythm.wake:
                self._show_answer(exchange)

    def _show_answer(self, exchange: Exchange) -> None:
        block = self._shown[exchange][1]
        block.take_new()
        if block.answer.outcome is not None:
            self._unfollow(exchange)
        self.changed(block)

    def _tick(self) -> None:
        """Show for how long answers have waited, and tell the time; stop once none runs."""
        running = [block for _, block in self._shown.values() if block.answer.outcome is None]
        self.post_message(self.Ticked())
        for block in running:
            if block.waits:
                self.changed(block)
        if not running and self._clock is not None:
            self._clock.stop()
            self._clock = None

    def toggle_reasoning(self) -> bool:
        """Show or hide the reasoning of the selected answer, or else the latest; False if there is none."""
        exchanges = [self.marked.exchange] if self.marked is not None else list(self._shown)[::-1]
        for block in (self._shown[exchange][1] for exchange in exchanges if exchange in self._shown):
            if block.toggle_reasoning():
                self.changed(block)
                if block.is_open and not block.parts.is_thinking:
                    self.show_line(block, 0)
                return True
        return False

    def toggle_json(self, exchange: Exchange) -> None:
        """Show long JSON of an answer completely, or fold it."""
        if exchange in self._shown:
            block = self._shown[exchange][1]
            block.toggle_json()
            self.changed(block)

    # -- thumbnails

    def _picture_drawn(self, attachment: Attachment) -> None:
        for message, _ in self._shown.values():
            if any(one.sha256 == attachment.sha256 for one in message.attachments):
                self.changed(message)

    # -- the selected message

    def mark_message(self, marked: Marked) -> None:
        """Select a message or answer of a loaded exchange, and scroll there."""
        if self.has(marked.exchange):
            self.marked = marked
            block = self.block_of(marked)
            self.mark(block)
            self.show_block(block)

    def unmark(self) -> None:
        """End the selection; follow the end again if it is in view."""
        if self.marked is not None:
            self.marked = None
            self.mark(None)
            if self.is_at_end:
                self.show_end()

    def show_end(self) -> None:
        """Scroll to the end and follow it; ends the selection."""
        if self.marked is not None:
            self.marked = None
            self.mark(None)
        super().show_end()

    def scrolled(self, by: int) -> None:
        """If the selection was scrolled out of view, select the nearest visible message or answer."""
        if self.marked is None or not self.has(self.marked.exchange):
            return
        seen = self.in_view
        if self.block_of(self.marked) in seen:
            return
        found = [one for block in seen if (one := marked_of(block)) is not None]
        if found:
            self.marked = found[0 if by > 0 else -1]
            self.mark(self.block_of(self.marked))

    def resized(self) -> None:
        """Fit thumbnails to the terminal's height, too. Keep all of the selected message or answer in view, if it fits:
        the line that describes the selection takes a row away."""
        for message, _ in self._shown.values():
            if not message.fits:
                self.changed(message)
        if self.marked is not None and self.has(self.marked.exchange):
            block = self.block_of(self.marked)
            if len(block.lines) <= self.size.height:
                self.show_block(block)

    def block_of(self, marked: Marked) -> Block:
        return self._shown[marked.exchange][marked.part is Part.ANSWER]

    @on(DocumentView.Clicked)
    def _block_clicked(self, event: DocumentView.Clicked) -> None:
        event.stop()
        block = event.block
        if isinstance(block, AnswerBlock) and event.what == REASONING:
            block.toggle_reasoning()
            self.changed(block)
        elif isinstance(block, MessageBlock) and isinstance(event.what, int):
            first, count = block.first_number, len(block.attachments)
            numbers = None if first is None else range(first, first + count)
            self.post_message(AttachmentView.Clicked(block.attachments, numbers, event.what))
        elif (marked := marked_of(block)) is not None:
            step = event.told.get("branch", 0)
            wanted = Part(event.told["branches_of"]) if "branches_of" in event.told else marked.part
            self.post_message(self.Selected(Marked(marked.exchange, wanted), step if isinstance(step, int) else 0))

    # -- the end, and the beginning

    def place_changed(self) -> None:
        seen = not self._shown or self.is_at_end
        if seen != self._end_seen:
            self._end_seen = seen
            self.post_message(self.EndSeen(seen))
        is_near_top = bool(self._shown) and self.top < _NEAR_TOP * max(1, self.size.height)
        if is_near_top and self._has_older and not self._waits_for_older and self.size:
            self._waits_for_older = True
            self.post_message(self.OlderWanted(OLDER))


def marked_of(block: Block) -> Marked | None:
    """Return the message or answer that a block shows; None for other blocks."""
    match block:
        case MessageBlock():
            return Marked(block.exchange, Part.MESSAGE)
        case AnswerBlock():
            return Marked(block.exchange, Part.ANSWER)
        case _:
            return None


class MessageCursor(Static):
    """The line below the transcript that describes the selected message or answer; its keys move the selection."""

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
        self._conversation: object = None
        """The conversation that the selection belongs to."""
        self._at: Marked | None = None
        self._part: int | None = None
        """Index of the selected part of the answer `_at`; None: the whole answer."""
        self._number = 0
        """Number of the selected exchange, from 1."""

    def on_mount(self) -> None:
        self.watch(self._transcript, "marked", self._show, init=False)

    @property
    def marked(self) -> Marked | None:
        """The selection; None if the current branch does not contain it."""
        marked = self._transcript.marked
        return marked if marked is not None and marked.exchange in self._chat.branch.all else None

    async def begin(self) -> bool:
        """Select the newest message or answer; False if there is none."""
        places = self._places()
        if places:
            await self.select(places[-1])
        return bool(places)

    async def select(self, marked: Marked) -> None:
        """Select a message or answer, and take the focus."""
        if marked in self._places():
            self._conversation = self._chat.live
            await self._go_to(marked)
            self.add_class("-shown")
            self.focus(scroll_visible=False)
            self._show(marked)  # a search may have found another match in the same message

    def leave(self) -> None:
        """End the selection and the search, and return to the composer."""
        self._transcript.find("")
        self._transcript.unmark()

    async def conversation_shown(self) -> None:
        """Update the selection after the transcript was filled again. If another branch is shown, select the exchange
        at the same position in that branch."""
        marked = self._transcript.marked
        if marked is None:
            return
        everything = self._chat.branch.all
        if marked.exchange in everything:
            await self._go_to(marked)
        elif self._conversation is self._chat.live and 1 <= self._number <= len(everything):
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
        """Select another message or answer. `where`: first, last, up, down, page_up or page_down."""
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
        """View a message's attachments, or show or hide an answer's reasoning or long JSON."""
        marked = self.marked
        if marked is None:
            return
        if marked.part is Part.ANSWER and self._unfolds_json(marked):
            self._transcript.toggle_json(marked.exchange)
            return
        id = "image" if marked.part is Part.MESSAGE else "toggle_thinking"
        await self.run_action(f"screen.run('{id}')")

    def action_part(self, by: int) -> None:
        """Select the next or the previous part of an answer; from the last part, go on to the whole answer."""
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
        """Return all messages and answers that can be selected, oldest first."""
        return [
            Marked(exchange, part)
            for exchange in self._chat.branch.all
            for part in Part
            if part is Part.ANSWER or exchange.user.text.strip() or exchange.user.attachments
        ]

    async def _go_to(self, marked: Marked) -> None:
        if not self._transcript.has(marked.exchange):
            self._chat.branch.load_older(self._chat.branch.older - self._chat.number_of(marked.exchange) + 1)
            self._transcript.add_older(self._chat.exchanges)
        self._transcript.mark_message(marked)

    def _show(self, marked: Marked | None) -> None:
        """Show the line that describes the selection; None: hide the line."""
        if marked is None:
            if self.screen.focused is self:
                self.screen.query_one(Composer).focus()
            self.remove_class("-shown")
        elif marked.exchange in (everything := self._chat.branch.all):
            if marked != self._at:
                self._at, self._part = marked, None
            self._number = everything.index(marked.exchange) + 1
            self.update(self._line(marked, len(everything)))
        self.screen.refresh_bindings()

    def _line(self, marked: Marked, count: int) -> Content:
        which = "Your message" if marked.part is Part.MESSAGE else "Answer"
        keys = f"{short_keys(self.app, 'message_cursor.up', 'message_cursor.down')} move"
        parts, at, hit = marked.parts, self._part_of(marked), self._transcript.hit
        if hit is not None:
            again = short_keys(self.app, "message_cursor.search_next", "message_cursor.search_previous")
            keys = f"match {hit.number:,} of {hit.total:,} · {again} others · {keys}"
        if len(parts) > 1:
            keys += f" · {short_keys(self.app, 'message_cursor.next_part')} part"
        told = "" if at is None else f" · part {at + 1} of {len(parts)}: {parts[at]}"
        keys += "" if at is None else f" · {short_keys(self.app, 'message_cursor.copy_part')} copy it"
        return Content.assemble((f"█ {which} {self._number} of {count}{told}", "bold"), (f" · {keys}", "$muted"))
