"""A model on a server, through the worker's interface of an engine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

from vlmtui.domain.attachment import Modality
from vlmtui.domain.capabilities import Capabilities, Capability
from vlmtui.domain.engine import EngineInfo, LoadSpec, LoadStage
from vlmtui.domain.generation import (
    EngineEvent,
    Finished,
    GenerateRequest,
    PromptReady,
    RenderRequest,
    Request,
    Timings,
    Usage,
)
from vlmtui.domain.metrics import EngineMetrics
from vlmtui.domain.prompt import ChatPrompt, RawPrompt, attachments_of
from vlmtui.errors import VlmtuiError
from vlmtui.worker.backends.contract import DELTA_S, LoadStep, Report
from vlmtui.worker.backends.remote.answer_stream import PartBuffer, StreamedPart, of_another, part_of, unfinished
from vlmtui.worker.backends.remote.bodies import MediaPart, RequestBodies, read_media
from vlmtui.worker.backends.remote.http_api import ServerApi
from vlmtui.worker.backends.remote.http_errors import NOT_NOW, ConnectionBroken, ServerError, Unanswered, endless
from vlmtui.worker.backends.remote.options import server_options
from vlmtui.worker.backends.remote.probe import CHAT, GENERATE, ServedModel, ServerFacts, ask_for_metrics, wait_for
from vlmtui.worker.backends.remote.prompt_checks import FrameLimit, Placeholders
from vlmtui.worker.backends.remote.token_texts import (
    AnswerText,
    TokenTexts,
    expansions,
    reported_spans,
    spans_at,
    spans_between,
)

_UNKNOWN_LENGTH = 1_000_000
"""The context of a server that does not tell it."""
_LIMITS: dict[Modality, int] = {"image": 64, "video": 8, "audio": 8}
"""What a server takes is not told: it refuses what is too much."""
_FLAGS: dict[Capability, str] = {
    "raw_media": "--enable-scale-out, or with --trust-request-chat-template",
    "message_prompts": "--trust-request-chat-template",
    "template_override": "--trust-request-chat-template",
    "chat_template_source": "--enable-tokenizer-info-endpoint",
}
"""The option of `vllm serve` that each needs."""
_UNKNOWN_FAMILY = (
    "Its model's family is unknown: name it (--model FAMILY; in config.toml family of [engines.NAME]), or write the "
    "raw prompt yourself."
)
_TEXT_MAX = 32_000_000
"""Characters of an answer."""


async def connect_to_server(spec: LoadSpec, report: Report) -> RemoteEngine:
    """Connect to the server that the spec's arguments name. Raises VlmtuiError."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it writes a line for each request
    options = server_options(spec.engine_args)
    api = ServerApi(options)
    report(LoadStep(LoadStage.CONFIG, f"asking {api.shown}"))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(api.close)
        facts = await wait_for(
            api,
            options.wait_s,
            lambda waited: report(LoadStep(LoadStage.CONFIG, f"waiting for {api.shown}, {waited:.0f} s")),
            options.model,
        )
        model = facts.model(options.model)
        texts = TokenTexts(api, model.id)
        placeholders = await Placeholders.of(options.placeholders, texts if facts.tokenizes else None)
        engine = RemoteEngine(api, facts, model, spec, texts, placeholders, dict(options.limit_mm_per_prompt))
        stack.pop_all()
    return engine


