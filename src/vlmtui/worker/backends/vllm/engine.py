"""Adapt vLLM's AsyncLLM to the worker's HostedEngine interface.

Imports vLLM only inside functions: this module is imported before the worker's socket opens.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from PIL import Image

from vlmtui.domain.capabilities import ALL
from vlmtui.domain.conversation import Attachment, ChatPrompt, MessagesPrompt, RawPrompt, attachments_of, user_turn
from vlmtui.domain.dials import PROCESSOR
from vlmtui.domain.engine import EngineInfo, LoadSpec, LoadStage, adapter_for
from vlmtui.domain.generation import (
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
from vlmtui.domain.metrics import METRIC_NAMES, EngineMetrics, parse_metrics
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.registry.model_files import require_adapter
from vlmtui.worker.backends.contract import CPU_NICENESS, DELTA_S, Backend, LoadStep, Report
from vlmtui.worker.backends.vllm.engine_args import (
    CPU_ENVIRONMENT,
    EAGER_CPU_ENVIRONMENT,
    engine_arguments,
    environment,
    has_no_peers,
    own_context,
    own_context_note,
)
from vlmtui.worker.backends.vllm.failures import explain_death, explain_load, explain_request, read_progress
from vlmtui.worker.backends.vllm.models import config_change
from vlmtui.worker.backends.vllm.requests import (
    aborted,
    as_chunks,
    check_placeholders,
    normalisation_by_model,
    sampling_parameters,
    scored_delta,
    scoring_parameters,
    seen_media,
    structure_of,
    used_sampling,
    with_answer,
)
from vlmtui.worker.backends.vllm.worker_extension import (
    CLOSE_LISTENERS,
    OWN_NORMALISATION,
    WORKER_EXTENSION,
    keep_arguments_apart,
)
from vlmtui.worker.health import limit_memory
from vlmtui.worker.hf.failures import mismatch
from vlmtui.worker.hf.media_items import (
    CHUNKS,
    MODALITIES,
    MediaItem,
    MediaSpans,
    audio_rate_of,
    cached_items,
    load_items,
    patch_size_of,
)
from vlmtui.worker.hf.processor_arguments import check_arguments
from vlmtui.worker.hf.remote_code import pin_remote_code
from vlmtui.worker.hf.rendering import (
    TemplateProcesses,
    TemplateRefusal,
    chat_message,
    has_own_format,
    refused,
    render_messages,
    special_tokens,
    template_of,
    with_image_urls,
)
from vlmtui.worker.hf.seen_pixels import Normalisation
from vlmtui.worker.hf.template_variables import read_variables
from vlmtui.worker.hf.vocabulary import DeltaBuffer, VocabularyReader, eos_ids, tokenizer_facts
from vlmtui.worker.loaded_files import folder_signature, own_adapter_folder


class AdapterShelf:
    """Chooses the LoRA adapter of each request: the one in the folder that the request names, or one of the model
    family's record. vLLM knows an adapter by its number; a folder that was written again gets a new number.

    On a CPU the last of vLLM's adapter slots must stay empty: vLLM 0.32 gives requests without an adapter the slot
    index -1 (`lora/ops/torch_ops`), and the adapter in the last slot would then change their answers.
    """

    def __init__(self, spec: LoadSpec, arguments: Mapping[str, Any], *, on_cpu: bool) -> None:
        """Download the adapters of the model's record if they are missing. `arguments`: the engine arguments."""
        self._spec = spec
        self._own = {request.lora_name: request for request in _of_record(spec)}
        self._is_enabled = bool(arguments.get("enable_lora"))
        slots = arguments.get("max_loras", 1)
        self._most = slots - 1 - len(self._own) if on_cpu else None
        self._numbers: dict[str, tuple[object, int]] = {}
        """Each folder's signature and its adapter's number."""
        self._next = 1 + max((one.lora_int_id for one in self._own.values()), default=1)
        self._outdated: set[int] = set()
        """The numbers of adapters whose folders were written again, and that vLLM may still have."""
        self._users: Counter[int] = Counter()
        """Running requests by their adapter's number."""

    @asynccontextmanager
    async def used_by(self, request: GenerateRequest | ScoreRequest, llm: Any) -> AsyncIterator[Any]:
        """Yield a LoRARequest for the adapter that the request names. If it names none, yield that of the first
        adapter in the model's record that fits the request's media, or None. `llm`: vLLM, to remove outdated adapters.

        Raises VlmtuiError if the engine was loaded without LoRA, has no free slot, or the folder has no adapter.
        """
        signature = await asyncio.to_thread(folder_signature, Path(request.adapter)) if request.adapter else ()
        chosen = self._choose(request, signature)
        number = chosen.lora_int_id if chosen is not None else 0
        self._users[number] += 1
        try:
            for outdated in [one for one in self._outdated if not self._users[one]]:
                self._outdated.discard(outdated)
                await llm.remove_lora(outdated)
            yield chosen
        finally:
            self._users[number] -= 1

    def _choose(self, request: GenerateRequest | ScoreRequest, signature: object) -> Any:
        folder = request.adapter
        if not folder:
            chosen = adapter_for(self._spec, (one.modality for one in attachments_of(request.prompt)))
            return None if chosen is None else self._own[chosen.name]
        if not self._is_enabled:
            raise VlmtuiError(
                ErrorKind.UNSUPPORTED,
                "The model was loaded without LoRA.",
                hint="Load it with the engine argument enable_lora = true.",
            )
        if not (Path(folder) / "adapter_config.json").is_file():
            raise bad_input(f"The adapter's folder {Path(folder).name!r} is gone.")
        require_adapter(Path(folder))
        known = self._numbers.get(folder)
        if known is not None and known[0] != signature:
            self._outdated.add(self._numbers.pop(folder)[1])
        held = len(self._numbers) + sum(self._users[one] > 0 for one in self._outdated)
        if self._most is not None and folder not in self._numbers and held >= self._most:
            raise VlmtuiError(
                ErrorKind.UNSUPPORTED,
                f"On a CPU this engine takes {self._most} different adapters.",
                hint="Load the model with a higher max_loras.",
            )
        from vllm.lora.request import LoRARequest

        if folder not in self._numbers:
            self._numbers[folder] = signature, self._next
            self._next += 1
        number = self._numbers[folder][1]
        return LoRARequest(f"{Path(folder).name}-{number}", number, folder)


