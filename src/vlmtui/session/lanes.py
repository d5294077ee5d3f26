"""Lanes: one turn answered in several ways at the same time, each with its own prompt, sampling, engine and answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from vlmtui.domain.conversation import Turn
from vlmtui.domain.generation import Finished, GenerateRequest, PromptReady
from vlmtui.domain.parameters import PARAMETERS, Number
from vlmtui.domain.prompt import Prompt, RawPrompt, attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.build import comparison_of, side_of, with_paths
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.registry.schema import Family
from vlmtui.session.generation import (
    Answer,
    PromptMode,
    broken_off,
    make_request,
    new_request_id,
    request_for,
    run_turn,
)
from vlmtui.session.lane_plan import Plan, variants

OnChange = Callable[["Lane"], None]
"""Called after each event of a lane's answer, and when it ends."""


class LaneSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a lane asks. Known before any engine is needed."""

    request: GenerateRequest
    sampling: Sampling
    """As it was set: that of the request has the family's stop tokens besides."""
    mode: PromptMode = "chat"
    label: str = ""
    """How people tell it from the others, `seed 2`; empty where it is alone."""
    turn: Turn | None = None
    """The user's turn that it asks, where more than the request is known."""


class InFlightRequest(msgspec.Struct, frozen=True):
    """A request that the conversation itself sends: a lane only follows it, and the lanes beside it go out with it."""

    request: GenerateRequest
    answer: Answer
    sent: Callable[[], Awaitable[object]]
    """Waits until the turn is stored and its request goes out."""
    over: Callable[[], Awaitable[object]]
    """Waits until the answer has its outcome."""


@dataclass(eq=False, slots=True)
class Lane:
    """One of the requests, the engine that it is for, and its answer."""

    spec: LaneSpec
    engine: Engine
    in_flight: InFlightRequest | None = None
    answer: Answer = field(init=False)

    def __post_init__(self) -> None:
        self.answer = self.in_flight.answer if self.in_flight else Answer(self.spec.request.request_id)

    @property
    def request(self) -> GenerateRequest:
        return self.spec.request

    @property
    def is_running(self) -> bool:
        return self.answer.outcome is None

    @property
    def has_failed(self) -> bool:
        """Whether its answer ended before its end: it failed, or was stopped."""
        return not self.is_running and not isinstance(self.answer.outcome, Finished)

    async def stop(self) -> None:
        """Ask the engine to stop the answer; keep the part that came."""
        if self.is_running:
            await self.engine.cancel(self.answer.request_id)


class Lanes:
    """The lanes of one turn. They are asked together."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = tuple(lanes)

    def __len__(self) -> int:
        return len(self._lanes)

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes)

    def __getitem__(self, at: int) -> Lane:
        return self._lanes[at]

    @property
    def is_running(self) -> bool:
        return any(lane.is_running for lane in self._lanes)

    async def run(self, on_change: OnChange = lambda lane: None) -> None:
        """Ask all of them at once, and take in what comes. Each has an outcome afterwards, whatever happens; a caller
        that is cancelled cancels the requests."""
        results = await asyncio.gather(*(self._run(lane, on_change) for lane in self._lanes), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def stop(self) -> None:
        """Stop every running answer; keep the parts that came."""
        for lane in self._lanes:
            await lane.stop()

    def document(self, *, first: int = 0, generation_prompt: str = "") -> Comparison:
        """All that was asked and answered, without the attachments' bytes; the others are held against lane `first`.
        Slow for long prompts. `generation_prompt` is the family's, which helps to notice that it is missing."""
        order = [self._lanes[first], *(lane for at, lane in enumerate(self._lanes) if at != first)]
        info = order[0].engine.info
        if info is None:
            raise VlmtuiError(ErrorKind.INTERNAL, "Nothing was asked: the engine was not ready.")
        request = order[0].request
        sides = [_side(lane, own) for lane, own in zip(order, _own_values(order), strict=True)]
        attachments = attachments_of(request.prompt)
        return comparison_of(info, request.sampling, attachments, sides, generation_prompt=generation_prompt)

    async def _run(self, lane: Lane, on_change: OnChange) -> None:
        if lane.in_flight is not None:
            await lane.in_flight.over()
            on_change(lane)
            return
        for other in self._lanes:
            if other.in_flight is not None:
                await other.in_flight.sent()
        try:
            async with aclosing(run_turn(lane.engine, lane.request, lane.answer)) as events:
                async for _ in events:
                    on_change(lane)
        finally:
            if lane.is_running:
                lane.answer.take(broken_off(lane.request.request_id))
                on_change(lane)


