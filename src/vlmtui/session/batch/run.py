"""Runs a batch: reads, prepares, sends and writes as many items at once as keep the engine busy."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.conversation import Attachment, Media, Part, RawPrompt, Text, Turn, VideoSampling, system_turn
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import Cancelled, Failed, Failure, Finished, GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.inspection.raw_prompt_check import check_raw
from vlmtui.media.notes import warning_of
from vlmtui.registry.prompts import check_attachments
from vlmtui.registry.schema import Family
from vlmtui.session.answer_json import answer_json, tokens_json
from vlmtui.session.batch.items import BadItem, BatchItem, Item, failed_at_line
from vlmtui.session.batch.media_desk import MediaDesk, stored_place
from vlmtui.session.batch.results import MatchedItem
from vlmtui.session.dials import with_variables
from vlmtui.session.generation import Answer, PromptMode, make_request, missing_answer, request_for, whole_answer

_SPEED_ONLY = frozenset(
    {
        "max_num_seqs", "gpu_memory_utilization", "limit_mm_per_prompt", "mm_processor_cache_gb", "disable_log_stats",
        "enforce_eager", "model", "max_num_batched_tokens", "enable_prefix_caching", "url", "api_key_env",
        "api_key_file", "allow_owner", "max_model_len",
    }
)  # fmt: skip
"""Engine arguments that affect speed or memory but not the answers."""
_LOST = frozenset({ErrorKind.ENGINE_DIED, ErrorKind.NO_NETWORK, ErrorKind.PROTOCOL})
"""Failures of the engine, not of the item: the request is repeated."""
_SUSPECT_AFTER = 2
"""The number of engine deaths after which an item is sent alone, to find out which item kills the engine."""
_LONE_DEATHS_MAX = 3
_RETRIES = {ErrorKind.INTERNAL: 1, ErrorKind.ENGINE_BUSY: 1, ErrorKind.PROTOCOL: 1, ErrorKind.NO_NETWORK: 3}
"""Most retries of failures that a retry may avoid."""
_STARTS_MAX = 8
"""Most starts of the engine in a row without an answer."""
_CLOSING_S = 10.0
"""Seconds for a dead worker to end."""
_NOT_OF_THE_ITEM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Faults of the machine, which end the batch."""
_AT_ONCE = 32
"""Most requests in flight, unless the engine runs more than half as many together; the number if it does not report its
`max_num_seqs`. Requests beyond `max_num_seqs` wait in the engine, so that it never runs out of work."""
_PREPARING_MAX = max(8, min(16, os.cpu_count() or 8))
"""Items whose media are downloaded and opened at the same time."""
_BLANK = Attachment(
    modality="image", name="", path="", sha256="", width=1, height=1, size_bytes=0, format="", sampling=None
)
"""A placeholder for a medium in an item's key, which contains the medium's hash separately."""


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """How to send the items of a batch and write their results."""

    family: Family
    model: str
    """The model's name in the result lines."""
    sampling: Sampling
    """The sampling, unless an item sets its own values."""
    cache: Path
    """The application's cache folder."""
    mode: PromptMode = "chat"
    system: str = ""
    """The system prompt of items without their own."""
    logprobs: int | None = None
    includes_prompt: bool = False
    """Whether the lines contain the prompt as the model got it."""
    num_frames: int = 8
    """Frames of a video."""

    def key(self, item: BatchItem, media: Sequence[str], sampling: VideoSampling, engine: str) -> str:
        """Return a hash of everything that determines an item's answer. If the hash is unchanged, a later run keeps the
        answer.

        media: from `MediaDesk.content`. sampling: how frames are sampled from videos. engine: from `engine_key`. Raises
        VlmtuiError."""
        kinds = [(one.modality, sampling if one.modality == "video" else None) for one in item.sources]
        blanks = [msgspec.structs.replace(_BLANK, modality=kind, sampling=of_video) for kind, of_video in kinds]
        request = self.request(item, blanks)
        return _hash([request.prompt, request.sampling, request.logprobs, media, engine])

    def request(self, item: BatchItem, attachments: Sequence[Attachment]) -> GenerateRequest:
        """Return an item's request. `attachments`: its media, in the order of `item.sources`. Raises VlmtuiError."""
        sampling = with_variables(msgspec.structs.replace(self.sampling, **item.sampling), item.variables)
        logprobs = self.logprobs if item.logprobs is None else item.logprobs
        if item.raw is not None:
            check_attachments(self.family, [Turn("user", tuple(Media(one) for one in attachments))])
            prompt = RawPrompt(text=item.raw, attachments=tuple(attachments))
            request = request_for(prompt, self.family, sampling, logprobs=logprobs)
        else:
            turns = list(self._turns(item, iter(attachments)))
            request = make_request(self.family, turns, sampling, mode=self.mode, logprobs=logprobs)
        return msgspec.structs.replace(request, final_only=not self.includes_prompt)

    def check_raw(self, request: GenerateRequest, info: EngineInfo) -> None:
        """Raise VlmtuiError if the placeholders of a raw prompt do not fit its attachments."""
        if not isinstance(request.prompt, RawPrompt):
            return
        found = check_raw(
            request.prompt.text,
            request.prompt.attachments,
            self.family,
            special_tokens=frozenset(info.special_tokens),
            stop_tokens=info.stop_tokens,
            bos=info.bos_token,
            adds_bos=info.adds_bos,
        )
        for finding in found:
            if finding.blocks:
                raise bad_input(finding.message)

    def line(self, result: ItemResult) -> bytes:
        """Return a result as a line of the output file. If the answer can't be checked against what the item expects,
        the result becomes a failure."""
        item, answer, correct = result.item, result.answer, False
        if isinstance(item, BatchItem) and item.expect is not None and result.is_answered and answer is not None:
            try:
                correct = item.expect.holds(answer.text)
            except VlmtuiError as error:
                result.failure = failed_at_line(error, item.line)
        value: dict[str, object] = {"id": item.id, "line": item.line, "key": result.key, "error": result.failure}
        if isinstance(item, BatchItem):
            value["question"] = item.question
            value["mode"] = "raw" if item.raw is not None else self.mode
            value["media"] = [one.sha256 for one in result.attachments]
            value["sources"] = [{"modality": one.modality, "place": stored_place(one.place)} for one in item.sources]
            if warnings := [warning for one in result.attachments if (warning := warning_of(one))]:
                value["warnings"] = warnings
        if answer is not None:
            sampling = result.request.sampling if result.request is not None else self.sampling
            value |= answer_json(self.model, answer, 0.0) | tokens_json(answer, sampling)
            del value["prompt_token_ids"], value["answer_token_ids"]
            if not self.includes_prompt:
                del value["prompt"]
        if isinstance(item, BatchItem) and item.expect is not None:
            value["expect"] = item.expect
            value["correct"] = correct
        value["ended"] = round(result.ended, 3)
        return msgspec.json.encode(value)

    def _turns(self, item: BatchItem, attachments: Iterator[Attachment]) -> Iterator[Turn]:
        if self.system and not any(message.role == "system" for message in item.messages):
            yield system_turn(self.system)
        for message in item.messages:
            parts: tuple[Part, ...] = tuple(
                Text(part) if isinstance(part, str) else Media(next(attachments)) for part in message.parts
            )
            yield Turn(message.role, parts)


