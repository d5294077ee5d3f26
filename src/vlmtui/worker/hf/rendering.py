"""Render chat templates, and refuse texts that are too long, in processes with limits of time and memory."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, BinaryIO, cast

import msgspec

from vlmtui.domain.conversation import ChatPrompt, Message, MessagesPrompt, Text, Turn
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.sampling import Sampling
from vlmtui.domain.template import check_variables
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.media.images import as_png
from vlmtui.processes import python_command
from vlmtui.worker.health import describe_exit
from vlmtui.worker.hf.media_items import MediaItem
from vlmtui.worker.hf.template_variables import template_variables
from vlmtui.worker.template_process import (
    CALL_BYTES,
    COUNT_S,
    RENDER_S,
    Call,
    Count,
    Read,
    Render,
    Reply,
    Trouble,
    read_frame,
    write_frame,
)

PROCESSES_MAX = 4
"""The most templates that run at the same time; others wait, and waiting counts against no limit."""
_IDLE_MAX = 2
_READINGS_MAX = 32
_SHORT = 100_000
"""A text of so many characters is tokenized without counting first: this takes a tenth of a second."""
_CHARACTERS = 4
"""Characters of a token in ordinary text."""
_HINT = "Use a raw prompt or another chat template."


class TemplateRefusal(Exception):
    """A template raised an exception, so it does not accept the messages in this form."""


class _Process:
    """A running `vlmtui.worker.template_process`."""

    def __init__(self) -> None:
        command = python_command(sys.executable, "-m", "vlmtui.worker.template_process")
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.has_tokenizer = False

    def call(self, call: Call, *, what: str) -> Reply:
        """Return the reply. Blocking. Raises VlmtuiError if the call exceeds its limits; the process is then ended."""
        streams = self._process
        try:
            write_frame(cast(BinaryIO, streams.stdin), msgspec.msgpack.encode(call))
            data = read_frame(cast(BinaryIO, streams.stdout))
        except BrokenPipeError:
            data = None
        if data is not None:
            reply = msgspec.msgpack.decode(data, type=Reply)
            if reply.trouble is not Trouble.TOO_BIG:
                return reply
            self.end()
            raise bad_input(f"{what} exceeds its memory limit.", hint=_HINT)
        code = self.end()
        if code == -signal.SIGPROF:
            raise bad_input(f"{what} did not finish within {call.seconds:g} s of processor time.", hint=_HINT)
        raise bad_input(f"{what} failed: its process {describe_exit(code)}.", hint=_HINT)

    def end(self) -> int:
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                cast(BinaryIO, stream).close()
        return self._process.wait()


class TemplateProcesses:
    """The processes that run one model's chat templates and count the tokens of long texts, so that none of these stops
    the other requests. Their limits count from when they run."""

    def __init__(self, tokenizer: Any = None, context: int = 0) -> None:
        """`tokenizer`: of Transformers; without one in Rust, no tokens are counted. `context`: the tokens that a prompt
        may have."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._tokenizer: str | None = None if backend is None else backend.to_str()
        self._context = context
        self._threads = ThreadPoolExecutor(PROCESSES_MAX, thread_name_prefix="template")
        self._idle: list[_Process] = []
        self._readings: dict[str, Reply] = {}

    async def render(
        self,
        source: str,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, object],
        *,
        seconds: float = RENDER_S,
        more: int = CALL_BYTES,
    ) -> str:
        """Render a template with a generation prompt.

        Raises TemplateRefusal, or VlmtuiError(BAD_INPUT) if the template exceeds `seconds` of processor time or `more`
        bytes of memory."""
        work = Render(source, [dict(one) for one in messages], dict(variables))
        return (await self._call(Call(work, seconds, more), "The chat template")).text

    async def content_format(self, source: str) -> str:
        """Return vLLM's word for the content that a template reads: `openai` (lists of parts) or `string`. Raises as
        `render` does."""
        return (await self._read(source)).text

    async def variables(self, sampling: Sampling, source: str) -> dict[str, object]:
        """Return the variables that a request sets for its chat template. `source`: the template's Jinja source; empty
        if unknown, so that the variables are not checked against it.

        Raises VlmtuiError(BAD_INPUT) for a variable that the template does not read, or a value of a wrong type, and as
        `render` does."""
        given = template_variables(sampling, "")
        if given and source:
            with suppress(TemplateRefusal):  # which the rendering then gives, too
                check_variables(given, (await self._read(source)).variables)
        return given

    async def _read(self, source: str) -> Reply:
        if (found := self._readings.get(source)) is None:
            found = await self._call(Call(Read(source), RENDER_S, CALL_BYTES), "The chat template")
            self._readings = dict([*self._readings.items(), (source, found)][-_READINGS_MAX:])
        return found

    async def require_fit(self, text: str) -> None:
        """Raise VlmtuiError(CONTEXT_TOO_LONG) if a long text has more tokens than the context.

        Lets a text pass uncounted if tokenizing it takes no longer than tokenizing a prompt that fills the context."""
        if self._tokenizer is None or len(text) <= max(_SHORT, _CHARACTERS * self._context):
            return
        work = Count(text, self._context, self._tokenizer)
        found = (await self._call(Call(work, COUNT_S, CALL_BYTES), "Counting the prompt's tokens")).count
        if found > self._context:
            raise too_long(f"The prompt has more tokens than the context: {self._context:,}.")

    def close(self) -> None:
        """End the idle processes, and take no more calls. Running calls continue."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        while self._idle:
            self._idle.pop().end()

    async def _call(self, call: Call, what: str) -> Reply:
        reply = await asyncio.get_running_loop().run_in_executor(self._threads, self._run, call, what)
        if reply.trouble is Trouble.REFUSED:
            raise TemplateRefusal(reply.message)
        return reply

    def _run(self, call: Call, what: str) -> Reply:
        try:
            process = self._idle.pop()
        except IndexError:
            process = _Process()
        if isinstance(call.work, Count) and process.has_tokenizer:
            call = msgspec.structs.replace(call, work=msgspec.structs.replace(call.work, tokenizer=None))
        reply = process.call(call, what=what)
        process.has_tokenizer = process.has_tokenizer or isinstance(call.work, Count)
        if len(self._idle) < _IDLE_MAX:
            self._idle.append(process)
        else:
            process.end()
        return reply


def too_long(detail: str) -> VlmtuiError:
    """Return CONTEXT_TOO_LONG. `detail`: the number of tokens, and that of the context."""
    return VlmtuiError(
        ErrorKind.CONTEXT_TOO_LONG,
        "The conversation does not fit in the model's context.",
        detail=detail,
        hint="Start a new chat, attach fewer or smaller images, or load the model with a longer max_model_len.",
    )


def refused(error: TemplateRefusal) -> VlmtuiError:
    message = "The model's chat template rejects this conversation."
    return bad_input(message, detail=str(error), hint="Change the system prompt, or write the raw prompt yourself.")


def template_of(prompt: ChatPrompt, info: EngineInfo) -> str | None:
    """Return the chat template to use; None: the model's own. Raises VlmtuiError if there is none."""
    if prompt.chat_template is not None or info.has_chat_template:
        return prompt.chat_template
    if prompt.fallback_template is None:
        message = f"{info.spec.name} has no chat template."
        raise VlmtuiError(ErrorKind.NO_CHAT_TEMPLATE, message, hint="Use a raw prompt instead.")
    return prompt.fallback_template


