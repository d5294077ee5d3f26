"""Runs a batch: reads, prepares, asks and writes at the same time, each as fast as the next takes it."""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Cancelled, Failed, Finished, GenerateRequest
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.answer_json import answer_json, tokens_json
from vlmtui.session.batch.item import BadItem, BatchItem, Item, failed_at_line
from vlmtui.session.batch.media_desk import MediaDesk
from vlmtui.session.batch.output import MetItem, OutputFile, ResultLine
from vlmtui.session.batch.requests import ItemRequests, changed_parts, engine_parts
from vlmtui.session.generation import Answer, PromptMode, broken_off, new_request_id, run_turn

INCLUDES = ("prompt", "token_ids", "logprobs", "media")
"""What a line may have besides."""
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
"""Requests at once where the engine does not say how many it runs together; most for one that runs few together, which
gets four times as many: they end so often that it would run dry while the next are on their way."""
_CHUNK = 64
_AHEAD_BYTES = 256_000_000
"""Most bytes of media in the lines of items that are under way, unless one line has more."""
_PREPARING_MAX = max(2, min(16, os.cpu_count() or 2))
"""Items whose media are opened at the same time."""
_EXAMPLES = 5


class Tally:
    """Counts of a run."""

    def __init__(self) -> None:
        self.read = 0
        """Items of the input that were read, ahead of those that are done."""
        self.answered = 0
        self.failed = 0
        self.skipped = 0
        """Answered by an earlier run."""
        self.failed_before = 0
        """Failed in an earlier run, and not tried again."""
        self.unchecked = 0
        """Answered by an earlier run; whether they have changed can't be told, as a file is gone."""
        self.changed: Counter[str] = Counter()
        """Items that were answered before and have changed, by the part of the key."""
        self.changed_ids: list[str] = []
        """The first five of them."""
        self.kinds: Counter[str] = Counter()
        """Failures by their kind."""
        self.expected = 0
        self.correct = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.media_tokens = 0
        self.ttft = array("d")
        """Seconds until the first token."""
        self.latency = array("d")
        """Seconds until the whole answer."""

    @property
    def done(self) -> int:
        """Items that this run is through with."""
        return self.answered + self.failed + self.skipped + self.failed_before + self.unchecked

    def count(self, result: ItemResult) -> None:
        """Count a result of this run."""
        if result.correct is not None:
            self.expected += 1
            self.correct += result.correct
        if result.failure is not None:
            self.failed += 1
            self.kinds[result.failure.kind.value] += 1
            return
        self.answered += 1
        if (answer := result.answer) is None:
            return
        self.prompt_tokens += answer.usage.prompt_tokens
        self.completion_tokens += answer.usage.completion_tokens
        self.media_tokens += answer.usage.media_tokens
        if timings := answer.timings:
            self.latency.append(timings.total_s)
            if timings.ttft_s is not None:
                self.ttft.append(timings.ttft_s)

    def add(self, other: Tally) -> None:
        """Add the counts of other items."""
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(mine, Counter):
                mine.update(value)
            else:
                setattr(self, name, mine + value)
        del self.changed_ids[_EXAMPLES:]

    def note_changed(self, item: BatchItem, parts: list[str]) -> None:
        """Count an item that was answered before and has changed."""
        self.changed.update(parts)
        if len(self.changed_ids) < _EXAMPLES:
            self.changed_ids.append(item.id)


@dataclass(slots=True, eq=False)
class ItemResult:
    """What became of an item: an answer, or a failure."""

    item: Item
    key: str
    answer: Answer | None = None
    failure: Failure | None = None
    request: GenerateRequest | None = None
    """What was sent; None: nothing."""
    attachments: Sequence[Attachment] = ()
    correct: bool | None = None
    """Whether the answer is the expected one; None if nothing is expected."""
    ended: float = field(default_factory=time.time)

    def score(self) -> None:
        """Compare the answer with the expected one."""
        if isinstance(self.item, BatchItem) and self.item.expect is not None:
            said = self.answer.text if self.answer is not None and self.failure is None else None
            self.correct = said is not None and self.item.expect.holds(said)


class LineWriter(msgspec.Struct, frozen=True):
    """Writes results as JSON. model: its name. include: some of `INCLUDES`."""

    model: str
    mode: PromptMode
    include: frozenset[str] = frozenset()

    def write(self, result: ItemResult) -> ResultLine:
        """Return the line of a result."""
        item, answer = result.item, result.answer
        value: dict[str, object] = {"id": item.id, "line": item.line, "key": result.key}
        if isinstance(item, BatchItem):
            value["question"] = item.question
            value["mode"] = "raw" if item.raw is not None else self.mode
        if answer is not None:
            value |= self._answer(answer)
        if result.request is not None and "media" in self.include:
            names = ("modality", "name", "source", "sha256", "width", "height", "notes")
            value["media"] = [{name: getattr(one, name) for name in names} for one in result.attachments]
        if isinstance(item, BatchItem) and item.expect is not None:
            value |= {"expect": msgspec.to_builtins(item.expect), "correct": result.correct}
        value["ended"] = round(result.ended, 3)
        value["error"] = result.failure
        return ResultLine(item.id, item.line, result.key, result.failure is not None, msgspec.json.encode(value))

    def _answer(self, answer: Answer) -> dict[str, object]:
        found = answer_json(self.model, answer, 0.0)
        del found["prompt"]
        if "prompt" in self.include:
            found["prompt"] = answer.prompt.prompt if answer.prompt else None
        tokens = tokens_json(answer)
        if "token_ids" in self.include:
            found |= {name: value for name, value in tokens.items() if name != "logprobs"}
        if answer.logprobs:
            found["logprobs"] = tokens["logprobs"]
        return found


