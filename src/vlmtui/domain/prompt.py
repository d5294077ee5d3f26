"""The forms of a prompt: turns for a chat template, a raw prompt, or messages to render into a raw prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Role, Turn, all_attachments, with_changed_media


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="chat"):
    """Turns to render with a chat template."""

    turns: tuple[Turn, ...]
    chat_template: str | None = None
    """Used instead of the model's own."""
    fallback_template: str | None = None
    """Used if the model has none."""


class RawPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="raw"):
    """A prompt text with placeholders, and the attachments in the order of their placeholders."""

    text: str
    attachments: tuple[Attachment, ...] = ()


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message for a chat template: a text with placeholders, or a list of parts."""

    role: Role
    content: str | tuple[dict[str, object], ...]


class MessagesPrompt(msgspec.Struct, frozen=True, kw_only=True, tag="messages"):
    """Messages that the worker renders with the chat template of the model's tokenizer or processor (or the given one),
    and then treats as a `RawPrompt`."""

    messages: tuple[Message, ...]
    by: Literal["tokenizer", "processor"]
    chat_template: str | None = None
    attachments: tuple[Attachment, ...] = ()
    """The attachments, in the order of their placeholders."""


Prompt = ChatPrompt | RawPrompt | MessagesPrompt


def attachments_of(prompt: Prompt) -> tuple[Attachment, ...]:
    """Return the prompt's attachments in the order of their placeholders."""
    return all_attachments(prompt.turns) if isinstance(prompt, ChatPrompt) else prompt.attachments


def with_attachments(prompt: Prompt, change: Callable[[Attachment], Attachment]) -> Prompt:
    """Return the prompt with `change` applied to every attachment."""
    if not isinstance(prompt, ChatPrompt):
        return msgspec.structs.replace(prompt, attachments=tuple(change(item) for item in prompt.attachments))
    turns = tuple(Turn(turn.role, with_changed_media(turn.parts, change)) for turn in prompt.turns)
    return msgspec.structs.replace(prompt, turns=turns)
