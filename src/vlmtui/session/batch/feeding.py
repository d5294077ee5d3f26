"""Reads items, leaves out those that are answered, and prepares the others ahead of the engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from itertools import islice, takewhile
from typing import NamedTuple

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.failure import Failure
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.media.web_address import is_url
from vlmtui.registry.estimate import estimated_tokens
from vlmtui.session.batch.answered import AnsweredIndex, AnsweredRow, name_of
from vlmtui.session.batch.flow import PreparedLimit
from vlmtui.session.batch.item import BadItem, BatchItem, at_line
from vlmtui.session.batch.keys import changed_parts, item_key
from vlmtui.session.batch.media_desk import MediaDesk
from vlmtui.session.batch.requests import ItemRequests
from vlmtui.session.batch.tally import Tally
from vlmtui.session.batch.work import ItemResult, Work
from vlmtui.text import quoted

_CHUNK_ITEMS = 64
_CHUNK_BYTES = 16_000_000
_TOKENS_LEAST = 64
"""What an item counts at least, so that their number is bounded, too."""
_TOKENS_OF_MEDIUM = 500
"""Where a record does not say."""
_CHARACTERS_A_TOKEN = 3
_PREPARING_MAX = max(2, min(16, os.cpu_count() or 2))
"""Items whose media are opened at the same time."""


class MetItem(NamedTuple):
    """A line of the input, and what the output has of it."""

    item: BatchItem | BadItem
    row: AnsweredRow | None


class Feeder:
    """Puts work into a queue. Every item ends as work, as a result (a failure), or left out: `settle` counts it then.

    disk: the executor that the index belongs to.
    """

    def __init__(
        self,
        items: Iterator[BatchItem | BadItem],
        *,
        index: AnsweredIndex,
        disk: Executor,
        desk: MediaDesk,
        requests: ItemRequests,
        info: EngineInfo,
        engine: tuple[str, str],
        tally: Tally,
    ) -> None:
        self.queue: asyncio.Queue[Work] = asyncio.Queue()
        self.is_over = False
        """Whether the input was read to its end."""
        self._items = items
        self._index = index
        self._disk = disk
        self._desk = desk
        self._requests = requests
        self._info = info
        self._engine = engine
        self._tally = tally
        self._ahead = PreparedLimit()
        self._preparing = asyncio.Semaphore(_PREPARING_MAX)

    async def run(
        self, begin: Callable[[], None], finish: Callable[[ItemResult], None], leave: Callable[[], None]
    ) -> None:
        """Read all items. `begin` is called for each; then once `finish`, `leave` (nothing to do), or neither if it is
        in the queue. Raises VlmtuiError if the input cannot be read."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as tasks:
                while chunk := await asyncio.to_thread(self._read):
                    self._tally.read += len(chunk)
                    for met in await loop.run_in_executor(self._disk, self._meet, chunk):
                        begin()
                        await self._take(tasks, met, finish, leave)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        self.is_over = True

    def free(self, work: Work) -> None:
        """Give back what a finished item held."""
        self._desk.release(work.attachments)
        self._ahead.leave(work.tokens, work.size)

    async def _take(
        self, tasks: asyncio.TaskGroup, met: MetItem, finish: Callable[[ItemResult], None], leave: Callable[[], None]
    ) -> None:
        item, row = met
        if isinstance(item, BadItem):
            if row is not None and row.key == item.digest and row.place >= 0:
                self._tally.failed_before += 1
                leave()
            elif row is not None and row.place >= 0 and not row.failed:
                self._tally.unchecked += 1
                leave()
            else:
                finish(ItemResult(item, item.digest, failure=item.failure))
            return
        size = sum(len(source.encoded) for source in item.sources)
        tokens = _TOKENS_LEAST + len(item.sources) * _TOKENS_OF_MEDIUM
        await self._ahead.enter(tokens, size)
        tasks.create_task(self._prepare(item, row, (tokens, size), finish, leave))

    async def _prepare(
        self,
        item: BatchItem,
        row: AnsweredRow | None,
        room: tuple[int, int],
        finish: Callable[[ItemResult], None],
        leave: Callable[[], None],
    ) -> None:
        """Turn an item into work, unless it is answered or cannot be sent."""
        key = ""
        work: Work | None = None
        was_there = row is not None and row.place >= 0
        try:
            async with self._preparing:
                key, prepared = await asyncio.to_thread(self._look, item, row)
                if row is not None and was_there and row.key == key:
                    self._tally.skipped += not row.failed
                    self._tally.failed_before += row.failed
                    leave()
                    return
                if row is not None and was_there and not row.failed:
                    self._tally.note_changed(item, changed_parts(row.key, key))
                work = await self._work(item, key, prepared, room)
        except VlmtuiError as error:
            if error.kind is ErrorKind.DISK_FULL:  # ours, and no fault of the item
                raise
            if row is not None and was_there and not key:
                self._tally.unchecked += not row.failed
                self._tally.failed_before += row.failed
                leave()
            else:
                finish(ItemResult(item, key, failure=Failure.of(at_line(error, item.line))))
        finally:
            if work is None:
                self._ahead.leave(*room)
        if work is not None:
            self.queue.put_nowait(work)

    async def _work(
        self, item: BatchItem, key: str, ready: Sequence[Attachment] | VlmtuiError, room: tuple[int, int]
    ) -> Work:
        if isinstance(ready, VlmtuiError):
            raise ready
        prepared = list(ready)
        with ExitStack() as stack:
            stack.callback(lambda: self._desk.release(tuple(prepared)))
            for source in item.sources[len(prepared) :]:
                prepared.append(await self._desk.prepare(source))
            request = self._requests.request(item, prepared)
            self._requests.check_raw(request, self._info)
            stack.pop_all()
        tokens = _TOKENS_LEAST + len(item.question) // _CHARACTERS_A_TOKEN
        for one in prepared:
            tokens += estimated_tokens(self._requests.family, one) or _TOKENS_OF_MEDIUM
        size = sum(3 * one.width * one.height for one in prepared)
        work = Work(item, key, request, tuple(prepared), tokens, size)
        self._ahead.add(tokens - room[0], size - room[1])
        return work

    def _look(self, item: BatchItem, row: AnsweredRow | None) -> tuple[str, Sequence[Attachment] | VlmtuiError]:
        """Return an item's key, and if it has no answer its media up to the first web address, or why they cannot be
        sent. Blocking; all in one go, as each turn in a thread costs as much as a small file. Raises VlmtuiError if
        there is no key."""
        key = self._key(item)
        prepared: list[Attachment] = []
        if row is not None and row.place >= 0 and row.key == key:
            return key, prepared
        try:
            for source in takewhile(lambda one: not is_url(one.place), item.sources):
                prepared.append(self._desk.prepare_file(source))
        except VlmtuiError as error:
            self._desk.release(tuple(prepared))
            return key, error
        return key, prepared

    def _key(self, item: BatchItem) -> str:
        planned = self._requests.planned(item, self._desk.sampling)
        return item_key(planned, [self._desk.content(source) for source in item.sources], self._engine)

    def _read(self) -> list[BatchItem | BadItem]:
        """Return the next items, bounded in number and bytes."""
        chunk: list[BatchItem | BadItem] = []
        size = 0
        for item in islice(self._items, _CHUNK_ITEMS):
            chunk.append(item)
            size += sum(len(source.encoded) for source in item.sources) if isinstance(item, BatchItem) else 0
            if size > _CHUNK_BYTES:
                break
        return chunk

    def _meet(self, chunk: list[BatchItem | BadItem]) -> list[MetItem]:
        return [meet_item(self._index, item) for item in chunk]


def meet_item(index: AnsweredIndex, item: BatchItem | BadItem) -> MetItem:
    """Note that an item was read, and return it with what the output has of it. The second item with an id is none."""
    if item.id is not None:
        name = name_of(item.id, item.line)
        row = index.meet(name, item.line)
        if row is None or not row.line:
            return MetItem(item, row)
        index.put(name, row)
        error = bad_input(f"The id {quoted(item.id)} is that of line {row.line}, too.", hint="Give it another id.")
        item = BadItem(line=item.line, failure=Failure.of(at_line(error, item.line)), digest=f"twice {item.id}")
    return MetItem(item, index.meet(name_of(None, item.line), item.line, has_id=False))
