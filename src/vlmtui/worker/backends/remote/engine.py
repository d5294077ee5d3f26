"""Adapt a model server to the worker's HostedEngine interface. The spec's engine arguments have its address and
options."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

import msgspec

from vlmtui.domain.capabilities import Capabilities, Capability
from vlmtui.domain.conversation import (
    Attachment,
    ChatPrompt,
    MessagesPrompt,
    Modality,
    Prompt,
    RawPrompt,
    attachments_of,
)
from vlmtui.domain.engine import EngineInfo, LoadSpec, LoadStage
from vlmtui.domain.generation import (
    Delta,
    EngineEvent,
    Finished,
    GenerateRequest,
    MediaSpan,
    PromptReady,
    RenderRequest,
    Request,
    Timings,
    Usage,
    Waiting,
)
from vlmtui.domain.metrics import EngineMetrics
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.text import one_line
from vlmtui.worker.backends.contract import DELTA_S, Backend, LoadStep, Report
from vlmtui.worker.backends.remote.answer_stream import AnswerReader, StreamedPart
from vlmtui.worker.backends.remote.bodies import (
    AnswerText,
    MediaPart,
    RequestBodies,
    TokenTexts,
    expansions,
    read_media,
    reported_spans,
    spans_at,
    spans_between,
)
from vlmtui.worker.backends.remote.http_api import (
    NOT_NOW,
    RATE_LIMITED,
    ConnectionBroken,
    ServerApi,
    ServerError,
    Unanswered,
    endless,
)
from vlmtui.worker.backends.remote.options import ServerOptions, server_options
from vlmtui.worker.backends.remote.probe import CHAT, GENERATE, ServedModel, ServerFacts, ask_for_metrics, wait_for
from vlmtui.worker.backends.remote.refused import named_attachment
from vlmtui.worker.hf.failures import mismatch
from vlmtui.worker.hf.template_variables import read_variables


class PartBuffer:
    """Collects an answer's events until they are sent as a delta.

    `texts`: looks up the texts of tokens; None if the server does not tokenize. `decoded`: decodes an answer that the
    server sends without text. `told`: ids of tokens whose text the app already has from the prompt.
    """

    def __init__(
        self,
        request_id: str,
        texts: TokenTexts | None,
        told: Iterable[int],
        *,
        decoded: AnswerText | None,
        has_logprobs: bool,
    ) -> None:
        self._request_id = request_id
        self._texts = texts
        self._told = set(told)
        self._decoded = decoded
        self._has_logprobs = has_logprobs
        self._parts: list[StreamedPart] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, part: StreamedPart) -> None:
        self._parts.append(part)

    async def flush(self) -> Delta:
        """Return the collected events as a delta, and empty the buffer. Raises VlmtuiError."""
        parts, self._parts = self._parts, []
        ids = tuple(token for part in parts for token in part.token_ids)
        logprobs = tuple(one for part in parts for one in part.logprobs)
        wanted = {*ids, *(one.token_id for one in logprobs), *(other.token_id for one in logprobs for other in one.top)}
        fresh = await self._texts.entries(wanted - self._told) if self._texts is not None else {}
        self._told |= fresh.keys()
        text = "".join(part.text for part in parts)
        return Delta(
            request_id=self._request_id,
            text=text if self._decoded is None else await self._decoded.add(ids),
            tokens=sum(len(part.token_ids) for part in parts),  # a part of a server without ids may be several
            token_ids=ids,
            vocabulary=fresh,
            logprobs=logprobs if self._has_logprobs else (),
        )


_EXPANDED = 8
"""From this number on, equal placeholders in a row count as an expanded placeholder."""


class Placeholders:
    """Checks that the placeholders in prompts match the attachments. `texts`: the model family's placeholders, such as
    `<|image_pad|>`; `{i}` stands for a number."""

    def __init__(self, texts: Mapping[Modality, Sequence[str]], ids: Mapping[int, tuple[Modality, str]]) -> None:
        self._texts = texts
        self._ids = ids

    @classmethod
    async def of(cls, texts: Mapping[Modality, Sequence[str]], tokens: TokenTexts | None) -> Placeholders:
        """Find out which placeholders are single tokens. `tokens`: asks the server for token ids; None if the server
        does not tokenize."""
        ids: dict[int, tuple[Modality, str]] = {}
        for modality, written in texts.items():
            for text in written:
                found = None if tokens is None or "{i}" in text else await tokens.id_of(text)
                if found is not None:
                    ids[found] = (modality, text)
        return cls(texts, ids)

    def check(self, prompt: Prompt, attachments: Sequence[Attachment]) -> None:
        """Raise VlmtuiError(PLACEHOLDER_MISMATCH) if the placeholders in a prompt's text do not match `attachments`."""
        if isinstance(prompt, RawPrompt):
            wanted = Counter(item.modality for item in attachments)
            for modality in self._texts:
                self._check_count(prompt.text, modality, wanted[modality])
        elif isinstance(prompt, ChatPrompt):
            for modality, text in self._ids.values():
                if any(text in turn.text for turn in prompt.turns):
                    raise mismatch(f"{one_line(text)} in the text of a message would count as an attached {modality}.")

    def check_given(self, ids: Sequence[int], spans: Sequence[MediaSpan], attachments: Sequence[Attachment]) -> None:
        """Raise VlmtuiError(PLACEHOLDER_MISMATCH) if the server's prompt `ids` has a placeholder outside of `spans`.

        Checks nothing if the spans of attachments are unknown."""
        if attachments and not spans:
            return
        if len(spans) != len(attachments):
            raise mismatch(f"The server put {len(spans)} media into the prompt, of {len(attachments)} attached.")
        covered = {place for span in spans for place in range(span.offset, span.offset + span.length)}
        for place, token in enumerate(ids):
            if token in self._ids and place not in covered:
                modality, text = self._ids[token]
                raise mismatch(
                    f"{one_line(text)} (token {place} of the prompt) does not match any attached {modality}."
                )

    def _check_count(self, text: str, modality: Modality, wanted: int) -> None:
        forms = [re.escape(one).replace(r"\{i\}", r"\d+") for one in self._texts[modality]]
        if not forms:
            return
        form = "|".join(sorted(forms, key=len, reverse=True))
        found = sum(1 for _ in re.finditer(form, text))
        if found == wanted:
            return
        if wanted and (run := re.search(rf"({form})\1{{{_EXPANDED - 1},}}", text)):
            times = len(run[0]) // len(run[1])
            raise mismatch(
                f"A placeholder is expanded already: {one_line(run[1])} stands {times} times in a row.",
                hint="The server would expand it once more. Write it once for each attachment.",
            )
        raise mismatch(f"The prompt has {found} {modality} placeholders for {wanted} {modality}s.")