def lane_spec(
    family: Family,
    turns: Sequence[Turn],
    sampling: Sampling,
    *,
    mode: PromptMode = "chat",
    raw: RawPrompt | None = None,
    label: str = "",
    logprobs: int | None = None,
) -> LaneSpec:
    """The turns, asked one way. `raw` is sent as it is instead of the prompt that the family's record writes.

    Raises VlmtuiError where the family cannot take the conversation.
    """
    if raw is not None:
        request = request_for(raw, family, sampling, logprobs=logprobs)
    else:
        request = make_request(family, turns, sampling, mode=mode, logprobs=logprobs)
    return LaneSpec(request=request, sampling=sampling, mode=mode, label=label, turn=turns[-1])


def planned_specs(
    plan: Plan,
    family: Family,
    turns: Sequence[Turn],
    sampling: Sampling,
    *,
    mode: PromptMode = "chat",
    raw: RawPrompt | None = None,
    logprobs: int | None = None,
) -> list[LaneSpec]:
    """The turns, asked in all ways of a plan. Raises VlmtuiError where the family cannot take one of them."""
    return [
        lane_spec(
            family,
            [*turns[:-1], variant.turn],
            variant.sampling,
            mode=mode,
            raw=raw,
            label=variant.label,
            logprobs=logprobs,
        )
        for variant in variants(plan, turns[-1], sampling)
    ]


def recorded_specs(comparison: Comparison, paths: Mapping[str, str]) -> list[LaneSpec]:
    """A document's sides, to be asked again. `paths` says where the attachments are, by their SHA-256.

    Raises KeyError where one is missing, and ValueError for a side of which nobody knows what was asked.
    """
    return [_recorded(comparison, side, paths) for side in comparison.sides]


def recorded_side(
    mode: PromptMode,
    answer: Answer | None,
    prompt: PromptReady | None,
    *,
    request: Prompt | None = None,
    label: str = "",
) -> Side:
    """A prompt and what was answered to it, as a document has them; `answer` None: it was not asked yet."""
    return side_of(
        mode,
        prompt,
        text=answer.text if answer else "",
        token_ids=answer.token_ids if answer else (),
        vocabulary=answer.vocabulary if answer else {},
        logprobs=(answer.logprobs or None) if answer else None,
        outcome=answer.outcome if answer else None,
        request=request,
        label=label,
    )


def _recorded(comparison: Comparison, side: Side, paths: Mapping[str, str]) -> LaneSpec:
    if side.request is None:
        raise ValueError("A side without its request cannot be asked again.")
    sampling = msgspec.structs.replace(comparison.sampling, **side.sampling)
    top = max((len(one.top) for one in side.logprobs), default=0) if side.logprobs else None
    request = GenerateRequest(
        request_id=new_request_id(), prompt=with_paths(side.request, paths), sampling=sampling, logprobs=top
    )
    return LaneSpec(request=request, sampling=sampling, mode=side.mode, label=side.label)


def _own_values(lanes: Sequence[Lane]) -> list[dict[str, Number | None]]:
    """For each lane the sampling parameters in which the lanes differ."""
    values = [{name: getattr(lane.request.sampling, name) for name in PARAMETERS} for lane in lanes]
    differing = [name for name in PARAMETERS if any(one[name] != values[0][name] for one in values)]
    return [{name: one[name] for name in differing} for one in values]


def _side(lane: Lane, own: dict[str, Number | None]) -> Side:
    spec = lane.spec
    label = "" if spec.label == spec.mode else spec.label
    side = recorded_side(spec.mode, lane.answer, lane.answer.prompt, request=spec.request.prompt, label=label)
    return msgspec.structs.replace(side, sampling=own)
