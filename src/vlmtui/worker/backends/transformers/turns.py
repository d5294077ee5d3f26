"""The order in which requests are answered: in turn, but those that wait with the same prompt together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from vlmtui.domain.generation import GenerateRequest
from vlmtui.worker.backends.transformers.answer_reader import AnswerPiece
from vlmtui.worker.backends.transformers.answer_run import AnswerRow, TakePiece
from vlmtui.worker.backends.transformers.prompt_inputs import PromptInputs
from vlmtui.worker.backends.transformers.sampling_plan import SamplingPlan

ROWS_MAX = 16
"""Most answers in one batch."""


class Waiting(msgspec.Struct, frozen=True, eq=False):
    """A request whose inputs are ready."""

    request: GenerateRequest
    inputs: PromptInputs
    row: AnswerRow
    arrived: asyncio.Queue[AnswerPiece | BaseException | None]
    """Its pieces; at the end None, or the error."""
    ended: asyncio.Event

    def is_like(self, other: Waiting) -> bool:
        """Whether both can be answered in one batch: the same prompt and adapter, and nothing to be scored."""
        mine, its = self.request, other.request
        same = mine.prompt == its.prompt and mine.adapter == its.adapter and self.inputs.ids == other.inputs.ids
        return same and not self.row.forced and not other.row.forced


Run = Callable[[Sequence[Waiting]], None]
"""Answers requests that are alike, in a thread; raises what goes wrong. `None` and errors are posted by `Turns`."""


class Turns:
    """Runs one batch at a time."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: list[Waiting] = []
        self._running: asyncio.Task[None] | None = None

    async def pieces(
        self,
        request: GenerateRequest,
        inputs: PromptInputs,
        plan: SamplingPlan,
        take: TakePiece,
        forced: Sequence[int] = (),
    ) -> AsyncGenerator[AnswerPiece, None]:
        """Wait for the request's turn, and yield what is said. Closed early, it ends the answer before its next token,
        and returns when it has ended."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[AnswerPiece | BaseException | None] = asyncio.Queue()
        row = AnswerRow(plan, take, lambda piece: loop.call_soon_threadsafe(arrived.put_nowait, piece), forced)
        mine = Waiting(request, inputs, row, arrived, asyncio.Event())
        self._waiting.append(mine)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._answer_all())
        try:
            while (found := await arrived.get()) is not None:
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            row.stop()
            if mine in self._waiting:
                self._waiting.remove(mine)
            else:
                await mine.ended.wait()

    async def _answer_all(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            batch = [one for one in self._waiting if one is first or one.is_like(first)][:ROWS_MAX]
            self._waiting = [one for one in self._waiting if one not in batch]
            running = asyncio.ensure_future(asyncio.to_thread(self._run, batch))
            try:
                await asyncio.wait([running])
            finally:
                said = running.exception() if running.done() else None
                for one in batch:
                    one.arrived.put_nowait(said)
                    one.ended.set()
