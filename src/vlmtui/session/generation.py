"""Requests and answers: a prompt and its sampling as a request, an engine's events as an answer."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Literal

import msgspec

from vlmtui.domain.conversation import Attachment, Prompt, Turn, attachments_of
from vlmtui.domain.generation import (
    Cancelled,
    Delta,
    EngineEvent,
    Failed,
    Failure,
    Finished,
    GenerateRequest,
    MediaSpan,
    PromptReady,
    RenderRequest,
    Request,
    Timings,
    TokenLogprob,
    Usage,
    View,
    Vocabulary,
    Waiting,
    usage_of,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.domain.thinking import COMMON_TAGS, ThinkingTags, Thought
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.thinking import ThinkingParts, split_thinking
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family
from vlmtui.session.dials import processor_arguments, structured_of, variables_of, with_arguments
from vlmtui.text import counted, one_line

if TYPE_CHECKING:
    from vlmtui.session.structured import StructureCheck


class ThoughtMeter(msgspec.Struct):
    """Measures an answer's reasoning until its closing tag: tokens and seconds."""

    tags: ThinkingTags = COMMON_TAGS
    is_timed: bool = True
    """False for text that was generated earlier."""
    ended: Thought | None = None
    """Set at the closing tag."""
    _began_s: float | None = None
    _tail: str = ""
    """The end of the text so far, which may contain the beginning of the closing tag."""

    @property
    def seconds(self) -> float | None:
        """Seconds since the answer's first token; None before the first token, and for a stored answer, whose times are
        unknown."""
        return None if self._began_s is None or not self.is_timed else time.monotonic() - self._began_s

    def take(self, text: str, token_ids: Sequence[int], vocabulary: Vocabulary) -> None:
        """Process new text. `token_ids`: all tokens of the answer so far."""
        if self.ended is not None:
            return
        if self._began_s is None:
            self._began_s = time.monotonic()
        close, found = self.tags.close, self._tail + text
        if close not in found:
            self._tail = found[-len(close) :]
            return
        tokens = tokens_through(close, token_ids, vocabulary)
        self.ended = Thought(tags=self.tags, tokens=tokens, seconds=self.seconds)


def tokens_through(text: str, token_ids: Sequence[int], vocabulary: Vocabulary) -> int | None:
    """Return the number of tokens up to the end of the first `text` in them; None if the tokens do not contain it."""
    wanted, spelled = text.encode(), bytearray()
    ends: list[int] = []
    for token in token_ids:
        known = vocabulary.get(token)
        if known is None:
            return None
        spelled += known.data if known.data is not None else known.text.encode(errors="replace")
        ends.append(len(spelled))
    at = spelled.find(wanted)
    return None if at < 0 else sum(end < at + len(wanted) for end in ends) + 1


_BEFORE_SYSTEM = 64
"""Most tokens of a prompt before its system prompt: a system prompt has at most one token a byte."""
PromptMode = Literal["chat", "raw"]


class Answer(msgspec.Struct, eq=False):
    """The answer to a request, so far. `outcome` is None while it is running."""

    request_id: str
    pieces: list[str] = msgspec.field(default_factory=list)
    prompt: PromptReady | None = None
    outcome: Finished | Failed | Cancelled | None = None
    tokens: int = 0
    token_ids: list[int] = msgspec.field(default_factory=list)
    vocabulary: Vocabulary = msgspec.field(default_factory=dict)
    """All tokens of the prompt and the answer."""
    logprobs: list[TokenLogprob] = msgspec.field(default_factory=list)
    """One per token of the answer, if requested."""
    began_s: float = msgspec.field(default_factory=time.monotonic)
    """`time.monotonic()` at the request; for a stored answer, when it was read."""
    used: Sampling | None = None
    """The sampling that the engine used, with all defaults filled in; None: not recorded."""
    thought: ThoughtMeter = msgspec.field(default_factory=ThoughtMeter)
    waiting: Waiting | None = None
    """Set while a server takes no requests, before the answer begins."""
    waiting_since_s: float = 0.0
    """`time.monotonic()` when `waiting` came."""
    structure: StructureCheck | None = None
    """The check of the requested structure; None: none was requested, or the answer has not finished."""
    on_event: Callable[[], None] | None = None
    """Called after each event; shows the answer."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def has_text(self) -> bool:
        return any(self.pieces)

    @property
    def usage(self) -> Usage:
        match self.outcome:
            case Finished(usage=usage) | Cancelled(usage=usage):
                return usage
            case _:
                return usage_of(self.prompt, self.tokens)

    @property
    def timings(self) -> Timings | None:
        match self.outcome:
            case Finished(timings=timings) | Cancelled(timings=timings):
                return timings
            case _:
                return None

    def read_by(self, tags: ThinkingTags) -> None:
        """Split a finished answer into reasoning and answer by these tags from now on."""
        if tags != self.thought.tags:
            self.thought = ThoughtMeter(tags, is_timed=False)
            self.thought.take(self.text, self.token_ids, self.vocabulary)

    def parts(self, text: str) -> ThinkingParts:
        """Split `text` into reasoning and answer. `text`: the answer's text so far, perhaps changed for display."""
        tags = self.thought.tags
        is_open = self.prompt is not None and self.prompt.prompt.rstrip().endswith(tags.open.strip())
        return split_thinking(text, tags, over=self.outcome is not None, is_open=is_open)

    @property
    def failure(self) -> Failure | None:
        return self.outcome.failure if isinstance(self.outcome, Failed) else None

    def take(self, event: EngineEvent) -> None:
        """Process an event of this request."""
        self.waiting = event if isinstance(event, Waiting) else None
        match event:
            case Waiting():
                self.waiting_since_s = time.monotonic()
            case PromptReady():
                self.prompt, self.used = event, event.used
                self.vocabulary.update(event.vocabulary)
            case Delta():
                self.pieces.append(event.text)
                self.tokens += event.tokens
                self.token_ids += event.token_ids
                self.vocabulary.update(event.vocabulary)
                self.logprobs += event.logprobs
                self.thought.take(event.text, self.token_ids, self.vocabulary)
            case Finished() | Failed() | Cancelled():
                self.outcome = event
        if self.on_event is not None:
            self.on_event()


