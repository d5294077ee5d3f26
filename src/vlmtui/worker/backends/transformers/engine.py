"""Adapt a model of Transformers to the worker's HostedEngine interface.

Requests run one after another in a thread. The text of each token is sent as soon as it is decoded. Imports torch and
Transformers only inside functions: this module is imported before the worker's socket opens.
"""

from __future__ import annotations

import asyncio
import copy
import os
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec

from vlmtui.domain.conversation import ChatPrompt, MessagesPrompt, Prompt, attachments_of
from vlmtui.domain.dials import PROCESSOR
from vlmtui.domain.engine import LoadSpec, LoadStage
from vlmtui.domain.generation import (
    Delta,
    EngineEvent,
    Finished,
    FinishReason,
    GenerateRequest,
    PromptReady,
    RenderRequest,
    Request,
    ScoreRequest,
    Timings,
    Usage,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.contract import (
    CPU_NICENESS,
    DELTA_S,
    Backend,
    LoadStep,
    Report,
    explain_load,
    explain_request,
)
from vlmtui.worker.backends.transformers.loading import (
    Arguments,
    LoadedModel,
    input_device,
    load_model,
    read_arguments,
    read_engine_info,
)
from vlmtui.worker.backends.transformers.sampling import (
    Logprobs,
    SamplingPlan,
    TokenChooser,
    configured_sampling,
    plan_sampling,
)
from vlmtui.worker.backends.vllm.failures import read_progress
from vlmtui.worker.hf.failures import FILE_RULES, ONE_EACH, FailureRule
from vlmtui.worker.hf.media_items import MediaItem, load_items
from vlmtui.worker.hf.prompt_inputs import PromptBuilder, PromptInputs, check_limits, seen_media
from vlmtui.worker.hf.remote_code import pin_remote_code
from vlmtui.worker.hf.rendering import TemplateProcesses, template_of, too_long
from vlmtui.worker.hf.vocabulary import DeltaBuffer, VocabularyReader

_PRIMED = 6
"""The number of the prompt's last tokens that are decoded with the answer, because SentencePiece drops a space at the
beginning of a text."""
_UNFINISHED = "\ufffd"


class AnswerPiece(msgspec.Struct, frozen=True):
    """New tokens of an answer. `text` may lag behind them: text that could begin a stop string comes later."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[Logprobs, ...]


class AnswerReader:
    """Turns the tokens of one answer into text and finds its end: a stop token, a stop string or the length limit.

    `before`: the prompt's tokens, which the answer continues; empty for an encoder-decoder model.
    """

    def __init__(self, plan: SamplingPlan, tokenizer: Any, before: Sequence[int] = ()) -> None:
        self._plan = plan
        self._tokenizer = tokenizer
        self._ids = list(before[-_PRIMED:])
        self._from, self._shown = 0, len(self._ids)
        self._held = ""
        self._count = 0
        self.reason: FinishReason | None = None
        self.stop: str | None = None
        """The stop string that ended the answer."""
        self.stop_token: int | None = None

    def take(self, token: int, logprobs: Logprobs | None) -> AnswerPiece:
        """Add the next token and return the text that is complete. Sets `reason` if the answer ends here."""
        self._count += 1
        found = (logprobs,) if logprobs is not None else ()
        is_late = self._count > self._plan.further.min_tokens
        if token in self._plan.stop_ids and is_late:
            self.reason, self.stop_token = "stop", token
            more = self._decoded(token) if self._plan.further.include_stop_str_in_output else ""
            return AnswerPiece(self._release(more), (token,), found)
        self._held += self._decoded(token)
        if is_late and self._found_stop():
            self.reason = "stop"
            return AnswerPiece(self._release(""), (token,), found)
        if self._count >= (self._plan.used.max_tokens or 0):
            self.reason = "length"
            return AnswerPiece(self._release(self._rest()), (token,), found)
        hold = max((len(one) for one in self._plan.used.stop), default=1) - 1
        ready = self._held[: max(0, len(self._held) - hold)]
        self._held = self._held[len(ready) :]
        return AnswerPiece(ready, (token,), found)

    def _release(self, more: str) -> str:
        text, self._held = self._held + more, ""
        return text

    def _found_stop(self) -> bool:
        """Look for a stop string in the text that is held back. If there is one, cut the text there and return True."""
        places = [(at, one) for one in self._plan.used.stop if (at := self._held.find(one)) >= 0]
        if not places:
            return False
        at, self.stop = min(places)
        self._held = self._held[: at + len(self.stop) if self._plan.further.include_stop_str_in_output else at]
        return True

    def _decoded(self, token: int) -> str:
        """Return the text that the token adds; "" while a character is incomplete."""
        self._ids.append(token)
        before, now = self._text(self._shown), self._text(len(self._ids))
        if len(now) <= len(before) or now.endswith(_UNFINISHED):
            return ""
        self._from, self._shown = self._shown, len(self._ids)
        return now[len(before) :]

    def _rest(self) -> str:
        return self._text(len(self._ids))[len(self._text(self._shown)) :]

    def _text(self, end: int) -> str:
        ids = self._ids[self._from : end]
        return str(self._tokenizer.decode(ids, skip_special_tokens=self._plan.used.skip_special_tokens))


TakePiece = Callable[[int, Logprobs | None], tuple[AnswerPiece, bool]]
"""Takes a token with its log-probabilities; returns the new text, and True if the answer is complete."""
_NO_STOPS = {"eos_token_id": [-1], "pad_token_id": 0}
"""Arguments of `generate` for an answer without EOS tokens. It replaces None by the model's own EOS tokens."""


def _tensors(model: Any, inputs: PromptInputs) -> dict[str, Any]:
    import torch

    device = input_device(model)

    def placed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(device, model.dtype if value.is_floating_point() else value.dtype)
        return [placed(one) for one in value] if isinstance(value, list) else value

    return {name: placed(value) for name, value in inputs.tensors.items()}


async def load_engine(spec: LoadSpec, report: Report) -> TransformersEngine:
    """Load a model. Blocks the event loop. Raises VlmtuiError, or any exception of Transformers."""
    arguments = read_arguments(spec)
    report(LoadStep(LoadStage.ENVIRONMENT, "importing torch and Transformers"))
    spec = pin_remote_code(spec)
    loaded = load_model(spec, arguments, report)
    if loaded.device == "cpu":
        os.nice(CPU_NICENESS)
    report(LoadStep(LoadStage.WARMUP, "reading the model's facts"))
    return TransformersEngine(loaded, spec, arguments)


class TransformersEngine:
    """A model loaded in Transformers. Answers one request at a time, because some models keep state of a prompt."""

    def __init__(self, loaded: LoadedModel, spec: LoadSpec, arguments: Arguments) -> None:
        self.info = read_engine_info(loaded, spec, arguments)
        self._loaded = loaded
        self._raw_special_tokens = arguments.raw_special_tokens
        self._builder = PromptBuilder(loaded.processor, loaded.tokenizer, loaded.config, arguments.mm_processor_kwargs)
        self._decoder = copy.deepcopy(loaded.tokenizer)  # tokenizers are not thread-safe
        self._vocabulary = VocabularyReader(loaded.tokenizer)
        self._defaults = configured_sampling(loaded.generation_config)
        self._building = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._computer = ThreadPoolExecutor(1, thread_name_prefix="computer")
        self._templates = TemplateProcesses(loaded.tokenizer, self.info.max_model_len)
        self._broken = asyncio.Event()
        self._ending = threading.Event()

    async def died(self) -> None:
        await self._broken.wait()

    async def shutdown(self) -> None:
        self._ending.set()
        self._templates.close()

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
        async with aclosing(self._pieces(request, inputs, plan, take)) as pieces:
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
        """Yield the log-probabilities of a given answer, computed token by token."""
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
            async with aclosing(self._pieces(request, inputs, plan, take, forced=answer)) as pieces:
                async for piece in pieces:
                    buffer.add(piece)
            delta: Delta = msgspec.structs.replace(buffer.flush(), text=self._vocabulary.decode(answer))
            yield delta
        yield _finished(request.request_id, "stop", None)

    async def _pieces(
        self,
        request: GenerateRequest | ScoreRequest,
        inputs: PromptInputs,
        plan: SamplingPlan,
        take: TakePiece,
        forced: Sequence[int] = (),
    ) -> AsyncGenerator[AnswerPiece, None]:
        """Wait for the earlier requests, then generate and yield the pieces of the answer. `forced`: score these tokens
        instead of choosing any. Closing the generator stops the answer before its next token."""
        arrived: asyncio.Queue[AnswerPiece | None] = asyncio.Queue()
        stopped = threading.Event()

        def post(piece: AnswerPiece | None) -> None:
            self._loop.call_soon_threadsafe(arrived.put_nowait, piece)

        def take_and_post(token: int, logprobs: Logprobs | None) -> bool:
            piece, is_complete = take(token, logprobs)
            post(piece)
            return is_complete

        def goes_on() -> bool:
            if self._ending.is_set():
                raise VlmtuiError(ErrorKind.ENGINE_DIED, "The engine is shutting down.")
            return not stopped.is_set()

        chooser = TokenChooser(plan, inputs.ids, take_and_post, forced, goes_on)
        job = self._computer.submit(self._run, request, inputs, chooser)
        job.add_done_callback(lambda _: post(None))
        try:
            while (piece := await arrived.get()) is not None:
                yield piece
            job.result()
        finally:
            stopped.set()
            if not job.cancel():
                await asyncio.gather(asyncio.wrap_future(job), return_exceptions=True)

    def _run(self, request: GenerateRequest | ScoreRequest, inputs: PromptInputs, chooser: TokenChooser) -> None:
        """Generate an answer. Blocking. An exception that `chooser` raises ends the answer."""
        import torch

        model = self._loaded.model
        try:
            with torch.inference_mode():
                self._loaded.adapters.use(request)
                model.generate(
                    **_tensors(model, inputs),
                    logits_processor=[chooser],
                    stopping_criteria=[chooser.should_stop],
                    max_new_tokens=chooser.most,
                    do_sample=False,
                    **(_NO_STOPS if chooser.ignores_eos else {}),
                )
        except RuntimeError as error:
            if "CUDA error" in str(error) or "device-side assert" in str(error):
                # torch cannot use the GPU in this process any more
                self._loop.call_soon_threadsafe(self._broken.set)
            raise

    async def _inputs(self, request: Request, items: list[MediaItem]) -> PromptInputs:
        prompt, arguments = request.prompt, request.sampling.extra.get(PROCESSOR)
        given = arguments if isinstance(arguments, dict) and items else {}
        check_limits(items, self.info.limits)
        text = await self._text(prompt, request.sampling)
        await self._templates.require_fit(text)
        async with self._building:
            special = self._raw_special_tokens and not isinstance(prompt, ChatPrompt)
            build = partial(self._builder.build, text, items, special_tokens=special, arguments=given)
            inputs = await asyncio.to_thread(build)
        if len(inputs.ids) >= self.info.max_model_len:
            raise too_long(f"{len(inputs.ids):,} tokens; the context is {self.info.max_model_len:,}.")
        return inputs

    async def _text(self, prompt: Prompt, sampling: Sampling) -> str:
        match prompt:
            case MessagesPrompt():
                variables = await self._templates.variables(sampling, prompt.chat_template or self.info.chat_template)
                return await self._builder.render(prompt, variables, self._templates)
            case ChatPrompt():
                template = template_of(prompt, self.info)
                variables = await self._templates.variables(sampling, template or self.info.chat_template)
                return await self._builder.render_chat(prompt, template, variables, self._templates)
            case _:
                return prompt.text

    def _plan(self, sampling: Sampling, logprobs: int | None, inputs: PromptInputs) -> SamplingPlan:
        return plan_sampling(
            sampling,
            logprobs,
            defaults=self._defaults,
            eos_ids=self._loaded.eos_ids,
            tokenizer=self._loaded.tokenizer,
            room=self._room(inputs),
        )

    def _room(self, inputs: PromptInputs) -> int:
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
    """Return Finished without usage and timings, which the worker's server adds."""
    return Finished(request_id=request_id, finish_reason=reason, stop=stop, usage=Usage(), timings=Timings())


_MEMORY_RULE = FailureRule(
    ErrorKind.OUT_OF_MEMORY,
    re.compile(
        r"out of memory|OutOfMemoryError|Cannot allocate memory|can't allocate memory|MemoryError|Unable to allocate",
        re.I,
    ),
    "Not enough free memory for this model.",
    "Free memory (vlmtui ps; nvidia-smi), use a smaller model, or more GPUs: --engine-arg device_map=auto.",
)
_LOAD_RULES = (
    FailureRule(
        ErrorKind.NO_ENGINE,
        re.compile(r"No module named '?(?:torch|transformers)\b"),
        "The engine's Python environment has no Transformers.",
        "`vlmtui engines` lists the engines; `vlmtui engines install` installs one that fits this machine.",
    ),
    _MEMORY_RULE,
    FailureRule(
        ErrorKind.NO_GPU,
        re.compile(r"Found no NVIDIA driver|No CUDA GPUs are available|Torch not compiled with CUDA", re.I),
        "There is no GPU that torch can use.",
        "Check nvidia-smi and CUDA_VISIBLE_DEVICES, or leave the engine argument `device` out.",
    ),
    FailureRule(
        ErrorKind.BAD_ENGINE_ARGUMENT,
        re.compile(r"(?:requires|needs) the following packages|This modeling file requires|requires the \S+ library"),
        "The model needs a package that is not installed.",
        "Install it in the engine's environment: the technical part names it.",
    ),
    FailureRule(
        ErrorKind.BAD_ENGINE_ARGUMENT,
        re.compile(r"device_map|offload_(?:folder|dir)|device type at start of device string|Invalid device", re.I),
        "The model can't be spread as device_map says.",
        "Use `auto`, or the name of a device for each part. The technical part names what is wrong.",
    ),
    FailureRule(
        ErrorKind.ARCHITECTURE_UNSUPPORTED,
        re.compile(r"does not recognize this architecture|Unrecognized configuration class|Unrecognized model in"),
        "The installed Transformers does not know this model's architecture.",
        "Another engine may: see vlmtui models.",
    ),
)
_REQUEST_RULES = (
    _MEMORY_RULE,
    FailureRule(
        ErrorKind.PLACEHOLDER_MISMATCH,
        re.compile(
            r"number of image|image tokens?\b.*(?:match|number)|features and (?:image )?tokens do not match|"
            r"placeholders?.*match|Invalid input|mismatch.*(?:image|video)|StopIteration|list index out of range"
        ),
        "The placeholders in the prompt do not match the attachments.",
        ONE_EACH,
    ),
)


BACKEND = Backend(
    title="Transformers",
    load=load_engine,
    read_progress=read_progress,
    explain_load=partial(explain_load, rules=(*_LOAD_RULES, *FILE_RULES)),
    explain_request=partial(explain_request, rules=_REQUEST_RULES),
    computes_in_worker=True,
)