@dataclass(slots=True, eq=False)
class ItemResult:
    """An item's answer or failure."""

    item: Item
    key: str = ""
    answer: Answer | None = None
    failure: Failure | None = None
    request: GenerateRequest | None = None
    """None: it failed before it could be sent."""
    attachments: Sequence[Attachment] = ()
    ended: float = field(default_factory=time.time)

    @property
    def is_answered(self) -> bool:
        return self.answer is not None and self.failure is None


def engine_key(info: EngineInfo) -> str:
    """Return a hash of the model's files and the engine's settings, a part of every item's key."""
    spec = info.spec
    kept = {name: value for name, value in info.engine_args.items() if name not in _SPEED_ONLY}
    model = [info.files or spec.model, info.revision, info.architecture, spec.loras, info.chat_template]
    return _hash([*model, info.engine, info.engine_version, info.dtype, spec.backend, kept])


def _hash(value: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=16).hexdigest()


@dataclass(slots=True)
class Tally:
    answered: int = 0
    failed: int = 0
    answered_before: int = 0
    """Answered in an earlier run."""
    failed_before: int = 0
    """Failed in an earlier run, and not retried."""
    changed: int = 0
    """Answered in an earlier run, and sent again since the item or the engine has changed."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def done(self) -> int:
        """Number of items that need no more work."""
        return self.answered + self.failed + self.answered_before + self.failed_before

    def count(self, result: ItemResult) -> None:
        self.answered += result.is_answered
        self.failed += not result.is_answered
        if result.answer is not None:
            self.prompt_tokens += result.answer.usage.prompt_tokens
            self.completion_tokens += result.answer.usage.completion_tokens

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BatchEngine:
    """The engine that answers a batch. If it dies, it is started again, and the interrupted requests are repeated."""

    def __init__(self, open_engine: Callable[[], Awaitable[Engine]], engine: Engine, *, most: int | None = None):
        """engine: a loaded engine. open_engine: loads a new engine; raises VlmtuiError. most: the maximum number of
        requests at once; None: two to four times as many as the engine runs together, so that the next requests are
        always ready."""
        assert engine.info is not None, "the engine is loaded"
        self.engine = engine
        self.info: EngineInfo = engine.info
        known = self.info.engine_args.get("max_num_seqs")
        at_once = max(2 * known, min(4 * known, _AT_ONCE)) if isinstance(known, int) and known > 0 else _AT_ONCE
        self.at_once = at_once if most is None else min(at_once, most)
        self.on_event: Callable[[Answer], None] = lambda answer: None
        """Called with an answer after each of its events."""
        self._open = open_engine
        self._slots = asyncio.Semaphore(self.at_once)
        self._taking_all = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._lost: Engine | None = None
        """The latest engine that died."""
        self._starts_without_answer = 0

    async def answer(self, request: GenerateRequest) -> tuple[Answer | None, Failure | None]:
        """Return the answer, and the failure if it is incomplete. The answer is None if the engine dies each time it
        gets this request. Raises VlmtuiError."""
        interruptions = lone_deaths = failures = 0
        while True:
            is_suspect = interruptions >= _SUSPECT_AFTER
            async with self._alone() if is_suspect else self._slots:
                engine = await self._started()
                answer = await whole_answer(engine, request, self.on_event)
            match answer.outcome:
                case Finished():
                    self._starts_without_answer = 0
                    missing = missing_answer(answer)
                    return answer, None if missing is None else Failure.of(missing)
                case Failed(failure=failure) if failure.kind not in _LOST or await _is_of_request(answer, engine):
                    failures += 1
                    if failures > _RETRIES.get(failure.kind, 0):
                        return answer, failure
                case Failed() | Cancelled():
                    self._lost = engine
                    interruptions += 1
                    lone_deaths += is_suspect
                    if lone_deaths == _LONE_DEATHS_MAX:
                        message = f"The engine died {_LONE_DEATHS_MAX} times while it answered this item alone."
                        detail = answer.failure.message if answer.failure is not None else ""
                        return None, Failure(kind=ErrorKind.ENGINE_DIED, message=message, detail=detail)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
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
        async with self._starting:
            if self._lost is self.engine:
                if self._starts_without_answer >= _STARTS_MAX:
                    message = f"The engine died {_STARTS_MAX} times in a row without answering anything."
                    raise VlmtuiError(ErrorKind.ENGINE_DIED, message, hint="See its log.")
                self._starts_without_answer += 1
                await _leave(self.engine)
                engine = await self._open()
                if engine.info is None or engine_key(engine.info) != engine_key(self.info):
                    await engine.close()
                    message = "The model's files, or its engine, changed during the batch."
                    raise VlmtuiError(ErrorKind.MODEL_CHANGED, message, hint="Run it again: all items are asked again.")
                self.engine = engine
            return self.engine


async def _is_of_request(answer: Answer, engine: Engine) -> bool:
    """Return True if a server answered, but with what can't be read, or not to the end. The engine goes on."""
    kind = answer.failure.kind if answer.failure is not None else None
    if kind is not ErrorKind.PROTOCOL and (kind is not ErrorKind.NO_NETWORK or answer.prompt is None):
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await engine.closed()
            return False
    return True