_ALWAYS_KEPT = 32
"""The number of frames of a video that vLLM's server uses by default."""
_FEWER_FRAMES = (
    "Send 32 frames or fewer (/frames), or start the server with "
    """--media-io-kwargs '{"video": {"num_frames": -1}}'."""
)


class FrameLimit:
    """Finds out, by counting tokens, whether a server uses all frames of a video. A server that does is not checked
    again."""

    def __init__(self, api: ServerApi, model: str) -> None:
        self._api = api
        self._model = model
        self._keeps_all = False

    async def check(self, video: MediaPart, name: str) -> None:
        """Raise VlmtuiError(UNSUPPORTED) if the server drops frames: the video takes as many tokens as its first 32
        frames alone. `name`: the video's."""
        head, _, frames = (video.url or "").partition(";base64,")
        images = frames.split(",")
        if self._keeps_all or len(images) <= _ALWAYS_KEPT:
            return
        fewer = msgspec.structs.replace(video, url=f"{head};base64,{','.join(images[:_ALWAYS_KEPT])}", uuid="")
        whole = await self._count(msgspec.structs.replace(video, uuid=""))
        if whole is None:
            return
        if whole == await self._count(fewer):
            message = f"{self._api.shown} drops frames: of {one_line(name)} it uses {_ALWAYS_KEPT} of {len(images)}."
            raise VlmtuiError(ErrorKind.UNSUPPORTED, message, hint=_FEWER_FRAMES)
        self._keeps_all = True

    async def _count(self, video: MediaPart) -> int | None:
        body = {"model": self._model, "messages": [{"role": "user", "content": [video.part]}]}
        found = await self._api.post("/tokenize", body)
        count = found.get("count") if isinstance(found, dict) else None
        return count if isinstance(count, int) else None