class BatchEngine:
    """The engine that answers a batch. One that dies is started again, and its requests are repeated."""

    def __init__(self, open_engine: Callable[[], Awaitable[Engine]], engine: Engine, *, most: int | None = None):
        """`engine`: it is loaded. open_engine: opens another one, and returns once it is loaded; raises VlmtuiError.
        most: the most requests at once; None: twice as many as the engine runs together, so that it never runs dry."""
        assert engine.info is not None, "the engine is loaded"
        self.engine = engine
        self.info: EngineInfo = engine.info
        known = self.info.engine_args.get("max_num_seqs")
        at_once = max(2 * known, min(4 * known, _AT_ONCE)) if isinstance(known, int) and known > 0 else _AT_ONCE
        self.at_once = at_once if most is None else min(at_once, most)
        self.starts = 0
        """How often the engine was started again."""
        self._open = open_engine
        self._slots = asyncio.Semaphore(self.at_once)
        self._taking_all = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_lost = False
        self._starts_without_answer = 0

    async def answer(self, request: GenerateRequest) -> tuple[Answer | None, Failure | None]:
        """Return the answer, complete or with the reason why it failed. Raises VlmtuiError if the engine cannot be
        started again."""
        interruptions = lone_deaths = failures = 0
        while True:
            is_suspect = interruptions >= _SUSPECT_AFTER
            async with self._alone() if is_suspect else self._slots:
                await self._start_if_lost()
                answer = await self._ask(request)
            match answer.outcome:
                case Finished():
                    self._starts_without_answer = 0
                    return answer, None
                case Failed(failure=failure) if failure.kind not in _LOST:
                    failures += 1
                    if failure.kind is not ErrorKind.INTERNAL or failures > _RETRIES:
                        return answer, failure
                case Failed() | Cancelled():
                    self._is_lost = True
                    interruptions += 1
                    lone_deaths += is_suspect
                    if lone_deaths == _LONE_DEATHS_MAX:
                        message = f"The engine died {_LONE_DEATHS_MAX} times while it answered this item alone."
                        return None, Failure(kind=ErrorKind.ENGINE_DIED, message=message)

    async def _ask(self, request: GenerateRequest) -> Answer:
        request = msgspec.structs.replace(request, request_id=new_request_id())
        answer = Answer(request.request_id)
        self._running += 1
        self._idle.clear()
        try:
            async with aclosing(run_turn(self.engine, request, answer)) as events:
                async for _ in events:
                    pass
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
        if answer.outcome is None:
            answer.take(broken_off(request.request_id))
        return answer

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

    async def _start_if_lost(self) -> None:
        """Start the engine again if it was lost, once all requests that it had have ended."""
        async with self._starting:
            if not self._is_lost:
                return
            await self._idle.wait()
            if self._starts_without_answer >= _STARTS_MAX:
                message = f"The engine died {_STARTS_MAX} times in a row without answering anything."
                raise VlmtuiError(ErrorKind.ENGINE_DIED, message, hint="See its log.")
            self._starts_without_answer += 1
            await _leave(self.engine)
            self.engine = await self._open()
            self.starts += 1
            self._is_lost = False


async def _leave(engine: Engine) -> None:
    """Wait for a dead engine to end; end one that only lost its connection to a server."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING_S):
            await engine.closed()
            return
    with suppress(VlmtuiError):
        await engine.shutdown()


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """How items are answered. cache: the application's cache folder. num_frames: of a video."""

    requests: ItemRequests
    writer: LineWriter
    cache: Path
    num_frames: int = 8


async def run_batch(
    job: BatchJob,
    items: Iterator[Item],
    output: OutputFile,
    engine: BatchEngine,
    tally: Tally,
    *,
    progress: Callable[[Tally], None] = lambda tally: None,
    observe: Callable[[ItemResult], None] = lambda result: None,
) -> None:
    """Answer every item that is not answered yet, and tidy the output. `progress` is called after each group of lines,
    `observe` with each result of this run, once its line is on disk.

    Raises VlmtuiError if the input, the output or the engine fails. However it ends, also if it is cancelled: every
    answer that was complete is in the output."""
    await answer_items(job, map(output.meet, items), engine, output.append, tally, progress=progress, observe=observe)
    await asyncio.to_thread(output.tidy, is_input_read=True)


