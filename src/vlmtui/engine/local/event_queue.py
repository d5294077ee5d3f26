"""Queues between the socket and a consumer that may be slower. Bounded; putting never waits."""

from __future__ import annotations

import asyncio
from collections import deque

from vlmtui.domain.engine import LoadProgress, LoadStage
from vlmtui.domain.generation import Delta, EngineEvent
from vlmtui.protocol.deltas import join_deltas

_DELTAS_KEPT_APART = 1024


class EventInbox:
    """A request's events in order. A consumer far behind gets several deltas as one: a backlog costs its text only."""

    def __init__(self) -> None:
        self._events: deque[EngineEvent | list[Delta]] = deque()
        self._arrived = asyncio.Event()

    def put(self, event: EngineEvent) -> None:
        if len(self._events) >= _DELTAS_KEPT_APART and isinstance(event, Delta):
            last = self._events[-1]
            if isinstance(last, list):
                last.append(event)
                return
            if isinstance(last, Delta):
                self._events[-1] = [last, event]
                return
        self._events.append(event)
        self._arrived.set()

    async def get(self) -> EngineEvent:
        while not self._events:
            self._arrived.clear()
            await self._arrived.wait()
        event = self._events.popleft()
        return join_deltas(event) if isinstance(event, list) else event


class LoadBoard:
    """The newest progress of each stage of a load. Readers see every stage, and of each what is newest."""

    def __init__(self) -> None:
        self._newest: dict[LoadStage, LoadProgress] = {}

    def put(self, progress: LoadProgress) -> None:
        self._newest[progress.stage] = progress

    def unseen(self, seen: dict[LoadStage, LoadProgress]) -> list[LoadProgress]:
        """What has changed since `seen`, in the stages' order; `seen` is brought up to date."""
        changed = [item for stage in LoadStage if (item := self._newest.get(stage)) and seen.get(stage) is not item]
        seen.update(self._newest)
        return changed
