"""The engines that answer a batch. Each takes items as it has room; one that dies is started again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress

import msgspec

from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Cancelled, Failed, Finished
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.batch.flow import ConcurrencyLevel
from vlmtui.session.batch.item import failed_at_line
from vlmtui.session.batch.work import ItemResult, Work
from vlmtui.session.generation import Answer, broken_off, new_request_id, run_turn

_log = logging.getLogger(__name__)

OpenEngine = Callable[[], Awaitable[Engine]]
"""Opens an engine, and returns once it is loaded. Raises VlmtuiError."""
Finish = Callable[[ItemResult], None]

_LOST = frozenset({ErrorKind.ENGINE_DIED, ErrorKind.NO_NETWORK, ErrorKind.PROTOCOL})
"""Failures of the engine and not of the item."""
_SUSPECT_AFTER = 2
"""After so many deaths an item is sent alone, so that it is known which one kills the engine."""
_LONE_DEATHS_MAX = 3
_RETRIES = 1
"""For failures without a reason."""
_STARTS_MAX = 8
"""Most times that an engine is started without answering anything."""
_CLOSING_S = 10.0
"""Seconds for a dead worker to end."""


class EnginePlace:
    """One engine. `serve` takes work from a queue until it is cancelled."""

    def __init__(self, open_engine: OpenEngine, engine: Engine, *, most: int | None = None) -> None:
        """`engine`: it is loaded. most: the most requests at once; None: as many as make it faster."""
        self._open = open_engine
        self._most = most
        self.engine = engine
        self.starts = 0
        """How often the engine was started again."""
        self.level = self._measure()
        self._running: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._is_lost = False
        self._starts_without_answer = 0

    @property
    def running(self) -> int:
        """Number of requests that the engine has now."""
        return len(self._running)

    async def serve(self, queue: asyncio.Queue[Work], finish: Finish) -> None:
        """Answer work. Raises VlmtuiError if the engine cannot be started again; its work is in the queue then."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._serve_next(tasks, queue, finish)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _serve_next(self, tasks: asyncio.TaskGroup, queue: asyncio.Queue[Work], finish: Finish) -> None:
        await self._until(lambda: len(self._running) < self.level.now)
        if queue.empty():
            self.level.reset()
        work = await queue.get()
        is_suspect = work.interruptions >= _SUSPECT_AFTER
        try:
            if is_suspect:
                await self._until(lambda: not self._running)
            await self._ready()
        except (VlmtuiError, asyncio.CancelledError):
            queue.put_nowait(work)
            raise
        task = tasks.create_task(self._answer(work, queue, finish, alone=is_suspect))
        self._running.add(task)
        task.add_done_callback(self._ended)
        if is_suspect:
            await self._until(lambda: not self._running)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._changed.set()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    async def _ready(self) -> None:
        """Start the engine again if it was lost; the requests that it had are told so by then."""
        if not self._is_lost:
            return
        await self._until(lambda: not self._running)
        if self._starts_without_answer >= _STARTS_MAX:
            message = f"The engine died {_STARTS_MAX} times in a row without answering anything."
            raise VlmtuiError(ErrorKind.ENGINE_DIED, message, hint="See its log.")
        self._starts_without_answer += 1
        await _leave(self.engine)
        self.engine = await self._open()
        self.level = self._measure()
        self.starts += 1
        self._is_lost = False

    async def _answer(self, work: Work, queue: asyncio.Queue[Work], finish: Finish, *, alone: bool) -> None:
        request = msgspec.structs.replace(work.request, request_id=new_request_id())
        answer = Answer(request.request_id)
        async with aclosing(run_turn(self.engine, request, answer)) as events:
            async for _ in events:
                pass
        if answer.outcome is None:
            answer.take(broken_off(request.request_id))
        match answer.outcome:
            case Finished():
                self._starts_without_answer = 0
                self.level.ended(answer.usage.prompt_tokens + answer.usage.completion_tokens, time.monotonic())
                finish(ItemResult(work.item, work.key, answer, work=work))
            case Failed(failure=failure) if failure.kind not in _LOST:
                work.failures += 1
                if failure.kind is ErrorKind.INTERNAL and work.failures <= _RETRIES:
                    queue.put_nowait(work)
                else:
                    finish(ItemResult(work.item, work.key, answer, failed_at_line(failure, work.item.line), work))
            case Failed() | Cancelled():
                self._interrupted(work, queue, finish, alone=alone)

    def _interrupted(self, work: Work, queue: asyncio.Queue[Work], finish: Finish, *, alone: bool) -> None:
        self._is_lost = True
        work.interruptions += 1
        work.lone_deaths += alone
        if work.lone_deaths < _LONE_DEATHS_MAX:
            queue.put_nowait(work)
            return
        message = f"The engine died {_LONE_DEATHS_MAX} times while it answered this item alone."
        failure = Failure(kind=ErrorKind.ENGINE_DIED, message=message)
        finish(ItemResult(work.item, work.key, None, failed_at_line(failure, work.item.line), work))

    def _measure(self) -> ConcurrencyLevel:
        return ConcurrencyLevel(self.engine.info.engine_args if self.engine.info else {}, most=self._most)


async def _leave(engine: Engine) -> None:
    """Wait for a dead engine to end; end one that only lost its connection to a server."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING_S):
            await engine.closed()
            return
    with suppress(VlmtuiError):
        await engine.shutdown()