async def _leave(engine: Engine) -> None:
    """Wait for a dead engine to end; shut down an engine that only lost its connection."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING_S):
            await engine.closed()
            return
    with suppress(VlmtuiError):
        await engine.shutdown()


async def check_media_cache(engine: BatchEngine, results: Sequence[ItemResult]) -> tuple[list[str], list[str]]:
    """Send answered items again with their media's identifiers instead of the media, and with the same seeds. Return
    the ids of items whose media are no longer in the engine's cache, and of those whose answer or prompt length
    differs. Raises VlmtuiError if a request fails for another reason."""
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
    items: Iterator[MatchedItem],
    engine: BatchEngine,
    write: Callable[[Sequence[bytes]], None],
    tally: Tally,
    written: Callable[[Sequence[ItemResult]], None] = lambda results: None,
) -> None:
    """Answer every item that is not answered yet. Calls `written` with each group of results once it is on disk.

    `items` and `write` block; only one thread at a time uses them. Raises VlmtuiError if the input, the output or the
    engine fails. Every complete answer is written, even if the caller is cancelled."""
    with closing(MediaDesk(job.cache, num_frames=job.num_frames)) as desk:
        await _Run(job, engine, engine_key(engine.info), desk, write, tally, written).run(items)


@dataclass(slots=True)
class _Run:
    job: BatchJob
    engine: BatchEngine
    engine_key: str
    desk: MediaDesk
    write: Callable[[Sequence[bytes]], None]
    tally: Tally
    written: Callable[[Sequence[ItemResult]], None]
    results: asyncio.Queue[ItemResult | None] = field(default_factory=asyncio.Queue)
    """Results to write; None at the end."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_read: bool = False
    preparing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PREPARING_MAX))

    async def run(self, items: Iterator[MatchedItem]) -> None:
        answering, writing = asyncio.create_task(self._answer_all(items)), asyncio.create_task(self._write_all())
        try:
            await asyncio.wait({answering, writing}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():  # otherwise it failed: `await writing` raises
                await answering
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            self.results.put_nowait(None)
            await writing

    async def _answer_all(self, items: Iterator[MatchedItem]) -> None:
        """Answer all items in tasks; each task takes one item after another. There are enough tasks for the requests in
        flight, and for preparing the next items."""
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self.engine.at_once + 2 * _PREPARING_MAX):
                    workers.create_task(self._work(items))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _work(self, items: Iterator[MatchedItem]) -> None:
        while not self.is_read:
            media: list[Attachment] = []
            try:
                async with self.preparing:
                    result = await self._next(items, media)
                if result is not None and result.request is not None:
                    result.answer, failure = await self.engine.answer(result.request)
                    result.ended = time.time()
                    if failure is not None:
                        result.failure = failed_at_line(failure.error(), result.item.line)
                if result is not None:
                    self.results.put_nowait(result)
            finally:
                if media:
                    await asyncio.to_thread(self.desk.remove, media)

    async def _next(self, items: Iterator[MatchedItem], media: list[Attachment]) -> ItemResult | None:
        """Read the next item and prepare it as `_prepared` does. None also if there is no next item."""
        async with self.reading:
            matched = None if self.is_read else await asyncio.to_thread(next, items, None)
            self.is_read = matched is None
        return None if matched is None else await self._prepared(matched, media)

    async def _prepared(self, matched: MatchedItem, media: list[Attachment]) -> ItemResult | None:
        """Return an item with its request, or with its failure; None if it keeps the line that an earlier run
        wrote. Adds its media to `media`."""
        item, was_answered = matched.item, matched.key is not None and not matched.failed
        key = ""
        try:
            if isinstance(item, BadItem):
                raise item.failure.error()
            contents = await asyncio.to_thread(lambda: [self.desk.content(source) for source in item.sources])
            key = self.job.key(item, contents, self.desk.sampling, self.engine_key)
            if matched.key == key:
                self.tally.answered_before += was_answered
                self.tally.failed_before += matched.failed
                return None
            for source in item.sources:
                media.append(await self.desk.prepare(source))
            attachments = tuple(media)
            request = self.job.request(item, attachments)
            self.job.check_raw(request, self.engine.info)
            self.tally.changed += was_answered
            return ItemResult(item.without_media(), key, request=request, attachments=attachments)
        except (VlmtuiError, OSError, ValueError) as caught:
            if isinstance(caught, OSError) and caught.errno in _NOT_OF_THE_ITEM:
                raise
            what = "Can't read what the item names."
            error = caught if isinstance(caught, VlmtuiError) else bad_input(what, detail=str(caught))
            if error.kind is ErrorKind.DISK_FULL:  # not the item's fault
                raise
            if was_answered and not key:  # unknown whether it has changed
                self.tally.answered_before += 1
                return None
            return ItemResult(item, key, failure=failed_at_line(error, item.line))

    async def _write_all(self) -> None:
        """Write results in groups: all that arrive while the previous group is flushed to disk."""
        is_over = False
        while not is_over:
            group = [await self.results.get()]
            while not self.results.empty():
                group.append(self.results.get_nowait())
            is_over = None in group
            results = [one for one in group if one is not None]
            if results:
                await asyncio.to_thread(lambda results: self.write([self.job.line(one) for one in results]), results)
            for result in results:
                self.tally.count(result)
            self.written(results)