_FLAGS: dict[Capability, str] = {
    "raw_media": "--enable-scale-out, or with --trust-request-chat-template",
    "message_prompts": "--trust-request-chat-template",
    "template_override": "--trust-request-chat-template",
    "chat_template_source": "--enable-tokenizer-info-endpoint",
}
"""The option of `vllm serve` that each capability needs."""
_UNKNOWN_FAMILY = (
    "Its model's family is unknown: name it (--model FAMILY; in config.toml family of [engines.NAME]), or write the "
    "raw prompt yourself."
)
_DOUBLINGS = 6
"""The most repetitions of a request to a server that limits the rate and does not say for how long. The pause
doubles."""
_TEXT_MAX = 32_000_000


async def connect_to_server(spec: LoadSpec, report: Report) -> RemoteEngine:
    """Connect to the server whose address is in the spec's engine arguments. Raises VlmtuiError."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # by default it logs each request
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
        engine = RemoteEngine(api, facts, model, spec, texts, placeholders, options)
        stack.pop_all()
    return engine


class RemoteEngine:
    """A model of a server. It never dies: a request fails while the server is unreachable, but a later one may work."""

    def __init__(
        self,
        api: ServerApi,
        facts: ServerFacts,
        model: ServedModel,
        spec: LoadSpec,
        texts: TokenTexts,
        placeholders: Placeholders,
        options: ServerOptions,
    ) -> None:
        self._api = api
        self._facts = facts
        self._model = model.id
        self._texts = texts
        self._bodies = RequestBodies(model.id, texts, facts, options.thinking)
        self._placeholders = placeholders
        self._frames = FrameLimit(api, model.id)
        self._tags = options.thinking
        self._counted: dict[str, int] = {}
        """The tokens that the server counted for an image, by SHA-256."""
        self.info = EngineInfo(
            spec=spec,
            architecture="",
            engine="vLLM server" if facts.version else "Server",
            engine_version=facts.version,
            device=api.shown,
            dtype="",
            max_model_len=model.max_model_len or 0,
            has_chat_template=True,
            limits={},
            load_s=0.0,
            engine_args=spec.engine_args,
            chat_template=facts.chat_template,
            template_variables=read_variables(facts.chat_template) if facts.chat_template else None,
            capabilities=_capabilities(facts, is_known=spec.family is not None),
            remedies=_remedies(facts, is_known=spec.family is not None),
        )

    async def died(self) -> None:
        await asyncio.Event().wait()

    async def shutdown(self) -> None:
        await self._api.close()

    async def metrics(self) -> EngineMetrics:
        """Ask the server for its metrics. Raises VlmtuiError if it has none."""
        return await ask_for_metrics(self._api)

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        attachments = attachments_of(request.prompt)
        self._placeholders.check(request.prompt, attachments)
        if not self._facts.version and any(one.modality != "image" for one in attachments):
            message = f"{self._api.shown} is not vLLM's server, and gets only images from vlmtui."
            raise VlmtuiError(ErrorKind.UNSUPPORTED, message, hint="Remove the video or audio.")
        media = await read_media(attachments)
        try:
            async with aclosing(self._events(request, media)) as events:
                async for event in events:
                    yield event
        except ServerError as error:
            named = named_attachment(error, attachments, media, self._counted)
            error.message = f"{error.message} {named}".rstrip()
            raise

    async def _events(self, request: Request, media: Sequence[MediaPart]) -> AsyncGenerator[EngineEvent, None]:
        request = await self._as_written(request, media)
        if self._facts.version and self._facts.tokenizes:
            for item, part in zip(attachments_of(request.prompt), media, strict=True):
                if item.modality == "video":
                    await self._frames.check(part, item.name)
        if isinstance(request, RenderRequest):
            yield await self._render(request, media)
            yield _finished(request, StreamedPart(finish="stop"), None, Usage(), None)
            return
        assert isinstance(request, GenerateRequest), "it has not the capability `scores`"
        is_prompt_told = has_begun = False
        waited_s = 0.0
        for attempt in itertools.count():
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
                pause_s = None if has_begun else self._pause_s(error, media, attempt, waited_s)
                if pause_s is None:
                    raise
                if pause_s:
                    yield Waiting(
                        request_id=request.request_id, seconds=pause_s, reason=f"{error.message} {error.detail}"
                    )
                await asyncio.sleep(pause_s)
                waited_s += pause_s

    async def _as_written(self, request: Request, media: Sequence[MediaPart]) -> Request:
        """Return the request with a raw prompt instead of messages that only the model's own chat template can write,
        which the server does not show: an answer of one token tells what it writes. Raises VlmtuiError."""
        prompt = request.prompt
        shows = self._facts.takes_template and self._facts.chat_template
        if not isinstance(prompt, MessagesPrompt) or prompt.chat_template or shows or not self._facts.version:
            return request
        body = {"model": self._model, **self._bodies.own_chat(prompt, request, media)}
        try:
            found = await self._api.post(CHAT, {**body, "max_tokens": 1, "return_prompt_text": True})
        except ServerError as error:
            if error.code != 400:
                raise
            raise _unwritten(error.detail) from error
        text = AnswerReader().read(found).prompt_text if isinstance(found, dict) else None
        if text is None:
            raise _unwritten()
        return msgspec.structs.replace(request, prompt=RawPrompt(text=text, attachments=prompt.attachments))

    def _pause_s(self, error: VlmtuiError, media: Sequence[MediaPart], attempt: int, waited_s: float) -> float | None:
        """Return the seconds after which the same request is sent again; None: not at all. `attempt`: from 0.
        `waited_s`: the seconds waited so far."""
        pauses, is_last = self._api.back_off_s, attempt >= len(self._api.back_off_s)
        if isinstance(error, ServerError):
            # If vLLM rejects a request after it has processed the media, its front end wrongly assumes that the engine
            # core has them, and the next request with the same media fails once.
            if not is_last and (self._bodies.missed(error) or (error.code == 500 and media and not attempt)):
                return 0.0
            if not is_last and self._bodies.tells_less(error):
                return 0.0
            first_s, told_s = next(iter(pauses), 0.0), error.retry_after_s or 0.0
            if error.code in (*RATE_LIMITED, *NOT_NOW) and told_s and told_s >= first_s:
                pause_s = told_s * random.uniform(1, 1.1)  # not all requests that wait come back at the same moment
                return pause_s if waited_s + pause_s <= self._api.patience_s else None
            if error.code in RATE_LIMITED and attempt < _DOUBLINGS:
                return float(2**attempt * first_s)
            if error.code not in NOT_NOW:
                return None
        elif not isinstance(error, ConnectionBroken):
            return None
        return None if is_last else pauses[attempt]

    async def _answer(
        self, request: GenerateRequest, path: str, body: dict[str, Any], written: Sequence[int] | None
    ) -> AsyncGenerator[EngineEvent, None]:
        buffer: PartBuffer | None = None
        reader, earlier = AnswerReader(self._tags), set[str]()
        usage, queued_s, number = Usage(), None, ""
        last, reason, sent_at, length = StreamedPart(), StreamedPart(), 0.0, 0
        try:
            async with aclosing(self._api.events(path, body)) as events:
                async for event in events:
                    part = reader.read(event)
                    if part.id in earlier:
                        message = f"{self._api.shown} sent parts of another answer within this one."
                        hint = "Is a proxy in between that mixes them up?"
                        raise VlmtuiError(ErrorKind.PROTOCOL, message, hint=hint)
                    if part.id and part.id != number:  # some servers give each event an id of its own
                        earlier |= {number} if number else set()
                        number = part.id
                    if part.finish is not None:
                        reason = part
                    usage = part.usage or usage
                    queued_s = part.queued_s if part.queued_s is not None else queued_s
                    if buffer is None and (part.prompt_ids is not None or part.text or part.token_ids):
                        ready = await self._prompt_ready(request, part, written)
                        has_no_text = body.get("output_mode") == "tokens"
                        buffer = PartBuffer(
                            request.request_id,
                            self._texts if self._facts.tokenizes else None,
                            ready.vocabulary,
                            decoded=AnswerText(self._texts, self._api.deaf_max_s) if has_no_text else None,
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
        reader.check_end(reason.finish, self._api.shown)
        if buffer is None:
            yield await self._prompt_ready(request, StreamedPart(), None)
        yield _finished(request, reason, await self._stop_text(reason, last), usage, queued_s)

    async def _prompt_ready(self, request: Request, part: StreamedPart, written: Sequence[int] | None) -> PromptReady:
        """Return the prompt that the server reports. If it reports none, return the text of a raw prompt, or no text
        for other prompts.

        `written`: the prompt's token ids before placeholders are expanded, if known.
        """
        raw_text = request.prompt.text if isinstance(request.prompt, RawPrompt) else ""
        if part.prompt_ids is None:
            return PromptReady(request_id=request.request_id, prompt=raw_text, token_ids=(), media=())
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
        images = [one for one in attachments if one.modality == "image"]
        counts = {one.index: one.tokens for one in spans if one.modality == "image"}
        self._counted |= {one.sha256: counts[index] for index, one in enumerate(images) if index in counts}
        # If the texts of the tokens add up to the prompt's text, the server need not decode them together.
        text = "".join(vocabulary[one].text for one in ids) if runs is not None else await self._decoded(ids)
        return PromptReady(
            request_id=request.request_id,
            prompt=text,
            token_ids=ids,
            media=spans,
            vocabulary=vocabulary,
            text=raw_text if isinstance(request, RenderRequest) else "",
        )

    async def _decoded(self, ids: Sequence[int]) -> str:
        """Return a prompt's text, or "" if the server does not send it in time, because waiting would delay the
        answer."""
        try:
            return await self._texts.text_of(ids, self._api.stall_s)
        except Unanswered:
            return ""

    async def _render(self, request: RenderRequest, media: Sequence[MediaPart]) -> PromptReady:
        """Return the prompt with its tokens, without an answer."""
        prompt = request.prompt
        if isinstance(prompt, ChatPrompt) and media and self._facts.takes_ids:
            body = {"model": self._model, "mm_payload": "none", **self._bodies.chat(request, media, whole=True)}
            found = await self._api.post(f"{CHAT}/render", body)
            match found:
                case {"token_ids": ids, "features": {"mm_placeholders": places}}:
                    part = AnswerReader().read({"prompt_token_ids": ids, "mm_placeholders": places})
                    return await self._prompt_ready(request, part, None)
        if not isinstance(prompt, RawPrompt) or (media and not self._facts.takes_ids):
            body = {"model": self._model, "return_token_strs": False, **self._bodies.chat(request, media, whole=True)}
            found = await self._api.post("/tokenize", body)
            ids = found.get("tokens") if isinstance(found, dict) else None
            part = AnswerReader().read({"prompt_token_ids": ids})
            plain = await self._bodies.written(prompt) if media else None
            return await self._prompt_ready(request, part, plain)
        _, body, written = await self._bodies.of(request, media)
        if not media:
            return await self._prompt_ready(request, StreamedPart(prompt_ids=tuple(written or ())), None)
        body |= {"stream": False, "sampling_params": {"max_tokens": 1}}
        body.pop("stream_options", None)
        part = AnswerReader().read(await self._api.post(GENERATE, body))
        return await self._prompt_ready(request, part, written)

    async def _stop_text(self, reason: StreamedPart, last: StreamedPart) -> str | None:
        """Return the stop string or the text of the stop token that ended the answer."""
        if isinstance(reason.stop, str) or reason.finish != "stop":
            return reason.stop if isinstance(reason.stop, str) else None
        ids = reason.token_ids or last.token_ids
        token = reason.stop if reason.stop is not None else ids[-1] if ids else None
        if token is None or not self._facts.tokenizes:
            return None
        known = await self._texts.entries([token])
        return known[token].text if token in known else None


def _unwritten(detail: str = "") -> VlmtuiError:
    message = "The server does not tell what the model's chat template writes, so the raw prompt can't be written."
    return VlmtuiError(ErrorKind.NO_CHAT_TEMPLATE, message, detail=detail, hint="Write the raw prompt yourself.")


def _capabilities(facts: ServerFacts, *, is_known: bool) -> Capabilities:
    """Return what the server can do. `is_known`: the model has a record. The raw prompt of a model without one is what
    its own chat template writes, which vLLM tells without a flag."""
    is_vllm = bool(facts.version)
    return Capabilities(
        raw_prompts=True,
        raw_media=facts.takes_ids or facts.takes_template,
        message_prompts=facts.takes_template or (is_vllm and facts.tokenizes and not is_known),
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
    """Return a hint for each capability that the server lacks. `is_known`: the model's family is known."""
    hints: dict[str, str] = {name: f"Start the server with {flag}." for name, flag in _FLAGS.items()}
    if not facts.version:
        hints = dict.fromkeys(Capabilities.__struct_fields__, "It reports no version of vLLM.")
    if not is_known:
        hints["message_prompts"] = f"{_UNKNOWN_FAMILY} {hints['message_prompts']}"
    return {name: hint for name, hint in hints.items() if not getattr(_capabilities(facts, is_known=is_known), name)}


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


BACKEND = Backend(title="Server", load=connect_to_server, computes_here=False)
