"""Answers of lanes on several engines: loaded together, or one after the other where memory does not allow both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Failed
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError
from vlmtui.registry.match import Model
from vlmtui.session.lanes import Lanes, OnChange


class EngineSource(Protocol):
    """Loads engines for lanes."""

    async def has_room(self, model: Model) -> bool:
        """Return whether the model can be loaded beside what is loaded now; True where it is loaded already."""
        ...

    async def open(self, model: Model) -> Engine:
        """Return the loaded engine with this model. Raises VlmtuiError."""
        ...

    async def make_room(self) -> None:
        """Unload what takes memory of this machine; return when it has ended."""
        ...


async def answer_in_turns(
    lanes: Lanes,
    models: Sequence[Model],
    source: EngineSource,
    on_change: OnChange = lambda lane: None,
    *,
    names: Mapping[str, str] | None = None,
) -> None:
    """Give each lane the engine of its model and run them: all together where memory allows, else those that are
    loaded answer first, and make room for the next. A lane whose engine can't be loaded fails; the others go on.
    Cancelling the caller cancels the requests. `names`: the engines' by the lanes' labels, where they differ."""
    for lane in lanes:
        if lane.engine is None:
            lane.waits_for = "its engine"
    for lane, model in zip(lanes, models, strict=True):
        if lane.engine is not None or not lane.is_running:
            continue
        if not await source.has_room(model):
            _tell_waiting(lanes, "memory: it loads after the answers before it", on_change)
            await lanes.run(on_change)
            if lane.answer.outcome is not None:  # stopped while it waited
                continue
            await source.make_room()
        lane.waits_for = f"{(names or {}).get(lane.spec.label, lane.spec.label)} to load"
        on_change(lane)
        try:
            lane.engine = await source.open(model)
        except VlmtuiError as error:
            lane.answer.take(Failed(request_id=lane.request.request_id, failure=Failure.of(error)))
        lane.waits_for = ""
        on_change(lane)
    await lanes.run(on_change)


def _tell_waiting(lanes: Lanes, reason: str, on_change: OnChange) -> None:
    for lane in lanes:
        if lane.engine is None and lane.is_running:
            lane.waits_for = reason
            on_change(lane)
