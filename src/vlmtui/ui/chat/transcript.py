"""The scrolling conversation, oldest message first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from textual import on
from textual.message import Message
from textual.reactive import var
from textual.timer import Timer

from vlmtui.domain.attachment import Attachment
from vlmtui.session.exchange import Exchange
from vlmtui.ui.chat.answer_block import REASONING, AnswerBlock
from vlmtui.ui.chat.marked import Marked, Part
from vlmtui.ui.chat.message_block import MessageBlock
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.view import DocumentView, Rhythm
from vlmtui.ui.widgets.attachment_view import AttachmentView
from vlmtui.ui.widgets.thumbnails import ThumbnailMarks, Thumbnails

OLDER = 50
"""Stored exchanges loaded at a time."""
_NEAR_TOP = 3
"""Older exchanges are loaded from this many screens below the top on."""


class Transcript(DocumentView):
    """Follows the newest text until the user scrolls up, and again once the end is in view."""

    DEFAULT_CSS = """
    Transcript { height: 1fr; padding: 0 0 0 2; background: $background; }
    """
    marked: var[Marked | None] = var(None)
    """The selected message or answer; part of it stays in view."""

    @dataclass
    class EndSeen(Message):
        """The end of the conversation came into view, or left it."""

        is_seen: bool

    @dataclass
    class Selected(Message):
        """A message or an answer was clicked."""

        marked: Marked
        branch: int
        """-1: the one before is wanted, 1: the next one; else 0."""

    @dataclass
    class OlderWanted(Message):
        """The view is near the oldest loaded exchange. Answer with `add_older`, even if there are no more."""

        limit: int

    def __init__(self, *, cache: Path, id: str | None = None) -> None:
        super().__init__(follows=True, id=id)
        self._thumbnails = Thumbnails(self, cache, self._picture_drawn)
        self._shown: dict[Exchange, tuple[MessageBlock, AnswerBlock]] = {}
        self._media_above = 0
        """Number of attachments that later prompts include from before the loaded exchanges."""
        self._has_older = True
        self._waits_for_older = False
        self._end_seen = True
        self._rhythm = Rhythm(self, self._show_running)
        self._clock: Timer | None = None
        """Counts the seconds while an answer waits, or reasons."""

    def on_unmount(self) -> None:
        self._thumbnails.leave()
        for exchange in self._shown:
            self._let_go(exchange)

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
        """Add exchanges at the end, and scroll there. `media_above`: for the first ones, the number of attachments
        before them."""
        if not self._shown:
            self._media_above = media_above
        blocks = [block for exchange in exchanges for block in self._blocks_of(exchange)]
        self._number()
        self.add(*blocks)
        if self.marked is None:
            self.show_end()

    def add_older(self, exchanges: Sequence[Exchange]) -> None:
        """Add older exchanges in front: `exchanges` are all loaded ones, oldest first. Empty: there are no more. What
        is in view stays in place."""
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
        """Update attachment numbers, and which ones prompts include. `media_above`: how many attachments prompts
        include from before the loaded exchanges."""
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
            self._let_go(exchange)
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
        """Number the attachments; return the messages whose numbers have changed."""
        changed, number = [], self._media_above + 1
        for exchange, (message, _) in self._shown.items():
            first = number if exchange.sent_attachments else None
            number += len(exchange.sent_attachments)
            if first != message.first_number:
                message.first_number = first
                changed.append(message)
        return changed

    # -- answers that grow

    def _follow(self, exchange: Exchange) -> None:
        exchange.answer.on_event = self._rhythm.wake
        if self._clock is None:
            self._clock = self.set_interval(1.0, self._tick)

    def _let_go(self, exchange: Exchange) -> None:
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
            self._let_go(exchange)
        self.changed(block)

    def _tick(self) -> None:
        """Show for how long answers have waited; stop once none runs."""
        running = [block for _, block in self._shown.values() if block.answer.outcome is None]
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

    # -- pictures

    def mark_pictures(self, marks_of: Callable[[Attachment], ThumbnailMarks | None]) -> bool:
        """Draw places on pictures, or remove them where these are drawn. `marks_of` returns None for a picture that
        has none. False if none of these pictures is drawn."""
        is_drawn = False
        for message, _ in self._shown.values():
            for at, attachment in enumerate(message.attachments):
                marks, wanted = marks_of(attachment), message.wanted(at)
                if marks is None or wanted is None or not self._thumbnails.is_drawn(wanted):
                    continue
                is_drawn = True
                if message.marks.pop(at, None) != marks:
                    message.marks[at] = marks
                self.changed(message)
        return is_drawn

    def _picture_drawn(self, attachment: Attachment) -> None:
        for message, _ in self._shown.values():
            if any(one.sha256 == attachment.sha256 for one in message.attachments):
                self.changed(message)

    # -- the selected message

    def mark_message(self, marked: Marked) -> None:
        """Select a message or answer of a loaded exchange, and scroll there."""
        if self.has(marked.exchange):
            self.marked = marked
            block = self._block(marked)
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
        """Keep the selection in view: move it to the nearest visible message."""
        if self.marked is None or not self.has(self.marked.exchange):
            return
        seen = self.in_view
        if self._block(self.marked) in seen:
            return
        found = [one for block in seen if (one := _marked_of(block)) is not None]
        if found:
            self.marked = found[0 if by > 0 else -1]
            self.mark(self._block(self.marked))

    def resized(self) -> None:
        """Keep all of the selection in view if it fits: the line about it takes room, too."""
        if self.marked is not None and self.has(self.marked.exchange):
            block = self._block(self.marked)
            if len(block.lines) <= self.size.height:
                self.show_block(block)

    def _block(self, marked: Marked) -> Block:
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
        elif (marked := _marked_of(block)) is not None:
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


def _marked_of(block: Block) -> Marked | None:
    match block:
        case MessageBlock():
            return Marked(block.exchange, Part.MESSAGE)
        case AnswerBlock():
            return Marked(block.exchange, Part.ANSWER)
        case _:
            return None
