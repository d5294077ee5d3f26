"""Formats conversations for vLLM's renderer and for the model's own chat template. Does not import vLLM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jinja2

from vlmtui.domain.conversation import Text, Turn
from vlmtui.domain.prompt import Message, MessagesPrompt
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.worker.hf.media_items import MediaItem

_REFUSALS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError)
"""Exceptions of a template that does not accept a form of messages."""


def chat_message(turn: Turn, items: Iterator[MediaItem]) -> dict[str, Any]:
    """Return a message for vLLM's renderer; takes media from `items` in order."""
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
            kind = f"{item.modality}_url"
            content.append({"type": kind, kind: None, "uuid": item.uuid})
    return {"role": turn.role, "content": content}


def render_messages(prompt: MessagesPrompt, sources: list[Any]) -> str:
    """Render messages with the chat template of the first of `sources` (processor, tokenizer) that has one.

    Some templates read only lists of parts, others only strings, and silently drop the other form; the first form that
    keeps the user's text is used. Raises VlmtuiError if there is no template, or no form keeps all of the text.
    """
    apply = _template_function(prompt, sources)
    last: Exception | None = None
    for form in (_as_given, _as_parts, _as_text):
        messages = [form(message) for message in prompt.messages]
        try:
            text = apply(messages)
        except _REFUSALS as error:
            last = last or error
            continue
        if all(said.strip() in text for message in prompt.messages for said in _user_texts(message)):
            return text
    if last is not None:
        message = "The model's chat template rejects this conversation."
        raise bad_input(message, detail=str(last), hint="Change the system prompt, or write the raw prompt yourself.")
    raise VlmtuiError(
        ErrorKind.NO_CHAT_TEMPLATE,
        "The model's chat template drops part of your message.",
        hint="Write the raw prompt yourself.",
    )


def _template_function(prompt: MessagesPrompt, sources: list[Any]) -> Callable[[list[dict[str, Any]]], str]:
    for one in sources:
        template = prompt.chat_template or getattr(one, "chat_template", None)
        if template and hasattr(one, "apply_chat_template"):
            given = {"chat_template": prompt.chat_template} if prompt.chat_template else {}
            return lambda messages: str(
                one.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **given)
            )
    raise VlmtuiError(
        ErrorKind.NO_CHAT_TEMPLATE,
        "The model has no chat template from which to build the raw prompt.",
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
    """Join the parts of a text-only message into one string; a message with media keeps its parts."""
    given = _as_given(message)
    if not isinstance(given["content"], str) and all(part.get("type") == "text" for part in given["content"]):
        given["content"] = "".join(str(part["text"]) for part in given["content"])
    return given


def _user_texts(message: Message) -> list[str]:
    if message.role != "user":
        return []
    if isinstance(message.content, str):
        return [message.content]
    return [str(part["text"]) for part in message.content if part.get("type") == "text"]