class RemoteEngine:
    """One model of a server. It never dies: a request fails while the server is away, and the next one may not."""

    def __init__(
        self,
        api: ServerApi,
        facts: ServerFacts,
        model: ServedModel,
        spec: LoadSpec,
        texts: TokenTexts,
        placeholders: Placeholders,
        limits: dict[Modality, int],
    ) -> None:
        self._api = api
        self._facts = facts
        self._model = model.id
        self._texts = texts
        self._bodies = RequestBodies(model.id, texts, facts)
        self._placeholders = placeholders
        self._frames = FrameLimit(api, model.id)
        self.info = EngineInfo(
            spec=spec,
            architecture="",
            engine="vLLM server" if facts.version else "Server",
            engine_version=facts.version,
            device=api.shown,
            dtype="",
            max_model_len=model.max_model_len or _UNKNOWN_LENGTH,
            has_chat_template=True,
            limits=_limits(facts, limits),
            load_s=0.0,
            engine_args=spec.engine_args,
            chat_template=facts.chat_template,
            capabilities=_capabilities(facts),
            remedies=_remedies(facts, is_known=spec.family is not None),
        )

    async def died(self) -> None:
        await asyncio.Event().wait()

    async def shutdown(self) -> None:
        await self._api.close()

    async def metrics(self) -> EngineMetrics:
        """Ask the server. Raises VlmtuiError where it tells none."""
        return await ask_for_metrics(self._api)

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        attachments = attachments_of(request.prompt)
        self._placeholders.check(request.prompt, attachments)
        media = await read_media(attachments)
        if self._facts.version and self._facts.tokenizes:
            for one in media:
                if one.modality == "video":
                    await self._frames.check(one)
        if isinstance(request, RenderRequest):
            yield await self._render(request, media)
            yield _finished(request, StreamedPart(finish="stop"), None, Usage(), None)
            return
        assert isinstance(request, GenerateRequest), "it has not the capability `scores`"
        is_prompt_told = has_begun = False
        for attempt in range(len(self._api.back_off_s) + 1):
            path, body, written = await self._bodies.of(request, media, request.logprobs)
            try:
                async with aclosing(self._answer(request, path, body, written)) as events:
                    async for event in events:
                        if isinstance(event, PromptReady):
                            if is_prompt_told:
                                continue
                            is_prompt_told = True
                        else:
                            has_begun = True
                        yield event
                self._bodies.remember(media)
                return
            except VlmtuiError as error:
                if has_begun or attempt == len(self._api.back_off_s) or not await self._passes(error, media, attempt):
                    raise

    async def _passes(self, error: VlmtuiError, media: Sequence[MediaPart], attempt: int) -> bool:
        """Whether the same request may be answered; waits until it is worth a try."""
        if isinstance(error, ServerError):
            # After a refusal that came once its media were processed, vLLM's engine lacks what its front believes to be
            # there: the next request for them fails once.
            if self._bodies.missed(error) or (error.code == 500 and media and not attempt):
                return True
            if error.code not in NOT_NOW:
                return False
        elif not isinstance(error, ConnectionBroken):
            return False
        await asyncio.sleep(self._api.back_off_s[attempt])
        return True

    async def _answer(
        self, request: GenerateRequest, path: str, body: dict[str, Any], written: Sequence[int] | None
    ) -> AsyncGenerator[EngineEvent, None]:
        buffer: PartBuffer | None = None
        usage, queued_s, number = Usage(), None, ""
        last, reason, sent_at, length = StreamedPart(), StreamedPart(), 0.0, 0
        try:
            async with aclosing(self._api.events(path, body)) as events:
                async for event in events:
                    part = part_of(event)
                    number = number or part.id
                    if part.id not in ("", number):
                        raise of_another(self._api.shown)
                    if part.finish is not None:
                        reason = part
                    usage = part.usage or usage
                    queued_s = part.queued_s if part.queued_s is not None else queued_s
                    if buffer is None and (part.prompt_ids is not None or part.text or part.token_ids):
                        ready = await self._prompt_ready(request, part, written)
                        buffer = PartBuffer(
                            request.request_id,
                            self._texts if self._facts.tokenizes else None,
                            ready.vocabulary,
                            decoded=self._decoding(body),
                            has_logprobs=request.logprobs is not None,
                        )
                        yield ready
                    if buffer is None or not (part.text or part.token_ids):
                        continue
                    length += len(part.text)
                    if length > _TEXT_MAX:
                        raise endless(self._api.shown)
                    last = part if part.token_ids else last
                    buffer.add(part)
                    if (now := time.monotonic()) - sent_at >= DELTA_S:
                        yield await buffer.flush()
                        sent_at = now
        except VlmtuiError:
            if buffer:
                yield await buffer.flush()
            raise
        if buffer:
            yield await buffer.flush()
        if reason.finish not in ("stop", "length"):
            raise unfinished(reason.finish, self._api.shown)
        if buffer is None:
            yield await self._prompt_ready(request, StreamedPart(), None)
        yield _finished(request, reason, await self._stop_text(reason, last), usage, queued_s)

    def _decoding(self, body: dict[str, Any]) -> AnswerText | None:
        """Return what decodes an answer that comes as tokens alone; None if it comes with its text."""
        return AnswerText(self._texts, self._api.deaf_max_s) if body.get("output_mode") == "tokens" else None

    async def _prompt_ready(self, request: Request, part: StreamedPart, written: Sequence[int] | None) -> PromptReady:
        """Return the prompt as the server tells it. Where it tells none, the text of a raw one is known."""
        if part.prompt_ids is None:
            text = request.prompt.text if isinstance(request.prompt, RawPrompt) else ""
            return PromptReady(request_id=request.request_id, prompt=text, token_ids=(), media=())
        ids, attachments = part.prompt_ids, attachments_of(request.prompt)
        if not self._facts.tokenizes:
            return PromptReady(request_id=request.request_id, prompt=part.prompt_text or "", token_ids=ids, media=())
        vocabulary = await self._texts.entries(ids)
        prompt_text = request.prompt.text if isinstance(request.prompt, RawPrompt) else part.prompt_text
        runs = None if prompt_text is None else expansions(ids, vocabulary, prompt_text)
        spans = reported_spans(part.placeholders, ids)
        if attachments and not spans and runs is not None:
            spans = spans_at(runs, ids, attachments)
        self._placeholders.check_given(ids, spans, attachments)
        if attachments and not spans:
            if written is None and part.prompt_text is not None:
                written = await self._texts.ids_of(part.prompt_text, add_special_tokens=False)
            spans = spans_between(written, ids, attachments) if written is not None else ()
        # Tokens whose texts are the prompt's, one after another, need no decoding.
        text = "".join(vocabulary[one].text for one in ids) if runs is not None else await self._decoded(ids)
        return PromptReady(
            request_id=request.request_id, prompt=text, token_ids=ids, media=spans, vocabulary=vocabulary
        )

    async def _decoded(self, ids: Sequence[int]) -> str:
        """Return a prompt's text; empty where the server does not tell it in time, which holds up no answer."""
        try:
            return await self._texts.text_of(ids, self._api.stall_s)
        except Unanswered:
            return ""

    async def _render(self, request: RenderRequest, media: Sequence[MediaPart]) -> PromptReady:
        """Count and tell the prompt without an answer."""
        prompt = request.prompt
        if isinstance(prompt, ChatPrompt) and media and self._facts.takes_ids:
            body = {"model": self._model, "mm_payload": "none", **self._bodies.chat(prompt, media, whole=True)}
            found = await self._api.post(f"{CHAT}/render", body)
            match found:
                case {"token_ids": ids, "features": {"mm_placeholders": places}}:
                    part = part_of({"prompt_token_ids": ids, "mm_placeholders": places})
                    return await self._prompt_ready(request, part, None)
        if not isinstance(prompt, RawPrompt) or (media and not self._facts.takes_ids):
            body = {"model": self._model, "return_token_strs": False, **self._bodies.chat(prompt, media, whole=True)}
            found = await self._api.post("/tokenize", body)
            ids = found.get("tokens") if isinstance(found, dict) else None
            part = part_of({"prompt_token_ids": ids})
            plain = await self._bodies.written(prompt) if media else None
            return await self._prompt_ready(request, part, plain)
        _, body, written = await self._bodies.of(request, media)
        if not media:
            return await self._prompt_ready(request, StreamedPart(prompt_ids=tuple(written or ())), None)
        body |= {"stream": False, "sampling_params": {"max_tokens": 1}}
        body.pop("stream_options", None)
        part = part_of(await self._api.post(GENERATE, body))
        return await self._prompt_ready(request, part, written)

    async def _stop_text(self, reason: StreamedPart, last: StreamedPart) -> str | None:
        """Return the stop string, or the text of the token that ended the answer."""
        if isinstance(reason.stop, str) or reason.finish != "stop":
            return reason.stop if isinstance(reason.stop, str) else None
        ids = reason.token_ids or last.token_ids
        token = reason.stop if reason.stop is not None else ids[-1] if ids else None
        if token is None or not self._facts.tokenizes:
            return None
        known = await self._texts.entries([token])
        return known[token].text if token in known else None


