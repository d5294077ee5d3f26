"""Lanes: one turn answered in several ways at the same time, each with its own prompt, sampling, engine and answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Turn
from vlmtui.domain.dials import no_dials
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import Cancelled, Finished, GenerateRequest, PromptReady, Timings, Usage
from vlmtui.domain.parameters import PARAMETERS, Number
from vlmtui.domain.prompt import Prompt, RawPrompt, attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.inspection.build import comparison_of, fingerprint_of, side_of, with_paths
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.registry.schema import Family
from vlmtui.session.adapters import recorded_folder
from vlmtui.session.generation import (
    Answer,
    PromptMode,
    broken_off,
    make_request,
    new_request_id,
    request_for,
    run_turn,
)
from vlmtui.session.lane_plan import ADAPTER, Plan, variants
from vlmtui.session.picture_changes import PictureMap
from vlmtui.text import one_line

OnChange = Callable[["Lane"], None]
"""Called after each event of a lane's answer, and when it ends."""


class LaneSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A lane's request. Needs no engine."""

    request: GenerateRequest
    sampling: Sampling
    """As set by the user, without the family's stop tokens that the request adds."""
    mode: PromptMode = "chat"
    label: str = ""
    """Label shown to people, `seed 2`; empty for a single lane."""
    turns: tuple[Turn, ...] = ()
    """The turns to send, the user's turn behind the request last; empty if unknown."""

    @property
    def turn(self) -> Turn | None:
        """The user's turn behind the request, if known."""
        return self.turns[-1] if self.turns else None


class InFlightRequest(msgspec.Struct, frozen=True):
    """A request sent by the conversation itself: a lane only follows it, and other lanes start together with it."""

    request: GenerateRequest
    answer: Answer
    sent: Callable[[], Awaitable[object]]
    """Returns when the turn is stored and its request is being sent."""
    over: Callable[[], Awaitable[object]]
    """Returns when the answer has its outcome."""


@dataclass(eq=False, slots=True)
class Lane:
    """A request, its engine, and its answer."""

    spec: LaneSpec
    engine: Engine | None
    """None until it is loaded (`session.lane_engines`)."""
    in_flight: InFlightRequest | None = None
    answer: Answer = field(init=False)
    waits_for: str = ""
    """What it waits for before it is sent, in words; empty: nothing."""

    def __post_init__(self) -> None:
        self.answer = self.in_flight.answer if self.in_flight else Answer(self.spec.request.request_id)

    @property
    def request(self) -> GenerateRequest:
        return self.spec.request

    @property
    def info(self) -> EngineInfo | None:
        """The facts of its engine; None before that is loaded."""
        return self.engine.info if self.engine is not None else None

    @property
    def is_running(self) -> bool:
        return self.answer.outcome is None

    @property
    def has_failed(self) -> bool:
        """Whether its answer failed or was stopped."""
        return not self.is_running and not isinstance(self.answer.outcome, Finished)

    async def stop(self) -> None:
        """Ask the engine to stop the answer; keep the part that came. One that waits for its engine is not sent."""
        if self.is_running and self.engine is None:
            not_sent = Cancelled(request_id=self.request.request_id, usage=Usage(), timings=Timings())
            self.answer.take(not_sent)
        elif self.is_running and self.engine is not None:
            await self.engine.cancel(self.answer.request_id)


