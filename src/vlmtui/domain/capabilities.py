"""The optional features of engines, and the sentence to show if an engine lacks one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from vlmtui.domain.conversation import ChatPrompt, MessagesPrompt, RawPrompt
from vlmtui.domain.generation import GenerateRequest, RenderRequest, Request, ScoreRequest
from vlmtui.errors import ErrorKind, VlmtuiError

if TYPE_CHECKING:
    from vlmtui.domain.engine import EngineInfo

Capability = Literal[
    "raw_prompts",
    "raw_media",
    "message_prompts",
    "template_override",
    "render_only",
    "chat_template_source",
    "prompt_token_ids",
    "media_spans",
    "model_view",
    "answer_token_ids",
    "logprobs",
    "scores",
    "seed",
    "lora",
    "cancel",
    "keeps_answers",
    "metrics",
    "media_by_id",
]
"""The name of a field of `Capabilities`."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The optional features of an engine, one flag each. `lack` gives the sentence to show if one is missing."""

    raw_prompts: bool = False
    """Accepts a `RawPrompt` verbatim."""
    raw_media: bool = False
    """Accepts a `RawPrompt` with attachments, each at its placeholder."""
    message_prompts: bool = False
    """Accepts a `MessagesPrompt`: renders the raw prompt with the template of the tokenizer or processor."""
    template_override: bool = False
    """Accepts a chat template with the request, instead of the model's own."""
    render_only: bool = False
    """Can render a prompt and count its tokens without generating (`RenderRequest`)."""
    chat_template_source: bool = False
    """Reports the source of the model's chat template, if there is one."""
    prompt_token_ids: bool = False
    """Reports the prompt's tokens (ids and texts), with placeholders expanded."""
    media_spans: bool = False
    """Reports where each attachment's tokens are in the prompt."""
    model_view: bool = False
    """Reports each attachment's pixels as the processor made them (`RenderRequest.view`)."""
    answer_token_ids: bool = False
    """Reports the answer's tokens (ids and texts)."""
    logprobs: bool = False
    """Reports log-probabilities (`GenerateRequest.logprobs`)."""
    scores: bool = False
    """Scores a given answer under a prompt (`ScoreRequest`)."""
    seed: bool = False
    """Repeats a sampled answer for the same seed."""
    lora: bool = False
    """Runs a model with a LoRA adapter."""
    cancel: bool = False
    """Stops computing when a request is cancelled. Otherwise it computes the rest of the answer, which is discarded."""
    keeps_answers: bool = False
    """Continues a request whose client disconnects, and keeps the answer until it is fetched."""
    metrics: bool = False
    """Reports its running requests, caches and latencies."""
    media_by_id: bool = False
    """Finds media in its cache by their identifiers (`GenerateRequest.from_cache`)."""


ALL = Capabilities(**dict.fromkeys(Capabilities.__struct_fields__, True))
"""Every capability."""

_LACKS: dict[Capability, str] = {
    "raw_prompts": "doesn't accept raw prompts, only chat messages",
    "raw_media": "doesn't accept images or videos in raw prompts",
    "message_prompts": "can't render a raw prompt with the model's tokenizer or processor",
    "template_override": "only accepts the model's own chat template",
    "render_only": "can't count tokens before sending",
    "chat_template_source": "doesn't report its chat template",
    "prompt_token_ids": "doesn't report prompt tokens",
    "media_spans": "doesn't report where images are in the prompt",
    "model_view": "doesn't report what the model sees of an image",
    "answer_token_ids": "doesn't report answer tokens",
    "logprobs": "doesn't report log-probabilities",
    "scores": "can't score a given answer under another prompt",
    "seed": "ignores seeds: a sampled answer can't be repeated",
    "lora": "can't run LoRA adapters",
    "cancel": "keeps computing after a stop",
    "keeps_answers": "doesn't keep answers once vlmtui is closed",
    "metrics": "doesn't report its requests, caches and times",
    "media_by_id": "doesn't accept an image by its identifier alone",
}


def lack(info: EngineInfo | None, wanted: Capability) -> str:
    """Return a sentence on why the engine lacks this capability; empty if it has it, or if there is no engine yet."""
    if info is None or getattr(info.capabilities, wanted):
        return ""
    which = "server" if info.spec.backend == "remote" else f"engine ({info.engine})"
    return " ".join(filter(None, (f"This {which} {_LACKS[wanted]}.", info.remedies.get(wanted))))


def require_capability(info: EngineInfo | None, wanted: Capability) -> None:
    """Raise VlmtuiError(UNSUPPORTED) if the engine lacks the capability."""
    if why := lack(info, wanted):
        has_remedy = info is not None and wanted in info.remedies
        raise VlmtuiError(ErrorKind.UNSUPPORTED, why, hint="" if has_remedy else "Load the model with another engine.")


def lack_for(info: EngineInfo, request: Request) -> str:
    """Return a sentence on why the engine can't run this request; empty if it can. A missing `seed` capability does not
    count: the engine answers without it."""
    return next((why for wanted in _needs(request) if (why := lack(info, wanted))), "")


def _needs(request: Request) -> Iterator[Capability]:
    match request.prompt:
        case RawPrompt(attachments=attachments):
            yield "raw_prompts"
            if attachments:
                yield "raw_media"
        case MessagesPrompt(attachments=attachments):
            yield "message_prompts"
            if attachments:
                yield "raw_media"
        case ChatPrompt(chat_template=template):
            if template is not None:
                yield "template_override"
    match request:
        case RenderRequest(view=view):
            yield "render_only"
            if view is not None:
                yield "model_view"
            return
        case ScoreRequest():
            yield "scores"
        case GenerateRequest(from_cache=True):
            yield "media_by_id"
    if request.adapter:
        yield "lora"
    if request.logprobs is not None:
        yield "logprobs"