def _of_record(spec: LoadSpec) -> Iterator[Any]:
    """Yield a LoRARequest for each adapter of the model's record. Downloads missing files."""
    for adapter in spec.loras:
        from vllm.lora.request import LoRARequest

        yield LoRARequest(adapter.name, adapter.id, str(own_adapter_folder(spec, adapter, spec.revision)))


def read_engine_info(llm: Any, spec: LoadSpec, arguments: Mapping[str, object]) -> EngineInfo:
    """Return the facts about an AsyncLLM. `arguments`: the engine arguments it was created with."""
    import vllm
    from vllm.platforms import current_platform

    config, tokenizer = llm.model_config, llm.get_tokenizer()
    processor = getattr(llm.renderer, "mm_processor", None)
    limits = dict(processor.info.allowed_mm_limits) if processor is not None else {}
    if CHUNKS in limits:
        given = arguments.get("limit_mm_per_prompt")
        limits["image"] = given.get("image", limits[CHUNKS]) if isinstance(given, Mapping) else limits[CHUNKS]
    template = _chat_template(llm)
    return EngineInfo(
        spec=spec,
        architecture=config.architectures[0],
        engine="vLLM",
        engine_version=vllm.__version__,
        device="cpu" if current_platform.is_cpu() else str(current_platform.get_device_name()),
        dtype=str(config.dtype).removeprefix("torch."),
        max_model_len=config.max_model_len,
        has_chat_template=template is not None,
        limits={modality: limits[modality] for modality in MODALITIES if limits.get(modality)},
        load_s=0.0,
        engine_args={**arguments, **{name: os.environ[name] for name in _NUMERIC if name in os.environ}},
        revision=getattr(config.hf_config, "_commit_hash", None) or config.revision,
        chat_template=template or "",
        template_variables=read_variables(template) if template else None,
        capabilities=msgspec.structs.replace(ALL, chat_template_source=bool(template)),
        **tokenizer_facts(tokenizer, eos_ids(tokenizer, config.try_get_generation_config().get("eos_token_id"))),
    )