class PromptMedia(msgspec.Struct, frozen=True):
    """An attachment of a prompt, and its spans of the prompt's tokens."""

    attachment: Attachment
    number: int
    """Number in the prompt, from 1."""
    spans: tuple[MediaSpan, ...] = ()
    """Several if the processor splits an image into tiles; empty if unknown."""
    stored: int | None = None
    """The number of its tokens as it was stored, if `spans` are unknown."""

    @property
    def resized(self) -> tuple[int, int] | None:
        """Width and height in pixels after the processor's resize, if the engine reports it."""
        return next((span.resized for span in self.spans if span.resized), None)

    @property
    def tokens(self) -> int | None:
        """The number of the prompt's tokens that belong to the attachment; None if unknown."""
        return sum(span.tokens for span in self.spans) if self.spans else self.stored


def media_items(
    prompt: PromptReady | None, attachments: Sequence[Attachment], stored: Sequence[int | None] = ()
) -> list[PromptMedia]:
    """Return the attachments of a prompt, in order, with their spans. `stored`: their tokens as they were stored."""
    if len(stored) != len(attachments):
        stored = [None] * len(attachments)
    counts: Counter[str] = Counter()
    items = []
    for number, (attachment, tokens) in enumerate(zip(attachments, stored, strict=True), 1):
        place = (attachment.modality, counts[attachment.modality])
        counts[attachment.modality] += 1
        own = tuple(span for span in (prompt.media if prompt else ()) if (span.modality, span.index) == place)
        items.append(PromptMedia(attachment, number, own, tokens))
    return items


def system_tokens(answer: Answer, system_prompt: str) -> int:
    """Return the number of the prompt's tokens up to the end of its system prompt; 0 if that is unknown."""
    text = system_prompt.strip()
    if not text or answer.prompt is None:
        return 0
    head = answer.prompt.token_ids[: len(text.encode()) + _BEFORE_SYSTEM]
    return tokens_through(text, head, answer.vocabulary) or 0


def waiting_line(answer: Answer) -> str:
    """Return what an answer waits for at its server, and for how long: `… (429). Asks again in 7 s.`; empty if it does
    not wait there. On one line."""
    if answer.waiting is None:
        return ""
    left_s = max(0.0, answer.waiting_since_s + answer.waiting.seconds - time.monotonic())
    return f"{one_line(answer.waiting.reason)} · asks again in {math.ceil(left_s)} s"


def missing_answer(answer: Answer) -> VlmtuiError | None:
    """Return the error for a finished answer that says nothing: it has no text, or nothing after its reasoning."""
    if not isinstance(answer.outcome, Finished):
        return None
    is_empty, parts = not answer.text.strip(), answer.parts(answer.text)
    if not is_empty and (parts.answer.strip() or not parts.thinking):
        return None
    message = "The answer has no text." if is_empty else "The answer has nothing after its reasoning."
    is_cut = answer.outcome.finish_reason == "length"
    tokens = counted(answer.usage.completion_tokens, "token")
    detail = f"{tokens}; {'the token limit ended it' if is_cut else 'the model ended it'}"
    hint = "Raise max_tokens, or limit its reasoning (thinking_budget, thinking off)." if is_cut else ""
    return VlmtuiError(ErrorKind.NO_ANSWER, message, detail=detail, hint=hint)


