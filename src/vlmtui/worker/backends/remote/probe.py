"""Find out which models and features a server has, and read its metrics."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence

import msgspec

from vlmtui.domain.metrics import EngineMetrics, parse_metrics
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.remote.http_api import NOT_NOW, RATE_LIMITED, NothingListens, ServerApi, ServerError

CHAT = "/v1/chat/completions"
GENERATE = "/inference/v1/generate"
_INVALID_IMAGE = "data:image/png;base64,AAAA"
_VERSION = re.compile(r"[\w./-]{1,200}")


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model, or a LoRA adapter, that a server serves."""

    id: str
    root: str = ""
    """The path or repository that it was loaded from."""
    parent: str | None = None
    """The base model, if this is a LoRA adapter."""
    max_model_len: int | None = None


class SeveralModels(VlmtuiError):
    """A server has several models, and none was named."""

    def __init__(self, names: Sequence[str], hint: str) -> None:
        super().__init__(ErrorKind.MODEL_UNKNOWN, "The server has several models.", hint=hint)
        self.names = names


class Feature(msgspec.Struct, frozen=True):
    """A feature that some servers have."""

    name: str
    on: bool
    flag: str
    """The option of `vllm serve` that switches the feature on; empty if there is none."""


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The models and features of a server."""

    models: tuple[ServedModel, ...]
    latency_s: float
    version: str = ""
    """vLLM's version; empty for another server."""
    tokenizes: bool = False
    """It has `/tokenize` and `/detokenize`."""
    takes_ids: bool = False
    """`/inference/v1/generate` accepts token ids with media. Older servers have this path but ignore media."""
    takes_template: bool = False
    """A request may have a chat template."""
    takes_media_arguments: bool = False
    """A request may have `mm_processor_kwargs` and `media_io_kwargs`."""
    chat_template: str = ""

    @property
    def features(self) -> tuple[Feature, ...]:
        return (
            Feature("Token counts before sending", self.tokenizes, ""),
            Feature("Raw prompts with attachments", self.takes_ids or self.takes_template, "--enable-scale-out"),
            Feature("Another chat template", self.takes_template, "--trust-request-chat-template"),
            Feature("Times of video frames", self.takes_media_arguments, "--trust-request-mm-kwargs"),
            Feature("The chat template's source", bool(self.chat_template), "--enable-tokenizer-info-endpoint"),
        )

    def model(self, name: str | None) -> ServedModel:
        """Return the model of that name; for None, the only model. Raises VlmtuiError with the names of all models."""
        own = [model for model in self.models if model.parent is None]
        for model in self.models:
            if name == model.id:
                return model
        if name is None and len(own) == 1:
            return own[0]
        names = ", ".join(model.id for model in self.models) or "none"
        message, hint = f"The server has no model {name}.", f"Name one of: {names}."
        if name:
            raise VlmtuiError(ErrorKind.MODEL_UNKNOWN, message, hint=hint)
        raise SeveralModels([model.id for model in self.models], hint)


async def probe(api: ServerApi, named: str | None = None) -> ServerFacts:
    """Find out a server's kind, models and features.

    `named`: the user's choice of model, which servers other than vLLM may have without listing it. Raises VlmtuiError
    if nothing listens, the key is wrong, it is not a model server, or it has no model."""
    started = time.monotonic()
    models = await _listed(api, named)
    latency_s = time.monotonic() - started
    if not models:
        hint = "Start it with a model. If it has one that it doesn't list, name that."
        raise VlmtuiError(ErrorKind.MODEL_UNKNOWN, f"{api.shown} serves no model.", hint=hint)
    name = models[0].id
    version = await _field(api, "/version", "version")
    if not _VERSION.fullmatch(version):
        return ServerFacts(models=models, latency_s=latency_s)
    tokenizes, takes_ids, template, media, source = await asyncio.gather(
        _exists(api, "/tokenize"),
        _takes_parts(api, name),
        _takes(api, name, {"chat_template": "{{ raise_exception('asked whether it is taken') }}"}, "chat-template"),
        _takes(api, name, {"mm_processor_kwargs": {"asked_whether_it_is_taken": True}}, "mm-kwargs"),
        _field(api, "/tokenizer_info", "chat_template"),
    )
    return ServerFacts(
        models=models,
        version=version,
        latency_s=latency_s,
        tokenizes=tokenizes,
        takes_ids=takes_ids,
        takes_template=template,
        takes_media_arguments=media,
        chat_template=source,
    )