def _chat_template(llm: Any) -> str | None:
    """Return the Jinja source; "" if Python code formats the model's messages, None if there is no template."""
    from vllm.renderers.hf import HfRenderer, resolve_chat_template

    if not isinstance(llm.renderer, HfRenderer):
        return ""
    found = resolve_chat_template(llm.get_tokenizer(), None, None, model_config=llm.model_config)
    return None if found is None else str(found)


_log = logging.getLogger(__name__)
_NUMERIC = ("VLLM_BATCH_INVARIANT",)
"""Environment variables that change an engine's numbers. They are recorded with its arguments."""
_NO_TEXT = {"openai": "{% for message in messages %}{% for part in message.content %}{% endfor %}{% endfor %}-",
            "string": "-"}  # fmt: skip
"""Templates that write nothing of a conversation, by the form of content that vLLM detects in them. With them vLLM
prepares messages and media, but never reads a foreign template."""
_DEATH_CHECK_S = 0.25
"""Seconds between checks of vLLM's `errored` flag."""
_WARM_UP_IMAGE = Image.new("RGB", (112, 112), "gray")
_WARM_UP_ATTACHMENT = Attachment(
    modality="image", name="warm-up", path="", sha256="", width=112, height=112, size_bytes=0, format="PNG"
)


async def load_engine(spec: LoadSpec, report: Report) -> VllmEngine:
    """Load a model. Blocks the event loop. Raises VlmtuiError, or any exception of vLLM."""
    for name, value in environment(spec.engine_args).items():
        os.environ.setdefault(name, value)
    if importlib.util.find_spec("vllm") is None:
        raise ModuleNotFoundError("No module named 'vllm'")
    from vllm.platforms import current_platform

    on_cpu = current_platform.is_cpu()
    if on_cpu:
        for name, value in CPU_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        os.nice(CPU_NICENESS)
        limit_memory()
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    report(LoadStep(LoadStage.CONFIG, "reading the model's config"))
    spec = pin_remote_code(spec)
    known = {field.name for field in fields(AsyncEngineArgs)}
    arguments = engine_arguments(spec, known=known, on_cpu=on_cpu)
    if on_cpu and arguments.get("enforce_eager"):
        for name, value in EAGER_CPU_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    is_closed = has_no_peers(arguments) and "worker_extension_cls" not in arguments
    extension: dict[str, object] = {"worker_extension_cls": WORKER_EXTENSION} if is_closed else {}
    extension |= config_change(arguments)  # replaces the record's `hf_overrides`
    notes: tuple[str, ...] = ()
    try:
        llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**{**arguments, **extension}))
    except ValueError as error:  # raised before vLLM starts a process, so that a second try is clean
        own = own_context(str(error))
        if own is None:
            raise
        notes = (own_context_note(own, arguments["max_model_len"]),)
        report(LoadStep(LoadStage.CONFIG, notes[0]))
        arguments["max_model_len"] = own
        llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**{**arguments, **extension}))
    if is_closed:
        _log.info("closed %s TCP listeners of the engine", sum(await llm.collective_rpc(CLOSE_LISTENERS)))
    engine = VllmEngine(llm, spec, arguments, notes)
    if is_closed and getattr(llm.model_config.multimodal_config, "mm_device_do_normalize", False):
        engine.by_model = normalisation_by_model((await llm.collective_rpc(OWN_NORMALISATION))[0])
    report(LoadStep(LoadStage.WARMUP, "first request"))
    await engine.warm_up()
    return engine