def _limits(facts: ServerFacts, limits: dict[Modality, int]) -> dict[Modality, int]:
    """The most items of each modality. Only vLLM takes a video as its frames, and a sound by address."""
    found = limits or _LIMITS
    return found if facts.version else {modality: most for modality, most in found.items() if modality == "image"}


def _capabilities(facts: ServerFacts) -> Capabilities:
    is_vllm = bool(facts.version)
    return Capabilities(
        raw_prompts=True,
        raw_media=facts.takes_ids or facts.takes_template,
        message_prompts=facts.takes_template,
        template_override=facts.takes_template,
        render_only=facts.tokenizes,
        chat_template_source=bool(facts.chat_template),
        prompt_token_ids=is_vllm and facts.tokenizes,
        media_spans=is_vllm and facts.tokenizes,
        answer_token_ids=is_vllm,
        logprobs=is_vllm,
        seed=True,
        cancel=True,
    )


def _remedies(facts: ServerFacts, *, is_known: bool) -> dict[str, str]:
    """What to do about the features that the server has off. `is_known`: the model's family is."""
    flags = _FLAGS if facts.version else {}
    hints = {name: f"Start the server with {flag}." for name, flag in flags.items()}
    if not is_known:
        hints["message_prompts"] = f"{_UNKNOWN_FAMILY} {hints.get('message_prompts', '')}".rstrip()
    return {name: hint for name, hint in hints.items() if not getattr(_capabilities(facts), name)}


def _finished(
    request: Request, reason: StreamedPart, stop: str | None, usage: Usage, queued_s: float | None
) -> Finished:
    return Finished(
        request_id=request.request_id,
        finish_reason="length" if reason.finish == "length" else "stop",
        stop=stop,
        usage=usage,
        timings=Timings(queued_s=queued_s),
    )