async def wait_for(
    api: ServerApi, seconds: float, tell: Callable[[float], object], named: str | None = None
) -> ServerFacts:
    """Probe repeatedly until the server has loaded its model. `tell`: called with the seconds waited so far.

    Raises VlmtuiError after `seconds`, or at once for an error that does not go away by waiting.
    """
    started = time.monotonic()
    while True:
        try:
            return await probe(api, named)
        except (NothingListens, ServerError) as error:
            waited = time.monotonic() - started
            is_passing = isinstance(error, NothingListens) or error.code in (*NOT_NOW, *RATE_LIMITED)
            pause_s = api.retry_s
            if isinstance(error, ServerError) and error.retry_after_s is not None:
                pause_s = max(pause_s, error.retry_after_s)
            if waited >= seconds or pause_s > max(seconds, api.retry_s) or not is_passing:
                raise
            tell(waited)
            await asyncio.sleep(pause_s)


async def _listed(api: ServerApi, named: str | None) -> tuple[ServedModel, ...]:
    """Return the models that a server lists; if it lists none, the one that the user named."""
    try:
        models = _models(await api.get("/v1/models"), api.shown)
    except ServerError as error:
        if named is None or error.code not in (404, 500, 501):
            raise
        models = ()
    return models or ((ServedModel(id=named),) if named is not None else ())


def _models(found: object, shown: str) -> tuple[ServedModel, ...]:
    listed = found.get("data") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        message = f"{shown} is no server of models: /v1/models does not list any."
        raise VlmtuiError(ErrorKind.PROTOCOL, message, hint="Check the address: it ends before /v1.")
    models: list[ServedModel] = []
    for one in listed:
        try:
            models.append(_with_context(msgspec.convert(one, ServedModel), one))
        except msgspec.ValidationError:
            continue
    return tuple(models)


def _with_context(model: ServedModel, told: object) -> ServedModel:
    """Return the model, with the context length from the field `meta` if it has none yet. llama.cpp's server reports it
    there."""
    match told:
        case {"meta": {"n_ctx": int(length)}} if model.max_model_len is None and length > 0:
            return msgspec.structs.replace(model, max_model_len=length)
    return model


async def _field(api: ServerApi, path: str, name: str) -> str:
    """Return a text field of the JSON at this path, or "" if the server has none."""
    try:
        found = await api.get(path)
    except VlmtuiError:
        return ""
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, str) else ""


async def _exists(api: ServerApi, path: str) -> bool:
    """Return True if the server has this path: it then answers an empty request with 400, otherwise with 404 or 403."""
    code, _ = await api.status(path, {})
    return code in (200, 400, 422)


async def _takes_parts(api: ServerApi, model: str) -> bool:
    """Return True if a request with token ids may have media. Tested with an invalid image, which such a server
    rejects."""
    if not await _exists(api, GENERATE):
        return False
    part = {"type": "image_url", "url": _INVALID_IMAGE}
    body = {"model": model, "token_ids": [1], "content_parts": [part], "sampling_params": {"max_tokens": 1}}
    code, _ = await api.status(GENERATE, body)
    return code == 400


async def _takes(api: ServerApi, model: str, more: dict[str, object], flag: str) -> bool:
    """Return True if the server accepts the fields `more` in a request. The test request has an invalid image, so that
    it always fails; a server that rejects the field itself names `flag` in its error."""
    content = [{"type": "image_url", "image_url": {"url": _INVALID_IMAGE}}]
    body = {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 1, **more}
    code, answer = await api.status(CHAT, body)
    return code == 400 and f"--trust-request-{flag}".encode() not in answer


async def ask_for_metrics(api: ServerApi) -> EngineMetrics:
    """Return the server's metrics. Raises VlmtuiError, of kind UNSUPPORTED if it has none of vLLM's metrics."""
    detail = ""
    try:
        found = parse_metrics(await api.text("/metrics"))
        if found.ranks:
            return found
    except ServerError as error:
        if error.code not in (404, 405, 501):  # llama.cpp: 501
            raise
        detail = f"status {error.code}: {error.detail}"
    hint = "Other servers and some proxies tell none."
    raise VlmtuiError(ErrorKind.UNSUPPORTED, f"{api.shown} tells no metrics of vLLM.", detail=detail, hint=hint)
