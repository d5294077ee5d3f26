"""Render chat templates, with limits of time and memory."""

from __future__ import annotations

import asyncio
import ctypes
import resource
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import jinja2

from vlmtui.domain.conversation import Message, MessagesPrompt, Text, Turn
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.media.images import as_png
from vlmtui.worker.hf.media_items import MediaItem

TEMPLATE_S = 10.0
"""Seconds that a template may run; a normal template takes milliseconds."""
TEMPLATE_BYTES = 2**31
"""The bytes by which the whole process may grow while a template runs."""
_TEMPLATE_FILE = "<template>"
"""The file name that Jinja gives to compiled templates."""
_HINT = "Use a raw prompt or another chat template."
_T = TypeVar("_T")


class _TemplateStopped(RuntimeError):
    """Raised inside a running template to stop it."""


class _Heap:
    """Limits this process's memory while templates run. The limit is shared by all templates that run at the same
    time."""

    def __init__(self) -> None:
        self._before = resource.RLIM_INFINITY
        self._users = 0

    @contextmanager
    def limited(self, more: int) -> Iterator[None]:
        """Let the process grow by at most `more` bytes; further allocations raise MemoryError. Linux only."""
        if not sys.platform.startswith("linux"):
            yield
            return
        if self._users == 0:
            self._before, hard = resource.getrlimit(resource.RLIMIT_DATA)
            limit = _data_bytes() + more
            known = [one for one in (limit, self._before, hard) if one != resource.RLIM_INFINITY]
            resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                resource.setrlimit(resource.RLIMIT_DATA, (self._before, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _data_bytes() -> int:
    """Return the memory in bytes that counts against RLIMIT_DATA. Source: proc_pid_statm(5)."""
    return int(Path("/proc/self/statm").read_bytes().split()[5]) * resource.getpagesize()


_heap = _Heap()
"""Use only in the engine's event loop."""


async def within_limits(
    rendering: Awaitable[_T],
    *,
    seconds: float = TEMPLATE_S,
    more: int = TEMPLATE_BYTES,
    wrapped_in: tuple[type[Exception], ...] = (),
) -> _T:
    """Await a template that renders in another thread, and stop it after `seconds`.

    `wrapped_in`: exception types that may have a MemoryError as their cause. Raises VlmtuiError(BAD_INPUT) if the
    template exceeds the limit of time or memory."""
    memory_errors: tuple[type[Exception], ...] = (MemoryError, *wrapped_in)
    with _heap.limited(more):
        try:
            async with asyncio.timeout(seconds):
                return await rendering
        except TimeoutError as error:
            stop_templates()
            raise bad_input(f"The chat template did not finish within {seconds:g} s.", hint=_HINT) from error
        except memory_errors as error:
            if not _is_memory_error(error):
                raise
            raise bad_input("The chat template exceeds its memory limit.", hint=_HINT) from error


def stop_templates() -> int:
    """Raise an exception in every thread that runs a template. Return their number."""
    running = [thread for thread, frame in sys._current_frames().items() if _is_template(frame)]
    for thread in running:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_TemplateStopped))
    return len(running)


def _is_template(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _TEMPLATE_FILE:
            return True
        frame = frame.f_back
    return False


def _is_memory_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


_REFUSALS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError)
"""Exceptions of a template that does not accept the messages in this form."""


def chat_message(turn: Turn, items: Iterator[MediaItem]) -> dict[str, Any]:
    """Return a turn as a message for vLLM's renderer, with the next of `items` for each attachment."""
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


def with_image_urls(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of `chat_message` with its images as PNG data URLs. Mistral's tokenizer, which writes the prompt
    itself, accepts images only in this form."""
    if isinstance(message["content"], str):
        return message
    content = []
    for part in message["content"]:
        if part["type"] == "image_pil":
            url = f"data:image/png;base64,{b64encode(as_png(part['image_pil'])).decode()}"
            part = {"type": "image_url", "image_url": {"url": url}}
        content.append(part)
    return {**message, "content": content}


def render_messages(prompt: MessagesPrompt, sources: list[Any], variables: Mapping[str, object] | None = None) -> str:
    """Render messages with the chat template of the first of `sources` (processor, tokenizer) that has one.

    Some templates read only strings as content, others only lists of parts, and silently drop the other form. This
    tries each form until the result has all text of the user. Raises VlmtuiError if there is no template, or every
    form loses text.
    """
    apply = _template_function(prompt, sources, variables or {})
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


def _template_function(
    prompt: MessagesPrompt, sources: list[Any], variables: Mapping[str, object]
) -> Callable[[list[dict[str, Any]]], str]:
    for one in sources:
        template = prompt.chat_template or getattr(one, "chat_template", None)
        if template and hasattr(one, "apply_chat_template"):
            given = {**variables, **({"chat_template": prompt.chat_template} if prompt.chat_template else {})}
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
    """Return a message as a dict. If all its parts are text, they are joined into one string; a message with media
    keeps its parts."""
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
