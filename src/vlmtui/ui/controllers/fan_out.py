"""One turn asked several ways at the same time, in one engine. No widgets here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Turn
from vlmtui.domain.engine import EngineInfo, Failed, Failure, Finished, GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.session import Answer, make_request, run_turn
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.answer_diff import AnswerDiff, answer_diff
from vlmtui.inspection.made import comparison_of, side_of
from vlmtui.inspection.replay import Comparison
from vlmtui.registry.match import Model
from vlmtui.registry.schema import Family
from vlmtui.ui.controllers.chat import Exchange
from vlmtui.ui.controllers.chat_settings import ChatSettings
from vlmtui.ui.controllers.compared_turn import ComparedTurn
from vlmtui.ui.controllers.exchange import Siblings
from vlmtui.ui.controllers.fan_plan import Plan, Variant, variants
from vlmtui.ui.controllers.folded_prompt import attachments_of
from vlmtui.ui.controllers.inspecting import Inspected
from vlmtui.ui.controllers.recipes import recipe_of


@dataclass(eq=False, slots=True)
class Lane:
    """One of the requests, and its answer."""

    variant: Variant
    request: GenerateRequest
    answer: Answer

    @property
    def is_running(self) -> bool:
        return self.answer.outcome is None

    @property
    def has_failed(self) -> bool:
        """Whether it has ended before its end."""
        return not self.is_running and not isinstance(self.answer.outcome, Finished)


class FanOutController:
    """The lanes of one plan. `turns` are all that is sent, the turn that is fanned out the last of them.

    Raises VlmtuiError where the family cannot take a variant.
    """

    def __init__(self, plan: Plan, family: Family, turns: Sequence[Turn], sampling: Sampling, info: EngineInfo) -> None:
        self.plan = plan
        self.info = info
        self.sampling = sampling
        self.base = 0
        """Which lane the others are held against."""
        self.lanes: list[Lane] = []
        for variant in variants(plan, turns[-1], sampling):
            request = make_request(family, [*turns[:-1], variant.turn], variant.sampling)
            self.lanes.append(Lane(variant, request, Answer(request.request_id)))

    @property
    def is_running(self) -> bool:
        return any(lane.is_running for lane in self.lanes)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """What every request gives the model, in the order of the placeholders."""
        return attachments_of(self.lanes[0].request.prompt)

    async def run(self, engine: Engine) -> None:
        """Ask all of them at once, and take in what comes. Each has an outcome afterwards, whatever happens."""
        results = await asyncio.gather(*(_follow(engine, lane) for lane in self.lanes), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def stop(self, engine: Engine) -> None:
        """Stop what is running; what has come stays."""
        for lane in self.lanes:
            if lane.is_running:
                await engine.cancel(lane.request.request_id)

    def difference(self, number: int) -> AnswerDiff | None:
        """Lane `number` (right) held against the base (left); None where that is itself, or one has not ended. Slow for
        long answers that have little in common."""
        base, other = self.lanes[self.base], self.lanes[number]
        if base is other or base.is_running or other.is_running:
            return None
        ids = (base.answer.token_ids or None, other.answer.token_ids or None)
        return answer_diff(base.answer.text, other.answer.text, *ids)

    def comparison(self) -> Comparison:
        """The answers that are there as a document, the base first."""
        order = [self.lanes[self.base], *(lane for at, lane in enumerate(self.lanes) if at != self.base)]
        sides = [
            side_of(
                "chat",
                lane.answer.prompt,
                text=lane.answer.text,
                token_ids=lane.answer.token_ids,
                vocabulary=lane.answer.vocabulary,
                logprobs=lane.answer.logprobs or None,
                outcome=lane.answer.outcome,
                label=lane.variant.label,
                seed=lane.variant.sampling.seed if self.plan.parameter == "seed" else None,
                temperature=lane.variant.sampling.temperature if self.plan.parameter == "temperature" else None,
                request=lane.request.prompt,
            )
            for lane in order
        ]
        return comparison_of(self.info, order[0].variant.sampling, self.attachments, sides)

    def inspected(self, number: int) -> Inspected:
        """One lane, for the inspector."""
        lane = self.lanes[number]
        return Inspected.of_answer(lane.variant.label, lane.answer, request=lane.request, info=self.info)


async def choose(controller: FanOutController, chosen: int, compared: ComparedTurn, model: Model) -> Exchange:
    """Let the conversation go on with lane `chosen`, and store it; lanes that asked the same message stay as its other
    answers.

    Raises VlmtuiError where the answer is not there, another is under way, or another message follows by now.
    """
    chat, lane = compared.chat, controller.lanes[chosen]
    if lane.is_running or not lane.answer.text:
        raise _not_possible("There is no answer to go on with.")
    if chat.running is not None:
        raise _not_possible("An answer is under way: Esc stops it.")
    same = [other for other in controller.lanes if other.variant.turn == lane.variant.turn and other is not lane]
    order = [*(other for other in same if not other.is_running and other.answer.text), lane]
    exchange = _exchange(compared, order[0])
    for one in order:
        if exchange.answer is not one.answer:
            exchange.earlier.append(exchange.answer)
            count = exchange.answer_siblings.count + 1
            exchange.answer_siblings = Siblings(count, count)
            exchange.answer, exchange.answer_id = one.answer, None
        exchange.request, exchange.info = one.request, controller.info
        settings = ChatSettings(chat.settings.system_prompt, one.variant.sampling)
        exchange.recipe = recipe_of(model, controller.info, one.request, settings)
        chat.live.model = model.spec.name
        chat.recorder.begin(chat.live, exchange, exchange.recipe)
        await chat.record()
    return exchange


def _exchange(compared: ComparedTurn, first: Lane) -> Exchange:
    """The exchange that is answered: the one that was there, or a new one for a draft or another wording."""
    chat, old = compared.chat, compared.exchange
    if old is not None and not compared.is_last:
        raise _not_possible("Another message follows this one by now.")
    if old is not None and first.variant.turn == old.user:
        return old
    replaced = chat.editing if old is None else old
    before = chat.exchanges if replaced is None else chat.exchanges[: chat.exchanges.index(replaced)]
    above = replaced.above if replaced is not None else before[-1] if before else None
    exchange = Exchange(first.variant.turn, first.answer, above=above)
    if replaced is not None:
        count = replaced.user_siblings.count + 1
        exchange.user_siblings = Siblings(count, count)
    chat.exchanges = [*before, exchange]
    if old is None:
        chat.editing = None
        chat.draft.clear()
        chat.draft_changed()
    return exchange


async def _follow(engine: Engine, lane: Lane) -> None:
    try:
        async with aclosing(run_turn(engine, lane.request)) as events:
            async for event, _ in events:
                lane.answer.take(event)
    finally:
        if lane.is_running:
            lost = Failure(kind=ErrorKind.ENGINE_DIED, message="The answer was interrupted.")
            lane.answer.take(Failed(request_id=lane.request.request_id, failure=lost))


def _not_possible(message: str) -> VlmtuiError:
    return VlmtuiError(ErrorKind.BAD_USAGE, message)
