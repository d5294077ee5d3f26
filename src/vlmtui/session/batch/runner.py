"""Runs a batch: as many items at once as keep the engine busy, each read, prepared, asked and written."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field

import msgspec

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Cancelled, Failed, Finished, GenerateRequest
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.batch.item import BadItem, failed_at_line
from vlmtui.session.batch.job import BatchJob, ItemResult, engine_key
from vlmtui.session.batch.media_desk import Copy, MediaDesk
from vlmtui.session.batch.output import MetItem
from vlmtui.session.generation import Answer, whole_answer

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
_AT_ONCE = 32
"""Requests at once where the engine does not say how many it runs together; most for one that runs few
together, which gets four times as many: they end so often that it would run dry while the next are on
their way."""
_PREPARING_MAX = max(8, min(16, os.cpu_count() or 8))
"""Items whose media are downloaded and opened at the same time; only their lines are held in memory."""


@dataclass(slots=True)
class Tally:
    """Counts of a run."""

    answered: int = 0
    failed: int = 0
    answered_before: int = 0
    """Answered by an earlier run."""
    failed_before: int = 0
    """Failed in an earlier run, and not tried again."""
    changed: int = 0
    """Answered by an earlier run, and asked again as the item or the engine has changed."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def done(self) -> int:
        """Items that this run is through with."""
        return self.answered + self.failed + self.answered_before + self.failed_before

    def count(self, result: ItemResult) -> None:
        """Count a result of this run."""
        self.answered += result.is_answered
        self.failed += not result.is_answered
        if result.answer is not None:
            self.prompt_tokens += result.answer.usage.prompt_tokens
            self.completion_tokens += result.answer.usage.completion_tokens

    def add(self, other: Tally) -> None:
        """Add the counts of other items."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BatchEngine:
    """The engine that answers a batch. One that dies is started again, and its requests are repeated."""

    def __init__(self, open_engine: Callable[[], Awaitable[Engine]], engine: Engine, *, most: int | None = None):
        """`engine`: it is loaded. open_engine: opens another one, and returns once it is loaded; raises
        VlmtuiError. most: the most requests at once; None: twice as many as the engine runs together,
        so that it never runs dry."""
        assert engine.info is not None, "the engine is loaded"
        self.engine = engine
        self.info: EngineInfo = engine.info
        known = self.info.engine_args.get("max_num_seqs")
        at_once = max(2 * known, min(4 * known, _AT_ONCE)) if isinstance(known, int) and known > 0 else _AT_ONCE
        self.at_once = at_once if most is None else min(at_once, most)
        self._open = open_engine
        self._slots = asyncio.Semaphore(self.at_once)
        self._taking_all = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._lost: Engine | None = None
        """The latest engine that died."""
        self._starts_without_answer = 0

    async def answer(self, request: GenerateRequest) -> tuple[Answer | None, Failure | None]:
        """Return the answer, complete or with the reason why it failed. Raises VlmtuiError if the engine
        cannot be started again."""
        interruptions = lone_deaths = failures = 0
        while True:
            is_suspect = interruptions >= _SUSPECT_AFTER
            async with self._alone() if is_suspect else self._slots:
                engine = await self._started()
                answer = await whole_answer(engine, request)
            match answer.outcome:
                case Finished():
                    self._starts_without_answer = 0
                    return answer, None
                case Failed(failure=failure) if failure.kind not in _LOST:
                    failures += 1
                    if failure.kind is not ErrorKind.INTERNAL or failures > _RETRIES:
                        return answer, failure
                case Failed() | Cancelled():
                    self._lost = engine
                    interruptions += 1
                    lone_deaths += is_suspect
                    if lone_deaths == _LONE_DEATHS_MAX:
                        message = f"The engine died {_LONE_DEATHS_MAX} times while it answered this item alone."
                        return None, Failure(kind=ErrorKind.ENGINE_DIED, message=message)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Hold all slots."""
        async with self._taking_all:
            held = 0
            try:
                for _ in range(self.at_once):
                    await self._slots.acquire()
                    held += 1
                yield
            finally:
                for _ in range(held):
                    self._slots.release()

    async def _started(self) -> Engine:
        """Return the engine, which is started again if it died."""
        async with self._starting:
            if self._lost is self.engine:
                if self._starts_without_answer >= _STARTS_MAX:
                    message = f"The engine died {_STARTS_MAX} times in a row without answering anything."
                    raise VlmtuiError(ErrorKind.ENGINE_DIED, message, hint="See its log.")
                self._starts_without_answer += 1
                await _leave(self.engine)
                self.engine = await self._open()
            return self.engine


async def _leave(engine: Engine) -> None:
    """Wait for a dead engine to end; end one that only lost its connection to a server."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING_S):
            await engine.closed()
            return
    with suppress(VlmtuiError):
        await engine.shutdown()


async def check_media_cache(engine: BatchEngine, results: Sequence[ItemResult]) -> tuple[list[str], list[str]]:
    """Send answered items again with the identifiers of their media alone, each with the seed that was
    drawn for it. Return the ids of items whose media the engine's cache did not hold, and of items with
    another answer or another length of the prompt.

    Raises VlmtuiError if the engine can't do that, or a request fails for another reason."""
    require_capability(engine.info, "media_by_id")

    def again(result: ItemResult) -> GenerateRequest:
        assert result.request is not None and result.answer is not None, "it was answered"
        sampling, used = result.request.sampling, result.answer.used
        if used is not None:
            sampling = msgspec.structs.replace(sampling, seed=used.seed)
        return msgspec.structs.replace(result.request, from_cache=True, sampling=sampling)

    found = await asyncio.gather(*(engine.answer(again(one)) for one in results))
    misses, different = [], []
    for one, (now, failure) in zip(results, found, strict=True):
        then, name = one.answer, one.item.id or ""
        if failure is not None and failure.kind is ErrorKind.NOT_KEPT:
            misses.append(name)
        elif failure is not None:
            raise failure.error()
        elif (
            now is None or then is None or (now.text, now.usage.prompt_tokens) != (then.text, then.usage.prompt_tokens)
        ):
            different.append(name)
    return misses, different


