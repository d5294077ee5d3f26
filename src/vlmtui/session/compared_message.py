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
from vlmtui.session.lanes import InFlightRequest, Lane
from vlmtui.session.provenance import Generation
from vlmtui.session.stored_comparisons import LoadedComparison, read_comparisons


@dataclass(eq=False, slots=True)
class ComparedMessage:
    """The message to compare: the draft, or the conversation's last message."""

    conversation: Conversation
    exchange: Exchange | None = None
    """None: the draft, as long as it is not sent."""

    @classmethod
    def of(cls, conversation: Conversation) -> ComparedMessage:
        """The draft; with none, the last message. Raises VlmtuiError when there is neither, or an answer is under
        way."""
        conversation.require_rest()
        draft = conversation.draft
        if draft.pending:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "A file is still being looked at.")
        if draft.words.strip() or draft.attachments:
            return cls(conversation)
        if conversation.last is None:
            hint = "Write a message first: it is asked with the chat template and with a raw prompt."
            raise VlmtuiError(ErrorKind.BAD_USAGE, "There is nothing to compare yet.", hint=hint)
        return cls(conversation, conversation.last)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the turns to send: system prompt, history, and the message."""
        return tuple(self.conversation.turns_until(self.exchange))

    def sent(self, exchange: Exchange) -> InFlightRequest:
        """The draft was sent as this exchange: its request, for a lane that follows it."""
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
        """Make a lane's answer the message's own, beside those that it had. Raises VlmtuiError where there is none, or
        another message follows."""
        if self.exchange is None or lane.is_running or not lane.answer.text:
            raise bad_input("There is no answer to go on with yet.")
        made = Generation(lane.request, lane.answer, model, lane.engine.info, lane.spec.mode)
        await self.conversation.adopt(self.exchange, made)

    async def store(self, document: Comparison, attachments: Iterable[Attachment]) -> None:
        """Store a comparison with the message. Raises VlmtuiError where that is not possible now."""
        exchange, items = self.exchange, tuple(attachments)
        await self.conversation.record()
        turn = exchange.user_id if exchange is not None else None
        if turn is None:
            raise VlmtuiError(ErrorKind.INTERNAL, "The comparison was not stored: its message is not stored yet.")
        await self.conversation.recorder.store.run(lambda store: store.add_comparison(turn, document, items))

    async def stored(self) -> list[LoadedComparison]:
        """The comparisons that were stored with the message, the newest first. Raises VlmtuiError."""
        turn = self.exchange.user_id if self.exchange is not None else None
        return [] if turn is None else await read_comparisons(self.conversation.recorder.store, turn)