class Lanes:
    """The lanes of one turn, sent together."""

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
        """Send the requests of all lanes with an engine at once and receive the answers. Each of them has an outcome
        afterwards; cancelling the caller cancels the requests."""
        ready = [(lane, lane.engine) for lane in self._lanes if lane.engine is not None and lane.is_running]
        runs = (self._run(lane, engine, on_change) for lane, engine in ready)
        results = await asyncio.gather(*runs, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def stop(self) -> None:
        """Stop every running answer; keep the parts that came."""
        for lane in self._lanes:
            await lane.stop()

    def document(self, *, first: int = 0, generation_prompt: str = "") -> Comparison:
        """Return requests and answers as a document, without the attachments' bytes; lane `first` is the base of the
        differences. Slow for long prompts. `generation_prompt` is the family's, to detect that it is missing."""
        order = [self._lanes[first], *(lane for at, lane in enumerate(self._lanes) if at != first)]
        info = next((lane.info for lane in order if lane.info is not None), None)
        if info is None:
            raise VlmtuiError(ErrorKind.INTERNAL, "No request was sent: the engine was not ready.")
        request = order[0].request
        sides = [_side(lane, own, info, request.sampling) for lane, own in zip(order, _own_values(order), strict=True)]
        return comparison_of(
            info, request.sampling, self.attachments(first), sides, generation_prompt=generation_prompt
        )

    def attachments(self, first: int = 0) -> tuple[Attachment, ...]:
        """Return every attachment that a lane sends: those of lane `first` in placeholder order, then the others."""
        own = attachments_of(self._lanes[first].request.prompt)
        known = {item.sha256 for item in own}
        others = {item.sha256: item for lane in self._lanes for item in attachments_of(lane.request.prompt)}
        return (*own, *(item for sha256, item in others.items() if sha256 not in known))

    async def _run(self, lane: Lane, engine: Engine, on_change: OnChange) -> None:
        if lane.in_flight is not None:
            await lane.in_flight.over()
            on_change(lane)
            return
        for other in self._lanes:
            if other.in_flight is not None:
                await other.in_flight.sent()
        try:
            async with aclosing(run_turn(engine, lane.request, lane.answer)) as events:
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
    adapter: str = "",
) -> LaneSpec:
    """Return the spec for the turns. `raw` replaces the prompt from the family's record; `adapter` is the folder of a
    LoRA adapter.

    Raises VlmtuiError if the family does not accept the conversation.
    """
    if raw is not None:
        request = request_for(raw, family, sampling, logprobs=logprobs, adapter=adapter)
    else:
        request = make_request(family, turns, sampling, mode=mode, logprobs=logprobs, adapter=adapter)
    return LaneSpec(request=request, sampling=sampling, mode=mode, label=label, turns=tuple(turns))


def planned_specs(
    plan: Plan,
    family: Family,
    turns: Sequence[Turn],
    sampling: Sampling,
    *,
    mode: PromptMode = "chat",
    raw: RawPrompt | None = None,
    logprobs: int | None = None,
    adapter: str = "",
    pictures: PictureMap | None = None,
    families: Mapping[str, Family] | None = None,
) -> list[LaneSpec]:
    """Return a spec for each variant of a plan. `adapter`: the folder of the LoRA adapter where the plan does not vary
    it. `pictures`: the result of `changed_pictures` for the plan. `families`: by the label of a variant, where its
    engine's model is of another one. Raises VlmtuiError if the family does not
    accept one."""
    return [
        lane_spec(
            (families or {}).get(variant.label, family),
            variant.turns,
            variant.sampling,
            mode=mode,
            raw=raw,
            label=variant.label,
            logprobs=logprobs,
            adapter=variant.adapter if plan.parameter == ADAPTER else adapter,
        )
        for variant in variants(plan, turns, sampling, pictures)
    ]


def recorded_specs(comparison: Comparison, paths: Mapping[str, str]) -> list[LaneSpec]:
    """Return specs that repeat a document's sides. `paths` maps the SHA-256 of the attachments to files.

    Raises KeyError if one is missing, and ValueError for a side without a recorded request.
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
    """Return a prompt and its answer as a side of a document; `answer` None: not requested yet."""
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
        raise ValueError("A side without its request cannot be run again.")
    sampling = side.own or msgspec.structs.replace(comparison.sampling, **side.sampling)
    if names := no_dials(sampling.extra):
        message = f"The document sets {one_line(', '.join(names))}, which no document can set."
        raise bad_input(message, hint="Ask again with `vlmtui ask` and the settings that you want.")
    top = max((len(one.top) for one in side.logprobs), default=0) if side.logprobs else None
    request = GenerateRequest(
        request_id=new_request_id(),
        prompt=with_paths(side.request, paths),
        sampling=sampling,
        logprobs=top,
        adapter=str(Path(side.adapter).expanduser()) if side.adapter else "",
    )
    return LaneSpec(request=request, sampling=sampling, mode=side.mode, label=side.label)


def _own_values(lanes: Sequence[Lane]) -> list[dict[str, Number | None]]:
    """Return for each lane the sampling parameters that differ between lanes."""
    values = [{name: getattr(lane.request.sampling, name) for name in PARAMETERS} for lane in lanes]
    differing = [name for name in PARAMETERS if any(one[name] != values[0][name] for one in values)]
    return [{name: one[name] for name in differing} for one in values]


def _side(lane: Lane, own: dict[str, Number | None], info: EngineInfo, first: Sampling) -> Side:
    spec = lane.spec
    label = "" if spec.label == spec.mode else spec.label
    side = recorded_side(spec.mode, lane.answer, lane.answer.prompt, request=spec.request.prompt, label=label)
    other = fingerprint_of(lane.info) if lane.info is not None and lane.info is not info else None
    used = lane.request.sampling
    is_alike = msgspec.structs.replace(first, **own) == used
    return msgspec.structs.replace(
        side,
        adapter=recorded_folder(spec.request.adapter),
        sampling=own,
        engine=other,
        own=None if is_alike else used,
    )
