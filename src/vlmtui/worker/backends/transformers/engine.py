"""Adapts a model of Transformers to the worker's HostedEngine interface."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec

from vlmtui.domain.dials import PROCESSOR
from vlmtui.domain.engine import LoadSpec, LoadStage
from vlmtui.domain.generation import (
    Delta,
    EngineEvent,
    Finished,
    GenerateRequest,
    PromptReady,
    RenderRequest,
    Request,
    ScoreRequest,
    Timings,
    Usage,
)
from vlmtui.domain.prompt import ChatPrompt, MessagesPrompt, Prompt, attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.contract import CPU_NICENESS, DELTA_S, LoadStep, Report
from vlmtui.worker.backends.transformers.answer_reader import AnswerPiece, AnswerReader
from vlmtui.worker.backends.transformers.answer_run import ForwardGate, Turns, Waiting, first_scores, run_answers
from vlmtui.worker.backends.transformers.arguments import Arguments, read_arguments
from vlmtui.worker.backends.transformers.loading import LoadedModel, eos_ids, load_model, read_engine_info
from vlmtui.worker.backends.transformers.prompt_inputs import PromptBuilder, PromptInputs, check_limits, seen_media
from vlmtui.worker.backends.transformers.sampling import (
    Logprobs,
    SamplingPlan,
    UnlikeAlone,
    configured_sampling,
    plan_sampling,
)
from vlmtui.worker.hf.delta_buffer import DeltaBuffer
from vlmtui.worker.hf.media_items import MediaItem, load_items
from vlmtui.worker.hf.remote_code import pin_remote_code
from vlmtui.worker.hf.template_limits import within_limits
from vlmtui.worker.hf.vocabulary import VocabularyReader

_log = logging.getLogger(__name__)


async def load_engine(spec: LoadSpec, report: Report) -> TransformersEngine:
    """Load a model. Blocks the event loop. Raises VlmtuiError, or whatever Transformers raises."""
    arguments = read_arguments(spec)
    report(LoadStep(LoadStage.ENVIRONMENT, "importing torch and Transformers"))
    spec = pin_remote_code(spec)
    loaded = load_model(spec, arguments, report)
    if loaded.device == "cpu":
        os.nice(CPU_NICENESS)
    report(LoadStep(LoadStage.WARMUP, "reading the model's facts"))
    return TransformersEngine(loaded, spec, arguments)


class TransformersEngine:
    """A model loaded in Transformers. Requests with the same prompt are answered together, others in turn: some models
    keep the state of a prompt."""

    def __init__(self, loaded: LoadedModel, spec: LoadSpec, arguments: Arguments) -> None:
        self.info = read_engine_info(loaded, spec, arguments)
        self._loaded = loaded
        self._raw_special_tokens = arguments.raw_special_tokens
        self._builder = PromptBuilder(loaded.processor, loaded.tokenizer, loaded.config, arguments)
        self._decoder = copy.deepcopy(loaded.tokenizer)  # a tokenizer is for one thread at a time
        self._vocabulary = VocabularyReader(loaded.tokenizer)
        self._defaults = configured_sampling(loaded.generation_config)
        self._building = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._turns = Turns(self._run)
        self._can_batch: dict[tuple[str, ...], bool] = {}
        self._gate = ForwardGate()
        self._broken = asyncio.Event()
        self._ending = threading.Event()

    async def died(self) -> None:
        await self._broken.wait()

    async def shutdown(self) -> None:
        self._ending.set()

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        items = await load_items(attachments_of(request.prompt))
        inputs = await self._inputs(request, items)
        match request:
            case RenderRequest():
                events = self._only_render(request, inputs, items)
            case ScoreRequest():
                events = self._score(request, inputs)
            case GenerateRequest():
                events = self._answer(request, inputs)
        async with aclosing(events):
            async for event in events:
                yield event

    async def _only_render(
        self, request: RenderRequest, inputs: PromptInputs, items: list[MediaItem]
    ) -> AsyncGenerator[EngineEvent, None]:
        ready = self._prompt_ready(request, inputs)
        if view := request.view:
            processor = self._builder.processor
            seen = await asyncio.to_thread(seen_media, inputs, items, processor, request.request_id, view)
            ready = msgspec.structs.replace(ready, seen=seen)
        yield ready
        yield _finished(request.request_id, "stop", None)

    async def _answer(self, request: GenerateRequest, inputs: PromptInputs) -> AsyncGenerator[EngineEvent, None]:
        plan = self._plan(request.sampling, request.logprobs, inputs)
        ready = self._prompt_ready(request, inputs, plan.used)
        yield ready
        reader = AnswerReader(plan, self._decoder, () if self._is_encoder_decoder else inputs.ids)

        def take(token: int, logprobs: Logprobs | None) -> tuple[AnswerPiece, bool]:
            piece = reader.take(token, logprobs)
            return piece, reader.reason is not None

        buffer = DeltaBuffer(request.request_id, self._vocabulary, ready.vocabulary, plan.logprobs)
        sent_at = 0.0
        async with aclosing(self._turns.pieces(request, inputs, plan, take)) as pieces:
            async for piece in pieces:
                buffer.add(piece)
                now = time.monotonic()
                if buffer and (now - sent_at >= DELTA_S or reader.reason is not None):
                    yield buffer.flush()
                    sent_at = now
        if buffer:
            yield buffer.flush()
        stop = reader.stop
        if stop is None and reader.stop_token is not None:
            stop = self._vocabulary.text(reader.stop_token)
        yield _finished(request.request_id, reader.reason or "length", stop)

    async def _score(self, request: ScoreRequest, inputs: PromptInputs) -> AsyncGenerator[EngineEvent, None]:
        """Have the model take the given answer, token by token."""
        plan = self._plan(Sampling(), request.logprobs or 0, inputs)
        ready = self._prompt_ready(request, inputs)
        yield ready
        answer = request.tokens[: self._room(inputs)]

        def take(token: int, logprobs: Logprobs | None) -> tuple[AnswerPiece, bool]:
            left.pop()
            return AnswerPiece("", (token,), (logprobs,) if logprobs is not None else ()), not left

        left = list(answer)
        buffer = DeltaBuffer(request.request_id, self._vocabulary, ready.vocabulary, plan.logprobs)
        if answer:
            async with aclosing(self._turns.pieces(request, inputs, plan, take, forced=answer)) as pieces:
                async for piece in pieces:
                    buffer.add(piece)
            delta: Delta = msgspec.structs.replace(buffer.flush(), text=self._vocabulary.decode(answer))
            yield delta
        yield _finished(request.request_id, "stop", None)

    def _run(self, batch: Sequence[Waiting]) -> None:
        """Answer requests with the same prompt: together, if the model has been seen to answer so as alone."""
        try:
            with self._gate.computing():
                self._loaded.adapters.use(batch[0].request)
                if len(batch) == 1 or not self._run_together(batch):
                    for one in batch:
                        run_answers(self._loaded, one.inputs, [one.row], self._between_tokens)
        except RuntimeError as error:
            if "CUDA error" in str(error) or "device-side assert" in str(error):
                # torch cannot use the GPU in this process any more
                self._loop.call_soon_threadsafe(self._broken.set)
            raise

    def _run_together(self, batch: Sequence[Waiting]) -> bool:
        """Answer them in one batch; False if the model does not allow it, which is checked by the first batch with so
        many media."""
        inputs, rows = batch[0].inputs, [one.row for one in batch]
        kind = tuple(span.modality for span in inputs.media)
        if not self._can_batch.get(kind, True):
            return False
        expected = None if kind in self._can_batch else first_scores(self._loaded, inputs)
        try:
            run_answers(self._loaded, inputs, rows, self._between_tokens, expected=expected)
        except UnlikeAlone as error:
            _log.info("requests with %s are answered in turn: %r", kind, error)
            self._can_batch[kind] = False
            return False
        self._can_batch[kind] = True
        return True

    def _between_tokens(self) -> None:
        if self._ending.is_set():
            raise VlmtuiError(ErrorKind.ENGINE_DIED, "The engine is shutting down.")
        self._gate.between_passes()

    async def _inputs(self, request: Request, items: list[MediaItem]) -> PromptInputs:
        prompt, arguments = request.prompt, request.sampling.extra.get(PROCESSOR)
        given = arguments if isinstance(arguments, dict) and items else {}
        check_limits(items, self.info.limits)
        async with self._building:
            text = await self._text(prompt)
            special = self._raw_special_tokens and not isinstance(prompt, ChatPrompt)
            build = partial(self._builder.build, text, items, special_tokens=special, arguments=given)
            inputs = await asyncio.to_thread(build)
        if len(inputs.ids) >= self.info.max_model_len:
            raise VlmtuiError(
                ErrorKind.CONTEXT_TOO_LONG,
                "The conversation does not fit in the model's context.",
                detail=f"{len(inputs.ids):,} tokens; the context is {self.info.max_model_len:,}.",
                hint="Start a new chat, or attach fewer or smaller images.",
            )
        return inputs

    async def _text(self, prompt: Prompt) -> str:
        """Return the prompt's text. A template runs within limits, while no forward pass does."""
        match prompt:
            case MessagesPrompt():
                render = partial(self._builder.render, prompt)
            case ChatPrompt():
                render = partial(self._builder.render_chat, prompt, self._template(prompt))
            case _:
                return prompt.text
        async with self._gate.template():
            return await within_limits(asyncio.to_thread(render))

    def _template(self, prompt: ChatPrompt) -> str | None:
        """Return the template to use; None: the model's own."""
        if prompt.chat_template is not None or self.info.has_chat_template:
            return prompt.chat_template
        if prompt.fallback_template is None:
            message = f"{self.info.spec.name} has no chat template."
            raise VlmtuiError(ErrorKind.NO_CHAT_TEMPLATE, message, hint="Use a raw prompt instead.")
        return prompt.fallback_template

    def _plan(self, sampling: Sampling, logprobs: int | None, inputs: PromptInputs) -> SamplingPlan:
        return plan_sampling(
            sampling,
            logprobs,
            defaults=self._defaults,
            eos_ids=eos_ids(self._loaded),
            tokenizer=self._loaded.tokenizer,
            room=self._room(inputs),
        )

    def _room(self, inputs: PromptInputs) -> int:
        """Return how many tokens the answer may have."""
        before = 1 if self._is_encoder_decoder else len(inputs.ids)
        return max(1, self.info.max_model_len - before)

    @property
    def _is_encoder_decoder(self) -> bool:
        return bool(getattr(self._loaded.config, "is_encoder_decoder", False))

    def _prompt_ready(self, request: Request, inputs: PromptInputs, used: Sampling | None = None) -> PromptReady:
        return PromptReady(
            request_id=request.request_id,
            prompt=self._vocabulary.decode(inputs.ids),
            token_ids=inputs.ids,
            media=inputs.media,
            vocabulary=self._vocabulary.entries(inputs.ids),
            text=inputs.text if isinstance(request, RenderRequest) else "",
            used=used,
        )


def _finished(request_id: str, reason: Any, stop: str | None) -> Finished:
    """Return Finished without usage and timings, which the server fills in."""
    return Finished(request_id=request_id, finish_reason=reason, stop=stop, usage=Usage(), timings=Timings())