async def answer_items(
    job: BatchJob,
    items: Iterator[MetItem],
    engine: BatchEngine,
    write: Callable[[Sequence[ResultLine]], None],
    tally: Tally,
    *,
    progress: Callable[[Tally], None] = lambda tally: None,
    observe: Callable[[ItemResult], None] = lambda result: None,
) -> None:
    """Answer items, as `run_batch` does. `items` and `write` block, and are used in one thread each."""
    parts = await asyncio.to_thread(engine_parts, engine.info)
    with closing(MediaDesk(job.cache, num_frames=job.num_frames)) as desk:
        await _Run(job, engine, parts, desk, write, tally, progress, observe).run(items)


@dataclass(slots=True)
class _Run:
    """One run over items. Each gets one line, or keeps the one that it has."""

    job: BatchJob
    engine: BatchEngine
    engine_parts: tuple[str, str]
    desk: MediaDesk
    write: Callable[[Sequence[ResultLine]], None]
    tally: Tally
    progress: Callable[[Tally], None]
    observe: Callable[[ItemResult], None]
    results: asyncio.Queue[ItemResult | None] = field(default_factory=asyncio.Queue)
    """What is to be written; None: nothing comes any more."""
    preparing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PREPARING_MAX))
    under_way: int = 0
    """Items that were read and have no result yet; and the bytes of media that their lines have."""
    bytes_under_way: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, items: Iterator[MetItem]) -> None:
        feeding, writing = asyncio.create_task(self._feed(items)), asyncio.create_task(self._write_all())
        try:
            await asyncio.wait({feeding, writing}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():  # otherwise it failed, which is raised below
                await feeding
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            self.results.put_nowait(None)
            await writing

    async def _feed(self, items: Iterator[MetItem]) -> None:
        most = 2 * self.engine.at_once + _PREPARING_MAX
        try:
            async with asyncio.TaskGroup() as tasks:
                while chunk := await asyncio.to_thread(lambda: list(islice(items, _CHUNK))):
                    self.tally.read += len(chunk)
                    for met in chunk:
                        size = sum(len(one.encoded) for one in getattr(met.item, "sources", ()))
                        while self.under_way >= most or (self.under_way and self.bytes_under_way + size > _AHEAD_BYTES):
                            self.changed.clear()
                            await self.changed.wait()
                        self.under_way += 1
                        self.bytes_under_way += size
                        tasks.create_task(self._item(met, size))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _item(self, met: MetItem, size: int) -> None:
        attachments: list[Attachment] = []
        try:
            result = await self._prepared(met, attachments)
            if result is not None and result.request is not None:
                answer, failure = await self.engine.answer(result.request)
                result.answer, result.ended = answer, time.time()
                if failure is not None:
                    result.failure = failed_at_line(failure.error(), met.item.line)
        finally:
            self.desk.release(attachments)
            self.under_way -= 1
            self.bytes_under_way -= size
            self.changed.set()
        if result is not None:
            self.results.put_nowait(result)

    async def _prepared(self, met: MetItem, attachments: list[Attachment]) -> ItemResult | None:
        """Return an item with the request to send, or with why there is none; None: it keeps the line that it has.
        attachments: takes those of the request."""
        item, was_answered = met.item, met.key is not None and not met.failed
        if isinstance(item, BadItem):
            if was_answered or met.key == item.digest:
                self.tally.unchecked += was_answered
                self.tally.failed_before += met.failed
                return None
            return ItemResult(item, item.digest, failure=item.failure)
        key = ""
        try:
            async with self.preparing:
                key = await asyncio.to_thread(self._key, item)
                if met.key == key:
                    self.tally.skipped += was_answered
                    self.tally.failed_before += met.failed
                    return None
                if was_answered:
                    self.tally.note_changed(item, changed_parts(met.key or "", key))
                for source in item.sources:
                    attachments.append(await self.desk.prepare(source))
            request = self.job.requests.request(item, attachments)
            self.job.requests.check_raw(request, self.engine.info)
            return ItemResult(item, key, request=request, attachments=tuple(attachments))
        except VlmtuiError as error:
            if error.kind is ErrorKind.DISK_FULL:  # ours, and no fault of the item
                raise
            if met.key is not None and not key:
                self.tally.unchecked += was_answered
                self.tally.failed_before += met.failed
                return None
            return ItemResult(item, key, failure=failed_at_line(error, item.line))

    def _key(self, item: BatchItem) -> str:
        media = [self.desk.content(source) for source in item.sources]
        return self.job.requests.key(item, media, self.desk.sampling, self.engine_parts)

    async def _write_all(self) -> None:
        """Append results in groups: all that came while the last group was being flushed."""
        is_over = False
        while not is_over:
            group = [await self.results.get()]
            while not self.results.empty():
                group.append(self.results.get_nowait())
            is_over = None in group
            results = [one for one in group if one is not None]
            await asyncio.to_thread(partial(self._append, results))
            for result in results:
                self.tally.count(result)
                self.observe(result)
            self.progress(self.tally)

    def _append(self, results: Sequence[ItemResult]) -> None:
        for result in results:
            result.score()
        if results:
            self.write([self.job.writer.write(result) for result in results])