def tags_of(family: Family) -> ThinkingTags:
    """Return the tags around the reasoning of the family's models."""
    return family.thinking.tags if family.thinking is not None else COMMON_TAGS


def answer_to(request: GenerateRequest, family: Family) -> Answer:
    return Answer(request.request_id, thought=ThoughtMeter(tags_of(family)))


def new_request_id() -> str:
    return uuid.uuid4().hex


def make_request(
    family: Family,
    turns: Sequence[Turn],
    sampling: Sampling,
    *,
    mode: PromptMode = "chat",
    logprobs: int | None = None,
    adapter: str = "",
    keep: bool = False,
) -> GenerateRequest:
    """Return the request for an answer to the last turn. `keep`: the engine keeps the answer until it is fetched.
    Raises VlmtuiError if the family does not accept the conversation."""
    prompt = chat_prompt(family, turns) if mode == "chat" else raw_prompt(family, turns, variables_of(sampling))
    return request_for(prompt, family, sampling, logprobs=logprobs, adapter=adapter, keep=keep)


def request_for(
    prompt: Prompt,
    family: Family,
    sampling: Sampling,
    *,
    logprobs: int | None = None,
    adapter: str = "",
    keep: bool = False,
) -> GenerateRequest:
    """Return the request for a prompt, with a new id."""
    own = _own_arguments(family, prompt, sampling)
    return GenerateRequest(
        request_id=new_request_id(),
        prompt=prompt,
        sampling=with_family_tokens(family, with_arguments(sampling, own)),
        own_arguments=tuple(own),
        logprobs=logprobs,
        adapter=adapter,
        keep=keep,
    )


def _own_arguments(family: Family, prompt: Prompt, sampling: Sampling) -> dict[str, object]:
    """Return the processor arguments that the family's record sets for two or more images; those that the user has set
    are left out."""
    if sum(item.modality == "image" for item in attachments_of(prompt)) < 2:
        return {}
    given = processor_arguments(sampling, {})
    return {name: value for name, value in family.processor_several.items() if name not in given}


def with_family_tokens(family: Family, sampling: Sampling) -> Sampling:
    """Return the sampling with the family's stop tokens. Special tokens stay in the text if they mark reasoning."""
    keeps_special = family.thinking is not None and family.thinking.special
    return msgspec.structs.replace(
        sampling,
        skip_special_tokens=sampling.skip_special_tokens and not keeps_special,
        stop_tokens=(*sampling.stop_tokens, *family.stop_tokens),
        stop_token_ids=(*sampling.stop_token_ids, *family.stop_token_ids),
    )


async def run_turn(
    engine: Engine, request: Request, answer: Answer | None = None
) -> AsyncGenerator[tuple[EngineEvent, Answer], None]:
    """Send a request. Yield each event, and the answer with the event added. `answer`: the answer to add events to;
    None: a new answer."""
    answer = answer or Answer(request.request_id)
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            await check_end(answer, event, request.sampling)
            answer.take(event)
            yield event, answer


async def whole_answer(
    engine: Engine, request: Request, on_event: Callable[[Answer], None] = lambda answer: None
) -> Answer:
    """Send a request with a new id, and return the answer when it has ended in any way. `on_event`: called with the
    answer after each event."""
    request = msgspec.structs.replace(request, request_id=new_request_id())
    answer = Answer(request.request_id)
    async with aclosing(run_turn(engine, request, answer)) as events:
        async for _ in events:
            on_event(answer)
    if answer.outcome is None:
        answer.take(broken_off(request.request_id))
    return answer


async def check_end(answer: Answer, event: EngineEvent, sampling: Sampling) -> None:
    """If the event finishes the answer and `sampling` requests a structure, check the answer against it. Call this
    before the answer takes the event."""
    if isinstance(event, Finished) and structured_of(sampling):
        from vlmtui.session.structured import check_structure

        text = answer.parts(answer.text).answer
        answer.structure = await asyncio.to_thread(check_structure, sampling, text)


def broken_off(request_id: str) -> Failed:
    """Return the outcome of an answer whose events stopped without an outcome."""
    failure = Failure(kind=ErrorKind.ENGINE_DIED, message="The answer was interrupted.")
    return Failed(request_id=request_id, failure=failure)


async def render(
    engine: Engine, prompt: Prompt, sampling: Sampling | None = None, *, view: View | None = None
) -> PromptReady:
    """Return the prompt as the model would get it, without generating. Raises VlmtuiError."""
    request = RenderRequest(request_id=new_request_id(), prompt=prompt, sampling=sampling or Sampling(), view=view)
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            match event:
                case PromptReady():
                    return event
                case Failed(failure=failure):
                    raise failure.error()
    raise VlmtuiError(ErrorKind.INTERNAL, "The engine ended the request without an error message.")
