"""Conversations as vLLM's renderer and the model's own chat template take them. Needs no vLLM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jinja2

from vlmtui.domain.conversation import Text, Turn
from vlmtui.domain.prompt import Message, MessagesPrompt
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.worker.backends.vllm.media_items import MediaItem

_REFUSALS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError)
"""What a template raises that does not take a form of messages."""


def chat_message(turn: Turn, items: Iterator[MediaItem]) -> dict[str, Any]:
    """A message as vLLM's renderer takes it; media are taken from `items` in order."""
    if not turn.attachments:
        return {"role": turn.role, "content": turn.text}
    content: list[dict[str, Any]] = []
    for part in turn.parts:
        if isinstance(part, Text):
            content.append({"type": "text", "text": part.text})
            continue
        item = next(items)
        if item.modality == "image":
            content.append({"type": "image_pil", "image_pil": item.data, "uuid": item.uuid})
        else:
            content.append({"type": "video_url", "video_url": None, "uuid": item.uuid})
    return {"role": turn.role, "content": content}


def text_of_messages(prompt: MessagesPrompt, appliers: list[Any]) -> str:
    """The prompt text that the first of `appliers` (processor, tokenizer) with a chat template makes of the messages.

    Some templates only read lists of parts, others only strings, and drop the other without a word; whichever keeps
    what the user wrote is taken. Raises VlmtuiError where there is no template, or none of the ways keeps it all.
    """
    apply = _applier(prompt, appliers)
    last: Exception | None = None
    for form in (_as_given, _as_parts, _as_text):
        messages = [form(message) for message in prompt.messages]
        try:
            text = apply(messages)
        except _REFUSALS as error:
            last = last or error
            continue
        if all(said.strip() in text for message in prompt.messages for said in _said_by_user(message)):
            return text
    if last is not None:
        message = "The model's chat template does not take this conversation."
        raise bad_input(message, detail=str(last), hint="Change the system prompt, or write the raw prompt yourself.")
    raise VlmtuiError(
        ErrorKind.NO_CHAT_TEMPLATE,
        "The model's chat template leaves out a part of what was asked.",
        hint="Write the raw prompt yourself.",
    )


def _applier(prompt: MessagesPrompt, appliers: list[Any]) -> Callable[[list[dict[str, Any]]], str]:
    for one in appliers:
        template = prompt.chat_template or getattr(one, "chat_template", None)
        if template and hasattr(one, "apply_chat_template"):
            given = {"chat_template": prompt.chat_template} if prompt.chat_template else {}
            return lambda messages: str(
                one.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **given)
            )
    raise VlmtuiError(
        ErrorKind.NO_CHAT_TEMPLATE,
        "The model has no chat template to write the raw prompt with.",
        hint="Write the raw prompt yourself, or add a record with a [raw] template to your own families.",
    )


def _as_given(message: Message) -> dict[str, Any]:
    content = message.content if isinstance(message.content, str) else [dict(part) for part in message.content]
    return {"role": message.role, "content": content}


def _as_parts(message: Message) -> dict[str, Any]:
    given = _as_given(message)
    if isinstance(given["content"], str):
        given["content"] = [{"type": "text", "text": given["content"]}]
    return given


def _as_text(message: Message) -> dict[str, Any]:
    """Only text that no medium stands in may become a string."""
    given = _as_given(message)
    if not isinstance(given["content"], str) and all(part.get("type") == "text" for part in given["content"]):
        given["content"] = "".join(str(part["text"]) for part in given["content"])
    return given


def _said_by_user(message: Message) -> list[str]:
    if message.role != "user":
        return []
    if isinstance(message.content, str):
        return [message.content]
    return [str(part["text"]) for part in message.content if part.get("type") == "text"]
