"""Bounded queues between the socket and slower consumers. `put` never blocks."""

from __future__ import annotations

import asyncio
from collections import deque

from vlmtui.domain.engine import LoadProgress, LoadStage
from vlmtui.domain.generation import Delta, EngineEvent
from vlmtui.protocol.deltas import join_deltas

_MERGE_AFTER = 1024
"""Number of queued events after which new deltas are merged."""


class EventQueue:
    """A request's events in order. For a slow consumer, deltas are merged, so that a backlog only costs its text.
    `streams`: the answer comes in many deltas, and somebody reads along."""

    def __init__(self, *, streams: bool = True) -> None:
        self.streams = streams
        self._events: deque[EngineEvent | list[Delta]] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: EngineEvent) -> None:
        if len(self._events) >= _MERGE_AFTER and isinstance(event, Delta):
            last = self._events[-1]
            if isinstance(last, list):
                last.append(event)
                return
            if isinstance(last, Delta):
                self._events[-1] = [last, event]
                return
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> EngineEvent:
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        event = self._events.popleft()
        return join_deltas(event) if isinstance(event, list) else event


class LatestProgress:
    """The latest progress of each load stage. Readers see every stage, but only its latest progress."""

    def __init__(self) -> None:
        self._newest: dict[LoadStage, LoadProgress] = {}

    def put(self, progress: LoadProgress) -> None:
        self._newest[progress.stage] = progress

    def unseen(self, seen: dict[LoadStage, LoadProgress]) -> list[LoadProgress]:
        """Return the progress that has changed since `seen`, in stage order, and update `seen`."""
        changed = [item for stage in LoadStage if (item := self._newest.get(stage)) and seen.get(stage) is not item]
        seen.update(self._newest)
        return changed