async def answer_items(
    job: BatchJob,
    items: Iterator[MetItem],
    engine: BatchEngine,
    write: Callable[[Sequence[bytes]], None],
    tally: Tally,
    written: Callable[[Sequence[ItemResult]], None] = lambda results: None,
) -> None:
    """Answer every item that is not answered yet. `items` and `write` block, and are used in one thread
    at a time. `written` is called with each group of results, once their lines are on disk.

    Raises VlmtuiError if the input, the output or the engine fails. However it ends, also if it is
    cancelled: every answer that was complete is written."""
    of_engine = await asyncio.to_thread(engine_key, engine.info)
    with closing(MediaDesk(job.cache, num_frames=job.num_frames)) as desk:
        await _Run(job, engine, of_engine, desk, write, tally, written).run(items)


@dataclass(slots=True)
class _Run:
    """One run over items. Each gets one line, or keeps the one that it has."""

    job: BatchJob
    engine: BatchEngine
    engine_key: str
    desk: MediaDesk
    write: Callable[[Sequence[bytes]], None]
    tally: Tally
    written: Callable[[Sequence[ItemResult]], None]
    results: asyncio.Queue[ItemResult | None] = field(default_factory=asyncio.Queue)
    """Results to be written; None: no more will come."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_read: bool = False
    preparing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PREPARING_MAX))

    async def run(self, items: Iterator[MetItem]) -> None:
        answering, writing = asyncio.create_task(self._answer_all(items)), asyncio.create_task(self._write_all())
        try:
            await asyncio.wait({answering, writing}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():  # otherwise it failed, which is raised below
                await answering
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            self.results.put_nowait(None)
            await writing

    async def _answer_all(self, items: Iterator[MetItem]) -> None:
        """Have workers take one item after another: as many as the engine takes, and others that prepare
        the next ones meanwhile."""
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self.engine.at_once + 2 * _PREPARING_MAX):
                    workers.create_task(self._work(items))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _work(self, items: Iterator[MetItem]) -> None:
        while not self.is_read:
            copies: list[Copy] = []
            try:
                async with self.preparing:
                    result = await self._next(items, copies)
                if result is not None and result.request is not None:
                    result.answer, failure = await self.engine.answer(result.request)
                    result.ended = time.time()
                    if failure is not None:
                        result.failure = failed_at_line(failure.error(), result.item.line)
                if result is not None:
                    self.results.put_nowait(result)
            finally:
                await self.desk.release(copies)

    async def _next(self, items: Iterator[MetItem], copies: list[Copy]) -> ItemResult | None:
        """Return the next item as `_prepared` does; None also behind the last one."""
        async with self.reading:
            met = None if self.is_read else await asyncio.to_thread(next, items, None)
            self.is_read = met is None
        return None if met is None else await self._prepared(met, copies)

    async def _prepared(self, met: MetItem, copies: list[Copy]) -> ItemResult | None:
        """Return an item with its request, or with the reason why there is none; None: it keeps the line
        that it has. copies: takes those of the request."""
        item, was_answered = met.item, met.key is not None and not met.failed
        key = ""
        try:
            if isinstance(item, BadItem):
                raise item.failure.error()
            contents = await asyncio.to_thread(lambda: [self.desk.content(source) for source in item.sources])
            key = self.job.key(item, contents, self.desk.sampling, self.engine_key)
            if met.key == key:
                self.tally.answered_before += was_answered
                self.tally.failed_before += met.failed
                return None
            for source, content in zip(item.sources, contents, strict=True):
                copies.append(await self.desk.prepare(source, content))
            attachments = tuple(copy.attachment for copy in copies)
            request = self.job.request(item, attachments)
            self.job.check_raw(request, self.engine.info)
            self.tally.changed += was_answered
            return ItemResult(item.without_media(), key, request=request, attachments=attachments)
        except VlmtuiError as error:
            if error.kind is ErrorKind.DISK_FULL:  # ours, and no fault of the item
                raise
            if was_answered and not key:  # it cannot be told whether it has changed
                self.tally.answered_before += 1
                return None
            return ItemResult(item, key, failure=failed_at_line(error, item.line))

    async def _write_all(self) -> None:
        """Append results in groups: all that came while the last group was being flushed."""
        is_over = False
        while not is_over:
            group = [await self.results.get()]
            while not self.results.empty():
                group.append(self.results.get_nowait())
            is_over = None in group
            results = [one for one in group if one is not None]
            if results:
                await asyncio.to_thread(self._append, results)
            for result in results:
                self.tally.count(result)
            self.written(results)

    def _append(self, results: Sequence[ItemResult]) -> None:
        self.write([self.job.line(result) for result in results])
