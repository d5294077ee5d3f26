"""Runs requests one batch at a time, in a thread: token by token, until each answer is complete or stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec

from vlmtui.domain.generation import GenerateRequest, ScoreRequest
from vlmtui.worker.backends.transformers.answer_reader import AnswerPiece
from vlmtui.worker.backends.transformers.devices import input_device
from vlmtui.worker.backends.transformers.loading import LoadedModel
from vlmtui.worker.backends.transformers.prompt_inputs import PromptInputs
from vlmtui.worker.backends.transformers.sampling import BatchChooser, Logprobs, SamplingPlan, TokenChooser, UnlikeAlone


class ForwardGate:
    """Templates wait for the forward pass that is running; the next pass waits for the templates.

    A template takes milliseconds, so an answer is held up between two of its tokens, unnoticed.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._computes = False
        self._templates = 0

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Hold the gate in the thread that computes."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def between_passes(self) -> None:
        """Let waiting templates through."""
        with self._changed:
            if not self._templates:
                return
        self._leave()
        self._enter()

    @asynccontextmanager
    async def template(self) -> AsyncIterator[None]:
        """Wait for the running forward pass, and hold up the next one."""
        with self._changed:
            self._templates += 1
        try:
            await asyncio.to_thread(self._wait_for_pass)
            yield
        finally:
            with self._changed:
                self._templates -= 1
                self._changed.notify_all()

    def _enter(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._templates)
            self._computes = True

    def _leave(self) -> None:
        with self._changed:
            self._computes = False
            self._changed.notify_all()

    def _wait_for_pass(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._computes)


TakePiece = Callable[[int, Logprobs | None], tuple[AnswerPiece, bool]]
"""Reads a token; returns what is new, and whether the answer is complete."""
_NO_STOPS = {"eos_token_id": [-1], "pad_token_id": 0}
"""Each row's chooser knows where it ends. `generate` would replace None by the model's own EOS tokens, and puts the
other token into rows that have ended."""


class AnswerRow:
    """One answer. `take` and `post` are called in the thread that runs it. `forced`: these tokens are taken instead of
    chosen, to score them."""

    def __init__(
        self,
        plan: SamplingPlan,
        take: TakePiece,
        post: Callable[[AnswerPiece], object],
        forced: Sequence[int] = (),
    ) -> None:
        self.plan = plan
        self.forced = forced
        self._take = take
        self._post = post
        self._stopped = threading.Event()

    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """End it before its next token."""
        self._stopped.set()

    def take(self, token: int, logprobs: Logprobs | None) -> bool:
        """Post what the token brings; return whether the answer is complete."""
        piece, is_complete = self._take(token, logprobs)
        self._post(piece)
        return is_complete

    @property
    def most(self) -> int:
        """The most tokens that it may have."""
        return len(self.forced) or self.plan.used.max_tokens or 1


def run_answers(
    loaded: LoadedModel,
    inputs: PromptInputs,
    rows: Sequence[AnswerRow],
    between_tokens: Callable[[], None],
    *,
    expected: Any = None,
) -> None:
    """Generate the answers of all rows to one prompt, in one batch. Blocking. `between_tokens` may raise to end all.

    `expected`: the scores of the first token that each row has to have (see `first_scores`). Raises UnlikeAlone if one
    has not, or if the model fails before that; then nothing has been said.
    """
    import torch

    choosers = [TokenChooser(row.plan, inputs.ids, row.take, row.forced, row.is_stopped) for row in rows]
    chooser = BatchChooser(choosers, between_tokens, expected)
    try:
        with torch.inference_mode():
            loaded.model.generate(
                **_tensors(loaded.model, inputs, len(rows)),
                logits_processor=[chooser],
                stopping_criteria=[chooser.should_stop],
                max_new_tokens=max(row.most for row in rows),
                do_sample=False,
                **(_NO_STOPS if len(rows) > 1 or any(row.plan.further.ignore_eos for row in rows) else {}),
            )
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
        if not chooser.awaits_check or "CUDA error" in str(error):
            raise
        raise UnlikeAlone(str(error)) from error


def first_scores(loaded: LoadedModel, inputs: PromptInputs) -> Any:
    """Return the scores of the first token after the prompt alone: (vocabulary,)."""
    import torch

    found: list[Any] = []

    def keep(_: Any, scores: Any) -> Any:
        found.append(scores[0].float().clone())
        return scores

    with torch.inference_mode():
        loaded.model.generate(
            **_tensors(loaded.model, inputs, 1), logits_processor=[keep], max_new_tokens=1, do_sample=False
        )
    return found[0]


def _tensors(model: Any, inputs: PromptInputs, rows: int) -> dict[str, Any]:
    """Return the inputs on the model's device, in its number format, as a processor gives them for so many equal
    prompts: whether it has a row a prompt or puts the media of all behind each other, they follow along axis 0."""
    import torch

    device = input_device(model)

    def placed(value: Any) -> Any:
        kind = model.dtype if value.is_floating_point() else value.dtype
        found = value.to(device, kind)
        return found if rows == 1 or not found.ndim else torch.cat([found] * rows)

    found: dict[str, Any] = {}
    for name, value in inputs.tensors.items():
        if isinstance(value, torch.Tensor):
            found[name] = placed(value)
        elif isinstance(value, list) and all(isinstance(one, torch.Tensor) for one in value):
            kinds = [one.to(device, model.dtype if one.is_floating_point() else one.dtype) for one in value]
            found[name] = kinds * rows
        else:
            found[name] = value * rows if isinstance(value, list) else value
    return found


ROWS_MAX = 16
"""Most answers in one batch."""


class Waiting(msgspec.Struct, frozen=True, eq=False):
    """A request whose inputs are ready."""

    request: GenerateRequest | ScoreRequest
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
        request: GenerateRequest | ScoreRequest,
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
