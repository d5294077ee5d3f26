"""The message of a comparison or fan-out: the turns sent with it, and the answer that the chat continues with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Turn
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.inspection.replay import Comparison
from vlmtui.registry.match import Model
from vlmtui.session.conversation import Conversation
from vlmtui.session.exchange import Exchange
from vlmtui.session.generation import tags_of
from vlmtui.session.lanes import InFlightRequest, Lane
from vlmtui.session.resume import Generation
from vlmtui.session.stored_comparisons import LoadedComparison, read_comparisons


@dataclass(eq=False, slots=True)
class ComparedMessage:
    """The message to compare: the draft, or the conversation's last message."""

    conversation: Conversation
    exchange: Exchange | None = None
    """None: the draft, not sent yet."""

    @classmethod
    def of(cls, conversation: Conversation) -> ComparedMessage:
        """Return the draft; if it is empty, the last message. Raises VlmtuiError when there is neither, or while an
        answer is running."""
        conversation.require_rest()
        draft = conversation.draft
        if draft.pending:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "A file is still loading.")
        if draft.words.strip() or draft.attachments:
            return cls(conversation)
        if conversation.last is None:
            hint = "Write a message first. Compare sends it with the chat template and with a raw prompt."
            raise VlmtuiError(ErrorKind.BAD_USAGE, "There is nothing to compare yet.", hint=hint)
        return cls(conversation, conversation.last)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the turns to send: system prompt, history, and the message."""
        return tuple(self.conversation.turns_until(self.exchange))

    def sent(self, exchange: Exchange) -> InFlightRequest:
        """Note that the draft was sent as this exchange; return its request, for a lane that follows it."""
        assert exchange.request is not None
        self.exchange = exchange
        answers = self.conversation.answers
        return InFlightRequest(
            exchange.request,
            exchange.answer,
            lambda: answers.wait_until_sent(exchange),
            lambda: answers.wait_until_over(exchange),
        )

    async def adopt(self, lane: Lane, model: Model) -> None:
        """Add a lane's answer to the message's answers and show it. Raises VlmtuiError if there is no answer, or
        another message follows."""
        if lane.is_running or not lane.answer.text:
            raise bad_input("There is no answer to use yet.")
        lane.answer.read_by(tags_of(model.family))
        made = Generation(lane.request, lane.answer, model, lane.info, lane.spec.mode)
        if self.exchange is not None:
            await self.conversation.adopt(self.exchange, made)
        elif lane.spec.turn is not None:
            self.exchange = await self.conversation.fork(lane.spec.turn, made)

    async def store(self, document: Comparison, attachments: Iterable[Attachment]) -> None:
        """Store a comparison with the message. Raises VlmtuiError if that is impossible now."""
        exchange, items = self.exchange, tuple(attachments)
        await self.conversation.record()
        turn = exchange.user_id if exchange is not None else None
        if turn is None:
            raise VlmtuiError(ErrorKind.INTERNAL, "Can't store the comparison: its message is not stored yet.")
        await self.conversation.recorder.store.run(lambda store: store.add_comparison(turn, document, items))

    async def stored(self) -> list[LoadedComparison]:
        """Return the comparisons stored with the message, newest first. Raises VlmtuiError."""
        turn = self.exchange.user_id if self.exchange is not None else None
        return [] if turn is None else await read_comparisons(self.conversation.recorder.store, turn)