class VllmEngine:
    def __init__(self, llm: Any, spec: LoadSpec, arguments: dict[str, object], notes: tuple[str, ...] = ()) -> None:
        keep_arguments_apart()
        self._llm = llm
        self._renderer = llm.renderer
        self._tokenizer = llm.get_tokenizer()
        self._defaults: dict[str, Any] = llm.model_config.get_diff_sampling_param()
        self._number = 0
        self._structured = ""
        """The kind of structure of the first structured answer."""
        self._vocabulary = VocabularyReader(self._tokenizer)
        self._media_spans = MediaSpans(patch_size_of(llm.model_config.hf_config))
        self._audio_rate = audio_rate_of(getattr(self._renderer, "mm_processor", None))
        self._takes_chunks = bool(getattr(llm.model_config.hf_config, "use_unified_vision_chunk", False))
        self.by_model: Normalisation | None = None
        """How the model normalises levels of 0 to 255; None: unknown, or its processor does."""
        self.info = msgspec.structs.replace(read_engine_info(llm, spec, arguments), notes=notes)
        self._adapters = AdapterShelf(spec, arguments, on_cpu=self.info.device == "cpu")
        self._templates = TemplateProcesses(self._tokenizer, self.info.max_model_len)

    @property
    def is_dead(self) -> bool:
        return bool(self._llm.errored)

    async def died(self) -> None:
        while not self.is_dead:  # noqa: ASYNC110 - vLLM only sets a flag
            await asyncio.sleep(_DEATH_CHECK_S)

    async def shutdown(self) -> None:
        self._templates.close()
        await asyncio.to_thread(self._llm.shutdown, timeout=0)

    async def metrics(self) -> EngineMetrics:
        """Return vLLM's metrics, read from its Prometheus registry in this process."""
        from prometheus_client import generate_latest
        from vllm.v1.metrics.prometheus import get_prometheus_registry

        def read() -> EngineMetrics:
            return parse_metrics(generate_latest(get_prometheus_registry().restricted_registry(METRIC_NAMES)).decode())

        return await asyncio.to_thread(read)

    async def warm_up(self) -> None:
        """Run one short request, with an image if the model takes images, so that the user's first request is as fast
        as later ones.

        A failure is logged, and raised only if it killed the engine."""
        if not self.info.has_chat_template:
            return
        items = [MediaItem("image", _WARM_UP_IMAGE, "warm-up")] if self.info.limits.get("image") else []
        prompt = ChatPrompt(turns=(user_turn("Hello", [_WARM_UP_ATTACHMENT] * len(items)),))
        request = GenerateRequest(request_id="warm-up", prompt=prompt, sampling=Sampling(max_tokens=2))
        try:
            async for _ in self._answer(request, items, time.monotonic()):
                pass
        except Exception:
            _log.warning("the warm-up request failed", exc_info=True)
            if self.is_dead:
                raise

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        arrived = time.monotonic()
        attachments, rate = attachments_of(request.prompt), self._audio_rate
        is_cached = isinstance(request, GenerateRequest) and request.from_cache and not self._takes_chunks
        items = cached_items(attachments, rate) if is_cached else await load_items(attachments, rate)
        match request:
            case RenderRequest():
                events = self._only_render(request, items)
            case ScoreRequest():
                events = self._score(request, items)
            case GenerateRequest():
                events = self._answer(request, items, arrived)
        async with aclosing(events):
            async for event in events:
                yield event

    async def _only_render(self, request: RenderRequest, items: list[MediaItem]) -> AsyncGenerator[EngineEvent, None]:
        if self.is_dead:
            raise self._llm.dead_error
        rendered = await self._render(request, items, is_sent=False)
        ready = self._prompt_ready(request, rendered)
        if request.view is not None:
            render = partial(self._render, is_sent=False)
            seen = await seen_media(request, request.view, items, rendered, self._processor(), render, self.by_model)
            ready = msgspec.structs.replace(ready, seen=seen)
        yield ready
        yield _finished(request.request_id, "stop", None)

    async def _answer(
        self, request: GenerateRequest, items: list[MediaItem], arrived: float
    ) -> AsyncGenerator[EngineEvent, None]:
        parameters = sampling_parameters(
            request.sampling,
            request.logprobs,
            defaults=self._defaults,
            tokenizer=self._tokenizer,
            logprobs_max=self._llm.model_config.max_logprobs,
            final_only=request.final_only,
        )
        rendered = await self._render(request, items)
        room = self.info.max_model_len - len(rendered["prompt_token_ids"])
        ready = self._prompt_ready(request, rendered, used_sampling(parameters, room=room, given=request.sampling))
        yield ready
        buffer = DeltaBuffer(request.request_id, self._vocabulary, ready.vocabulary, request.logprobs)
        sent_at = 0.0
        output: Any = None
        last: Any = None
        async for result in self._results(request, rendered, items, parameters):
            last, output = result, result.outputs[0]
            buffer.add(output)
            now = time.monotonic()
            if buffer and (now - sent_at >= DELTA_S or result.finished):
                yield buffer.flush()
                sent_at = now
        reason = output.finish_reason if output is not None else None
        first = self._structured
        self._structured = first or structure_of(request.sampling)
        if reason not in ("stop", "length"):
            raise aborted(reason, request.sampling, first)
        stop = self._stop_text(output, buffer.last) if reason == "stop" else None
        ended = _finished(request.request_id, reason, stop, last)
        yield _with_first_token(ended, last, arrived) if request.final_only else ended

    async def _score(self, request: ScoreRequest, items: list[MediaItem]) -> AsyncGenerator[EngineEvent, None]:
        parameters = scoring_parameters(request.logprobs)
        rendered = await self._render(request, items)
        ready = self._prompt_ready(request, rendered)
        yield ready
        room = self.info.max_model_len - len(ready.token_ids) - 1  # vLLM needs room for one more token
        request = msgspec.structs.replace(request, tokens=request.tokens[: max(0, room)])
        async for result in self._results(request, with_answer(rendered, request), items, parameters):
            if result.prompt_logprobs:
                yield scored_delta(request, result.prompt_logprobs, self._vocabulary, ready.vocabulary)
        yield _finished(request.request_id, "stop", None)

    async def _results(
        self, request: GenerateRequest | ScoreRequest, rendered: Any, items: list[MediaItem], parameters: Any
    ) -> AsyncGenerator[Any, None]:
        """Yield vLLM's outputs. Render again and retry once if the engine core lacks the media.

        vLLM marks rendered media as sent even if the prompt was then refused or cancelled. A later request with the
        same media then fails in the engine core."""
        async with self._adapters.used_by(request, self._llm) as lora:
            for is_last in (False, True):
                self._number += 1
                number = f"{request.request_id}-{self._number}"
                async for result in self._llm.generate(rendered, parameters, number, lora_request=lora):
                    if result.outputs[0].finish_reason == "error" and items and not is_last:
                        break
                    yield result
                else:
                    return
                rendered = await self._render(request, items)
                if isinstance(request, ScoreRequest):
                    rendered = with_answer(rendered, request)

    async def _render(self, request: Request, items: list[MediaItem], *, is_sent: bool = True) -> Any:
        """Return the engine's input: token ids with expanded placeholders, and the processed media.

        `is_sent`: False if the input is only inspected and never sent to the engine core; vLLM otherwise assumes that
        the engine core has the media.
        """
        started, prompt = time.time(), request.prompt
        if isinstance(prompt, MessagesPrompt) and self.info.spec.family is None and prompt.chat_template is None:
            # Only vLLM knows the placeholder that a template without parts needs.
            chat = ChatPrompt(turns=prompt.turns)
            written = (await self._render_chat(chat, items, request.sampling)).get("prompt")
            prompt = RawPrompt(text=written, attachments=prompt.attachments) if isinstance(written, str) else prompt
        if isinstance(prompt, MessagesPrompt):
            sources = [self._processor(), self._tokenizer] if prompt.by == "processor" else [self._tokenizer]
            own = str(prompt.chat_template or getattr(sources[0], "chat_template", None) or self.info.chat_template)
            variables = await self._templates.variables(request.sampling, own)
            text = await render_messages(prompt, sources, variables, self._templates)
            prompt = RawPrompt(text=text, attachments=prompt.attachments)
        if isinstance(prompt, ChatPrompt):
            parsed = await self._render_chat(prompt, items, request.sampling)
            parameters = self._renderer.default_chat_tok_params
            if "prompt" in parsed:  # the template has written BOS
                parameters = parameters.with_kwargs(add_special_tokens=False, do_lower_case=False)
        else:
            parsed = self._render_raw(prompt, items)
            parsed = as_chunks(parsed, items) if self._takes_chunks else parsed
            parameters = self._renderer.default_cmpl_tok_params
        await self._templates.require_fit(str(parsed.get("prompt") or ""))
        if items and isinstance(arguments := request.sampling.extra.get(PROCESSOR), dict):
            check_arguments(self._processor(), arguments)
            parsed["mm_processor_kwargs"] = arguments
        (tokenised,) = await self._renderer.tokenize_prompts_async([parsed], parameters)
        try:
            rendered = await self._renderer.process_for_engine_async(
                tokenised, started, skip_mm_cache=not is_sent, tok_params=parameters
            )
        except (ValueError, RuntimeError) as error:
            # The usual cause is a missing placeholder; the exact message differs from processor to processor.
            if items and "Failed to apply prompt replacement" in str(error):
                raise mismatch(
                    "The prompt has fewer placeholders than there are attachments.", detail=str(error)
                ) from error
            raise
        check_placeholders(rendered, items, self._llm.model_config.hf_config, self._tokenizer)
        if not is_sent:
            rendered["prompt"] = parsed.get("prompt")
        return rendered

    async def _render_chat(self, prompt: ChatPrompt, items: list[MediaItem], sampling: Sampling) -> Any:
        """Render with a chat template. Returns a text with media, or token ids if the model's messages are formatted by
        Python code."""
        from vllm.renderers.hf import HfRenderer, resolve_chat_template
        from vllm.renderers.mistral import MistralRenderer
        from vllm.renderers.params import ChatParams

        template = template_of(prompt, self.info)
        if self._takes_chunks:  # vLLM takes such an image from a chat only with its file, whose bytes it does not read
            from vllm.multimodal.media import MediaWithBytes

            items = [MediaItem(one.modality, MediaWithBytes(one.data, b""), one.uuid) for one in items]
        left = iter(items)
        messages = [chat_message(turn, left) for turn in prompt.turns]
        if isinstance(self._renderer, MistralRenderer):
            messages = [with_image_urls(message) for message in messages]
        variables = await self._templates.variables(sampling, template or self.info.chat_template)
        if isinstance(self._renderer, HfRenderer) and not has_own_format(self._tokenizer):
            config = self._llm.model_config
            source = str(resolve_chat_template(self._tokenizer, template, None, model_config=config))
            try:
                form = await self._templates.content_format(source)
            except TemplateRefusal as error:
                raise refused(error) from error
            parameters = ChatParams(chat_template=_NO_TEXT[form], chat_template_kwargs={"tokenize": False})
            conversation, parsed = await self._renderer.render_messages_async(messages, parameters)
            given = {**special_tokens(self._tokenizer), **variables}
            try:
                parsed["prompt"] = await self._templates.render(source, conversation, given)
            except TemplateRefusal as error:
                raise refused(error) from error
        else:
            for turn in prompt.turns:
                await self._templates.require_fit(turn.text if turn.role == "user" else "")
            given = {**variables, "add_generation_prompt": True}
            parameters = ChatParams(chat_template=template, chat_template_kwargs=given)
            _, parsed = await self._renderer.render_messages_async(messages, parameters)
        # vLLM's chat renderer takes videos and audio only as URLs. The messages have empty URLs; here is the data.
        for modality in ("video", "audio"):
            if found := [item.data for item in items if item.modality == modality]:
                parsed["multi_modal_data"][modality] = found
        return parsed

    @staticmethod
    def _render_raw(prompt: RawPrompt, items: list[MediaItem]) -> Any:
        parsed: dict[str, Any] = {"prompt": prompt.text}
        for modality in MODALITIES:
            wanted = [item for item in items if item.modality == modality]
            if wanted:
                parsed.setdefault("multi_modal_data", {})[modality] = [item.data for item in wanted]
                parsed.setdefault("multi_modal_uuids", {})[modality] = [item.uuid for item in wanted]
        return parsed

    def _prompt_ready(self, request: Request, rendered: Any, used: Sampling | None = None) -> PromptReady:
        ids = tuple(rendered["prompt_token_ids"])
        is_read = not (isinstance(request, GenerateRequest) and request.final_only)
        return PromptReady(
            request_id=request.request_id,
            prompt=self._vocabulary.decode(ids) if is_read else "",
            token_ids=ids,
            media=self._media_spans.of(rendered),
            vocabulary=self._vocabulary.entries(ids) if is_read else {},
            text=str(rendered.get("prompt") or "") if isinstance(request, RenderRequest) else "",
            used=used,
        )

    def _processor(self) -> Any:
        processor = getattr(self._renderer, "mm_processor", None)
        return None if processor is None else processor.info.get_hf_processor()

    def _stop_text(self, output: Any, last_token: int | None) -> str | None:
        """Return the stop string or the text of the stop token that ended the answer."""
        if isinstance(output.stop_reason, str):
            return str(output.stop_reason)
        token = output.stop_reason if isinstance(output.stop_reason, int) else last_token
        return None if token is None else self._vocabulary.text(token)


