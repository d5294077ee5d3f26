"""The conversation of the app: what was said, what is staged, what is being answered. No widgets here."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Text, Turn, assistant_turn, system_turn
from vlmtui.domain.engine import Failed, Failure, GenerateRequest, Prompt
from vlmtui.engine.interface import Engine
from vlmtui.engine.session import Answer, make_request, run_turn
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.schema import Family
from vlmtui.ui.controllers.chat_settings import ChatSettings
from vlmtui.ui.controllers.draft import Draft


@dataclass(eq=False, slots=True)
class Exchange:
    """A user's turn and its answer."""

    user: Turn
    answer: Answer
    earlier: list[Answer] = field(default_factory=list)
    """Answers that another one was asked for instead of."""
    is_blind: bool = False
    """Its attachments are not sent any more."""

    @property
    def is_running(self) -> bool:
        return self.answer.outcome is None

    @property
    def is_remembered(self) -> bool:
        """Whether later turns are sent with it: not when nothing came of it."""
        return bool(self.answer.text)

    @property
    def sent_user(self) -> Turn:
        """The user's turn as later requests have it."""
        if not self.is_blind:
            return self.user
        return Turn("user", tuple(part for part in self.user.parts if isinstance(part, Text)) or (Text(""),))


class ChatController:
    """One conversation."""

    def __init__(self, settings: ChatSettings) -> None:
        self.settings = settings
        self.exchanges: list[Exchange] = []
        self.draft = Draft()

    @property
    def staged(self) -> list[Attachment]:
        """What would be sent with the next message, in order."""
        return self.draft.attachments

    @property
    def attachments_sent(self) -> int:
        """How many attachments the conversation has so far."""
        return sum(len(exchange.user.attachments) for exchange in self.exchanges)

    @property
    def running(self) -> Exchange | None:
        """The exchange that is being answered."""
        return self.exchanges[-1] if self.exchanges and self.exchanges[-1].is_running else None

    @property
    def context_used(self) -> int | None:
        """Tokens of the newest prompt and its answer; None before the first."""
        for exchange in reversed(self.exchanges):
            usage = exchange.answer.usage
            if usage.prompt_tokens:
                return usage.prompt_tokens + usage.completion_tokens
        return None

    def begin(self, family: Family) -> tuple[Exchange, GenerateRequest]:
        """Record the draft as the user's turn, and make its request.

        Raises VlmtuiError when the family cannot take it; then nothing is recorded, and the draft stays.
        """
        turn = Turn("user", self.draft.parts)
        request = self._request(family, [*self._history(), turn])
        exchange = Exchange(turn, Answer(request.request_id))
        self.exchanges.append(exchange)
        self.draft.clear()
        return exchange, request

    def preview(self, family: Family) -> Prompt:
        """The prompt that `begin` would send now. Raises VlmtuiError when the family cannot take it."""
        return self._request(family, [*self._history(), Turn("user", self.draft.parts or (Text(""),))]).prompt

    def forget_oldest(self) -> Exchange | None:
        """Send the oldest attachments that are still sent no more; None where there are none."""
        for exchange in self.exchanges:
            if exchange.user.attachments and exchange.is_remembered and not exchange.is_blind:
                exchange.is_blind = True
                return exchange
        return None

    def again(self, family: Family) -> tuple[Exchange, GenerateRequest]:
        """Make the request for another answer to the last turn. Raises VlmtuiError when there is none to ask for."""
        if not self.exchanges or self.running is not None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "There is no finished answer to replace.")
        exchange = self.exchanges[-1]
        request = self._request(family, [*self._history(self.exchanges[:-1]), exchange.user])
        exchange.earlier.append(exchange.answer)
        exchange.answer = Answer(request.request_id)
        return exchange, request

    async def answer(self, engine: Engine, exchange: Exchange, request: GenerateRequest) -> None:
        """Take the answer in, event by event. Whatever happens, the exchange has an outcome afterwards."""
        try:
            async with aclosing(run_turn(engine, request)) as events:
                async for event, _ in events:
                    exchange.answer.take(event)
        finally:
            if exchange.is_running:
                lost = Failure(kind=ErrorKind.ENGINE_DIED, message="The answer was interrupted.")
                exchange.answer.take(Failed(request_id=request.request_id, failure=lost))

    def clear(self) -> None:
        """A new conversation; what is staged stays."""
        self.exchanges = []

    def _history(self, exchanges: list[Exchange] | None = None) -> list[Turn]:
        turns = [system_turn(self.settings.system_prompt)] if self.settings.system_prompt.strip() else []
        for exchange in self.exchanges if exchanges is None else exchanges:
            if exchange.is_remembered:
                turns += [exchange.sent_user, assistant_turn(exchange.answer.text)]
        return turns

    def _request(self, family: Family, turns: list[Turn]) -> GenerateRequest:
        return make_request(family, turns, self.settings.sampling)
