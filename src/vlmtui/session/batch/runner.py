"""Runs a batch: reads, prepares, asks and writes at the same time, each as fast as the next takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from vlmtui.errors import VlmtuiError
from vlmtui.session.batch.feeding import Feeder
from vlmtui.session.batch.item import BadItem, BatchItem
from vlmtui.session.batch.keys import engine_parts
from vlmtui.session.batch.media_desk import MediaDesk
from vlmtui.session.batch.output import OutputFile, ResultLine
from vlmtui.session.batch.places import EnginePlace
from vlmtui.session.batch.requests import ItemRequests
from vlmtui.session.batch.tally import Tally
from vlmtui.session.batch.work import ItemResult, LineWriter

Progress = Callable[[Tally], None]
_TOGETHER_S = 0.02
"""How long an answer waits for others to be flushed to disk with it."""


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run needs. cache: the application's cache folder."""

    items: Iterator[BatchItem | BadItem]
    output: OutputFile
    requests: ItemRequests
    places: Sequence[EnginePlace]
    """Engines that are loaded; the first one tells what the keys of the items say of the engine."""
    model: str
    """The name that the lines get."""
    cache: Path
    num_frames: int = 8
    include: frozenset[str] = frozenset()
    retry_errors: bool = False
    again: frozenset[str] = frozenset()
    """Ids of the items to ask again, and no others; empty: ask all that have no answer."""
    observe: Callable[[ItemResult], None] = lambda result: None
    """Called with each result of this run, once its line is on disk."""


async def run_batch(job: BatchJob, tally: Tally, progress: Progress = lambda tally: None) -> None:
    """Answer every item that is not answered yet, and tidy the output. Raises VlmtuiError if the input, the output or
    all engines fail. However it ends, also if it is cancelled: every answer that was complete is in the output."""
    info = job.places[0].engine.info
    assert info is not None, "the engines are loaded"
    engine = await asyncio.to_thread(engine_parts, info)
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, "output") as disk, closing(MediaDesk(job.cache, num_frames=job.num_frames)) as desk:
        if job.retry_errors:
            await loop.run_in_executor(disk, job.output.drop_failed)
        await loop.run_in_executor(disk, job.output.ask_again, job.again)
        feeder = Feeder(
            (item for item in job.items if item.id in job.again) if job.again else job.items,
            index=job.output.index,
            disk=disk,
            desk=desk,
            requests=job.requests,
            info=info,
            engine=engine,
            tally=tally,
        )
        writer = LineWriter(job.model, job.requests.mode, job.include)
        await BatchRun(
            feeder, job.output, writer, job.places, disk=disk, tally=tally, progress=progress, observe=job.observe
        ).run()
        await loop.run_in_executor(disk, partial(job.output.tidy, is_input_read=feeder.is_over and not job.again))


class Appends(Protocol):
    """Takes lines; see `OutputFile`."""

    def append(self, lines: Sequence[ResultLine]) -> None: ...


class BatchRun:
    """One run over the items of a feeder. Every item gets one line in the output, or keeps the one that it has."""

    def __init__(
        self,
        feeder: Feeder,
        output: Appends,
        writer: LineWriter,
        places: Sequence[EnginePlace],
        *,
        disk: ThreadPoolExecutor,
        tally: Tally,
        progress: Progress = lambda tally: None,
        observe: Callable[[ItemResult], None] = lambda result: None,
    ) -> None:
        """disk: the thread that the output belongs to. `progress` is called after each group of lines."""
        self._feeder = feeder
        self._output = output
        self._writer = writer
        self._places = list(places)
        self._disk = disk
        self._tally = tally
        self._progress = progress
        self._observe = observe
        self._results: asyncio.Queue[ItemResult] = asyncio.Queue()
        self._open = 0
        """Items that were read and are not settled."""
        self._settled = asyncio.Event()

    async def run(self) -> None:
        """Run to the end. Raises VlmtuiError if the input, the output or all engines fail. However it ends, also if it
        is cancelled: every answer that was complete is in the output."""
        feeding = asyncio.create_task(self._feeder.run(self._begin, self._results.put_nowait, self._leave))
        writing = asyncio.create_task(self._write())
        serving = {
            asyncio.create_task(place.serve(self._feeder.queue, self._results.put_nowait)) for place in self._places
        }
        ending = asyncio.create_task(self._end(feeding))
        try:
            await self._watch({feeding, writing, ending}, serving, ending)
        finally:
            tasks = (feeding, writing, ending, *serving)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if not _has_failed(writing):
                await self._write_rest()

    async def _watch(
        self, own: set[asyncio.Task[None]], serving: set[asyncio.Task[None]], ending: asyncio.Task[None]
    ) -> None:
        """Return when `ending` does. Raises what the others raise; one engine of several may fail."""
        waiting = own | serving
        while not ending.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {ending}:
                is_last_place = task in serving and not (serving & waiting)
                if task in own or is_last_place:
                    await task
                else:
                    with suppress(VlmtuiError):
                        await task

    async def _end(self, feeding: asyncio.Task[None]) -> None:
        await asyncio.wait({feeding})
        while self._open:
            self._settled.clear()
            await self._settled.wait()

    async def _write(self) -> None:
        """Append results in groups: all that came while the last group was being flushed, and a moment more, as answers
        of the same length end together."""
        loop = asyncio.get_running_loop()
        while True:
            first = await self._results.get()
            try:
                await asyncio.sleep(_TOGETHER_S)
            except asyncio.CancelledError:
                self._results.put_nowait(first)
                raise
            group = [first]
            while not self._results.empty():
                group.append(self._results.get_nowait())
            appending = loop.run_in_executor(self._disk, self._append, group)
            try:
                await asyncio.shield(appending)
            except asyncio.CancelledError:  # a group that is being written is not given up
                await appending
                self._written(group)
                raise
            self._written(group)

    async def _write_rest(self) -> None:
        group = []
        while not self._results.empty():
            group.append(self._results.get_nowait())
        if group:
            await asyncio.get_running_loop().run_in_executor(self._disk, self._append, group)
            self._written(group)

    def _append(self, group: list[ItemResult]) -> None:
        self._output.append([self._writer.write(result) for result in group])

    def _written(self, group: list[ItemResult]) -> None:
        for result in group:
            self._tally.count(result)
            self._observe(result)
            if result.work is not None:
                self._feeder.free(result.work)
            self._leave()
        self._progress(self._tally)

    def _begin(self) -> None:
        self._open += 1

    def _leave(self) -> None:
        self._open -= 1
        self._settled.set()


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None