def _finished(request_id: str, reason: FinishReason, stop: str | None, last: Any = None) -> Finished:
    """Return Finished with the cached tokens and the queueing time of `last`, vLLM's last output.

    The worker's server adds the other counts and times."""
    usage = Usage(cached_tokens=getattr(last, "num_cached_tokens", None) or 0)
    stats = getattr(last, "metrics", None)
    scheduled, queued = getattr(stats, "scheduled_ts", 0.0), getattr(stats, "queued_ts", 0.0)
    timings = Timings(queued_s=max(0.0, scheduled - queued) if scheduled and queued else None)
    return Finished(request_id=request_id, finish_reason=reason, stop=stop, usage=usage, timings=timings)


def _with_first_token(ended: Finished, last: Any, arrived: float) -> Finished:
    """Add the time to first token, which the server cannot measure if an answer arrives in one piece.

    `last`: vLLM's last output. `arrived`: the `time.monotonic()` of the request's arrival."""
    stats = getattr(last, "metrics", None)
    first, latest = getattr(stats, "first_token_ts", 0.0), getattr(stats, "last_token_ts", 0.0)
    if not first:
        return ended
    ttft_s = max(0.0, time.monotonic() - arrived - (latest - first))
    return msgspec.structs.replace(ended, timings=msgspec.structs.replace(ended.timings, ttft_s=ttft_s))


BACKEND = Backend(
    title="vLLM",
    load=load_engine,
    read_progress=read_progress,
    explain_load=explain_load,
    explain_request=explain_request,
    explain_death=explain_death,
)
