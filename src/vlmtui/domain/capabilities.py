"""What an engine can do, and the sentence for what it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

import msgspec

from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.prompt import ChatPrompt, MessagesPrompt, RawPrompt
from vlmtui.errors import ErrorKind, VlmtuiError

Capability = Literal[
    "raw_prompts",
    "raw_media",
    "message_prompts",
    "template_override",
    "render_only",
    "chat_template_source",
    "prompt_token_ids",
    "media_spans",
    "answer_token_ids",
    "logprobs",
    "seed",
    "lora",
    "cancel",
    "keeps_answers",
]
"""The name of a field of `Capabilities`."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """One flag for each thing in which engines differ. Whoever needs one that may be off asks `lack` first, and shows
    its sentence."""

    raw_prompts: bool = False
    """Takes a `RawPrompt`, word for word."""
    raw_media: bool = False
    """Takes a `RawPrompt` with attachments, each at its placeholder."""
    message_prompts: bool = False
    """Takes a `MessagesPrompt`: writes the raw prompt by the tokenizer's or the processor's template."""
    template_override: bool = False
    """Takes a chat template with the request, instead of the model's own."""
    render_only: bool = False
    """Makes and counts a prompt without generating (`GenerateRequest.only_render`)."""
    chat_template_source: bool = False
    """Tells the source of the model's chat template, where it has one."""
    prompt_token_ids: bool = False
    """Tells the prompt's tokens, ids and texts, every image's run expanded."""
    media_spans: bool = False
    """Tells where in the prompt each attachment's tokens stand."""
    answer_token_ids: bool = False
    """Tells the answer's tokens, ids and texts."""
    logprobs: bool = False
    """Tells log-probabilities (`GenerateRequest.logprobs`)."""
    seed: bool = False
    """Gives the same sampled answer again for the same seed."""
    lora: bool = False
    """Runs a model with a LoRA adapter."""
    cancel: bool = False
    """Stops computing when a request is cancelled; otherwise what is still computed is thrown away."""
    keeps_answers: bool = False
    """Goes on with a request whose client is lost, and keeps the answer until it is fetched."""


ALL = Capabilities(**dict.fromkeys(Capabilities.__struct_fields__, True))
"""Everything: the most that an engine can promise."""

_LACKS: dict[Capability, str] = {
    "raw_prompts": "takes no raw prompts, only chat messages",
    "raw_media": "takes no images or videos in raw prompts",
    "message_prompts": "can't write a raw prompt with the model's tokenizer or processor",
    "template_override": "takes no chat template but the model's own",
    "render_only": "can't count tokens before sending",
    "chat_template_source": "doesn't report its chat template",
    "prompt_token_ids": "doesn't report prompt tokens",
    "media_spans": "doesn't report where images stand in the prompt",
    "answer_token_ids": "doesn't report answer tokens",
    "logprobs": "gives no log-probabilities",
    "seed": "ignores seeds: a sampled answer can't be repeated",
    "lora": "can't run LoRA adapters",
    "cancel": "keeps computing after a stop",
    "keeps_answers": "doesn't keep answers once vlmtui is closed",
}


class Capable(Protocol):
    """What says of itself what it can: `EngineInfo`."""

    @property
    def engine(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...


def lack(info: Capable | None, wanted: Capability) -> str:
    """Return the sentence for what this engine can't do; empty where it can, or there is no engine yet."""
    if info is None or getattr(info.capabilities, wanted):
        return ""
    return f"This engine ({info.engine}) {_LACKS[wanted]}."


def require_capability(info: Capable | None, wanted: Capability) -> None:
    """Raise VlmtuiError(UNSUPPORTED) with the sentence of `lack`, where there is one."""
    if why := lack(info, wanted):
        raise VlmtuiError(ErrorKind.UNSUPPORTED, why, hint="Load the model with another engine.")


def lack_for(info: Capable, request: GenerateRequest) -> str:
    """Return the sentence for why the engine can't take this request; empty where it can. A seed is no reason: the
    engine answers without it."""
    return next((why for wanted in _needs(request) if (why := lack(info, wanted))), "")


def _needs(request: GenerateRequest) -> Iterator[Capability]:
    match request.prompt:
        case RawPrompt(attachments=attachments):
            yield "raw_prompts"
            if attachments:
                yield "raw_media"
        case MessagesPrompt():
            yield "message_prompts"
        case ChatPrompt(chat_template=template):
            if template is not None:
                yield "template_override"
    if request.only_render:
        yield "render_only"
    if request.logprobs is not None:
        yield "logprobs"
