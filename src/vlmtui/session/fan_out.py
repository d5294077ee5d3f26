"""A fan-out: one turn asked several ways at the same time, and one of the answers chosen."""

from __future__ import annotations

from collections.abc import Sequence

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Turn
from vlmtui.domain.parameters import PARAMETERS
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import bad_input
from vlmtui.inspection.answer_diff import AnswerDiff, answer_diff
from vlmtui.inspection.replay import Comparison
from vlmtui.registry.match import Model
from vlmtui.registry.schema import Family
from vlmtui.session.changed_since import sampling_since
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.exchange import Exchange
from vlmtui.session.lane_engines import LaneEngines
from vlmtui.session.lane_plan import Plan
from vlmtui.session.lanes import Lane, Lanes, planned_specs
from vlmtui.session.likelihood import LaneScore, is_unchanged, score_lanes, verdict
from vlmtui.session.picture_changes import PictureMap
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.resume import Generation


class FanOut:
    """The lanes of a plan. `turns` are the turns to send; the last one is fanned out.

    Raises VlmtuiError if the family does not accept a variant.
    """

    def __init__(
        self,
        plan: Plan,
        family: Family,
        turns: Sequence[Turn],
        sampling: Sampling,
        engine: Engine,
        *,
        adapter: str = "",
        pictures: PictureMap | None = None,
        engines: LaneEngines | None = None,
    ) -> None:
        """`adapter`: the folder of the LoRA adapter where the plan does not vary it. `pictures`: those that
        `changed_pictures` made for the plan. `engines`: those of a plan over engines."""
        self.plan = plan
        self.sampling = sampling
        self.base = 0
        """The lane that the others are compared with."""
        self.question = turns[-1].text
        self.turns = tuple(turns)
        """As they would be sent without a plan."""
        self._engines = engines
        self.models = dict(engines.models) if engines is not None else {}
        """By the label of its lane, where it is not the conversation's."""
        families = {name: model.family for name, model in self.models.items()}
        specs = planned_specs(plan, family, turns, sampling, adapter=adapter, pictures=pictures, families=families)
        used = [engines.loaded(spec.label) if engines is not None else engine for spec in specs]
        self.lanes = Lanes([Lane(spec, one) for spec, one in zip(specs, used, strict=True)])

    @property
    def is_running(self) -> bool:
        return self.lanes.is_running

    async def run(self) -> None:
        """Send all requests and receive the answers. Each lane has an outcome afterwards."""
        if self._engines is None:
            await self.lanes.run()
        else:
            await self._engines.run(self.lanes)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The attachments of all requests, those of the first in the order of its placeholders."""
        return self.lanes.attachments()

    def changed_since(self, now: Sampling) -> str:
        """Describe the sampling parameters that were changed since, besides those of the plan; empty if there are
        none."""
        return sampling_since(self.sampling, now, besides={self.plan.parameter, *self.plan.fixed} & PARAMETERS.keys())

    def difference(self, number: int) -> AnswerDiff | None:
        """Compare lane `number` (right) with the base (left); None if it is the base, or if one has not ended. Slow
        for long answers with little in common."""
        base, other = self.lanes[self.base], self.lanes[number]
        if base is other or base.is_running or other.is_running:
            return None
        ids = (base.answer.token_ids or None, other.answer.token_ids or None)
        return answer_diff(base.answer.text, other.answer.text, *ids)

    async def scores(self) -> list[LaneScore | None]:
        """How likely the base's answer is under the others' prompts, where the plan changes those; None for the base.
        Raises VlmtuiError."""
        if not self.plan.changes_prompt:
            return [None] * len(self.lanes)
        return await score_lanes(self.lanes, self.base)

    def verdict(self, scores: Sequence[LaneScore | None]) -> str:
        """What the scores say of pictures or adapter; empty where nothing, or where the base was changed."""
        return verdict(self.plan, scores) if is_unchanged(self.plan, self.base) else ""

    def document(self) -> Comparison:
        """Return all answers as a document, the base first. Slow for long prompts."""
        return self.lanes.document(first=self.base)

    def report(self, number: int) -> PromptReport:
        """Return one lane for the inspector."""
        lane = self.lanes[number]
        return PromptReport.of_answer(lane.spec.label, lane.answer, request=lane.request, info=lane.info)


async def choose_lane(fan_out: FanOut, chosen: int, message: ComparedMessage, model: Model) -> Exchange:
    """Continue the conversation with lane `chosen`, and store it; lanes with the same message become its other answers.

    Raises VlmtuiError if the lane has no answer, an answer is running, or another message follows.
    """
    lane = fan_out.lanes[chosen]
    if lane.is_running or not lane.answer.text:
        raise bad_input("There is no answer to use.")
    if lane.spec.turns[:-1] != fan_out.turns[:-1]:
        raise bad_input("The chat cannot continue with this answer: what comes before its message was changed, too.")
    same = [other for other in fan_out.lanes if other.spec.turns == lane.spec.turns and other is not lane]
    first, *rest = [*(other for other in same if not other.is_running and other.answer.text), lane]

    def made(one: Lane) -> Generation:
        of = fan_out.models.get(one.spec.label, model)
        return Generation(one.request, one.answer, of, one.info, one.spec.mode, one.spec.sampling)

    exchange = await _first_answer(first, message, made(first))
    for one in rest:
        await message.conversation.adopt(exchange, made(one))
    return exchange


async def _first_answer(lane: Lane, message: ComparedMessage, made: Generation) -> Exchange:
    """Add the answer to its exchange, or to a new one for a draft or another wording."""
    conversation, exchange, turn = message.conversation, message.exchange, lane.spec.turn
    assert turn is not None
    if exchange is None or turn != exchange.user:
        return await conversation.fork(turn, made, instead_of=exchange)
    await conversation.adopt(exchange, made)
    return exchange