def special_tokens(source: Any) -> dict[str, object]:
    """Return the special tokens of a tokenizer or processor, which every template gets as variables."""
    return dict(getattr(getattr(source, "tokenizer", source), "special_tokens_map", None) or {})


def has_own_format(source: Any) -> bool:
    """Return True if a tokenizer or processor comes with Python code, from outside of Transformers, that formats
    messages. vLLM's tokenizers of Hugging Face only pass them on."""
    found = [one.__module__ for one in type(source).__mro__ if "apply_chat_template" in vars(one)]
    return any(not one.startswith("transformers.") and one != "vllm.tokenizers.hf" for one in found)


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


async def render_messages(
    prompt: MessagesPrompt,
    sources: Iterable[Any],
    variables: Mapping[str, object] | None,
    processes: TemplateProcesses,
) -> str:
    """Render messages with the chat template of the first of `sources` (processor, tokenizer) that has one.

    Some templates read only strings as content, others only lists of parts, and silently drop the other form. This
    tries each form until the result has all text of the user. Raises VlmtuiError if there is no template, or every
    form loses text.
    """
    source, template = _first_template(prompt, sources)
    given = {**special_tokens(source), **(variables or {})}
    fixed = {"chat_template": prompt.chat_template, "tokenize": False, "add_generation_prompt": True}
    options = {**fixed, **(variables or {})}
    is_own = has_own_format(source)
    last: TemplateRefusal | None = None
    for form in (_as_given, _as_parts, _as_text):
        messages = [form(message) for message in prompt.messages]
        try:
            text = await processes.render(template, messages, given)
        except TemplateRefusal as error:
            last = last or error
            continue
        if is_own:  # code that the user has allowed
            text = str(await asyncio.to_thread(source.apply_chat_template, messages, **options))
        if all(said.strip() in text for message in prompt.messages for said in _user_texts(message)):
            return text
    if last is not None:
        raise refused(last)
    raise VlmtuiError(
        ErrorKind.NO_CHAT_TEMPLATE,
        "The model's chat template drops part of your message.",
        hint="Write the raw prompt yourself.",
    )


def _first_template(prompt: MessagesPrompt, sources: Iterable[Any]) -> tuple[Any, str]:
    """Return the first of `sources` that has a template, or can take the prompt's own, and that template."""
    has_video = any(part.get("type") == "video" for one in prompt.messages if not isinstance(one.content, str)
                    for part in one.content)  # fmt: skip
    for one in sources:
        own = getattr(one, "chat_template", None)
        if own and has_video:  # SmolVLM's own template writes no videos
            own = getattr(sys.modules.get(type(one).__module__), "DEFAULT_CHAT_TEMPLATE", own)
        named = own if isinstance(own, dict) else {"default": own}
        template = named.get(prompt.chat_template) or prompt.chat_template or named.get("default")
        if template and hasattr(one, "apply_chat_template"):
            return one, str(template)
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
