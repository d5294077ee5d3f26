"""The conversation of the app: what was said, what is staged, what is being answered. No widgets here."""

from __future__ import annotations

from collections import Counter

from vlmtui.domain.attachment import Modality
from vlmtui.domain.conversation import Text, Turn, assistant_turn, system_turn
from vlmtui.domain.engine import EngineInfo, GenerateRequest, Prompt
from vlmtui.engine.session import Answer, make_request
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.match import Model
from vlmtui.registry.schema import Family
from vlmtui.store.records import StoredDraft
from vlmtui.ui.controllers.conversing import Conversing
from vlmtui.ui.controllers.exchange import Exchange, Siblings
from vlmtui.ui.controllers.recipes import recipe_of

__all__ = ["ChatController", "Exchange"]


class ChatController(Conversing):
    """What is sent with the next message, and sending it."""

    @property
    def context_used(self) -> int | None:
        """Tokens of the newest prompt and its answer; None before the first."""
        for exchange in reversed(self.exchanges):
            usage = exchange.answer.usage
            if usage.prompt_tokens:
                return usage.prompt_tokens + usage.completion_tokens
        return None

    def begin(self, model: Model, info: EngineInfo | None = None) -> tuple[Exchange, GenerateRequest]:
        """Take the draft as the user's turn, and make its request; `record` stores it.

        Raises VlmtuiError when the family cannot take it; then nothing has changed, and the draft stays.
        """
        turn = Turn("user", self.draft.parts)
        before = self._before()
        request = self._request(model.family, [*self._history(before), turn])
        exchange = Exchange(turn, Answer(request.request_id), above=before[-1] if before else None)
        if self.editing is not None:
            count = self.editing.user_siblings.count + 1
            exchange.user_siblings = Siblings(count, count)
        self.exchanges = [*before[len(self._older) :], exchange]
        self.editing = None
        self.draft.clear()
        self._kept_draft = StoredDraft()
        self._note(exchange, model, info, request)
        return exchange, request

    def again(self, model: Model, info: EngineInfo | None = None) -> tuple[Exchange, GenerateRequest]:
        """Make the request for another answer to the last turn. Raises VlmtuiError when there is none to ask for."""
        if not self.exchanges or self.running is not None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "There is no finished answer to replace.")
        exchange = self.exchanges[-1]
        history = self._history([*self._older, *self.exchanges[:-1]])
        request = self._request(model.family, [*history, exchange.user])
        exchange.earlier.append(exchange.answer)
        if exchange.answer_id is not None or exchange.answer.request_id:
            count = exchange.answer_siblings.count + 1
            exchange.answer_siblings = Siblings(count, count)
        exchange.answer, exchange.answer_id = Answer(request.request_id), None
        self._note(exchange, model, info, request)
        return exchange, request

    def preview(self, family: Family) -> Prompt:
        """The prompt that `begin` would send now. Raises VlmtuiError when the family cannot take it."""
        turn = Turn("user", self.draft.parts or (Text(""),))
        return self._request(family, [*self._history(self._before()), turn]).prompt

    def forget_oldest(self) -> Exchange | None:
        """Send the oldest attachments that are still sent no more; None where there are none."""
        for exchange in [*self._older, *self.exchanges]:
            if exchange.user.attachments and exchange.is_remembered and not exchange.is_blind:
                exchange.is_blind = True
                return exchange
        return None

    def too_many(self, family: Family) -> str:
        """What of the conversation a model does not take, in a sentence; empty where it takes everything."""
        if not family.takes:
            return ""
        turns = [exchange.sent_user for exchange in [*self._older, *self.exchanges] if exchange.is_remembered]
        counts: Counter[Modality] = Counter(item.modality for turn in turns for item in turn.attachments)
        problems = []
        for modality, count in sorted(counts.items()):
            takes = family.takes.get(modality)
            if takes is None:
                problems.append(f"{_so_many(count, modality)} so far; this model takes no {modality}s")
            elif count > takes.max_items:
                problems.append(f"{_so_many(count, modality)} so far; this model takes {takes.max_items}")
        return ". ".join([*problems, "F8 forgets the oldest."]) if problems else ""

    def _note(self, exchange: Exchange, model: Model, info: EngineInfo | None, request: GenerateRequest) -> None:
        self.live.model = model.spec.name
        exchange.request, exchange.info = request, info
        exchange.recipe = recipe_of(model, info, request, self.settings)
        self._answering(exchange, self.recorder.begin(self.live, exchange, exchange.recipe))

    def _history(self, exchanges: list[Exchange]) -> list[Turn]:
        turns = [system_turn(self.settings.system_prompt)] if self.settings.system_prompt.strip() else []
        for exchange in exchanges:
            if exchange.is_remembered:
                turns += [exchange.sent_user, assistant_turn(exchange.answer.text)]
        return turns

    def _request(self, family: Family, turns: list[Turn]) -> GenerateRequest:
        return make_request(family, turns, self.settings.sampling, keep=True)


def _so_many(count: int, modality: Modality) -> str:
    return f"{count} {modality}{'s' if count != 1 else ''}"
