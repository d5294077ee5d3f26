"""One turn, from the conversation to the engine's events. The app and `vlmtui ask` both go through here."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from vlmtui.domain.conversation import Turn
from vlmtui.domain.engine import (
    Cancelled,
    Delta,
    EngineEvent,
    Failed,
    Failure,
    Finished,
    GenerateRequest,
    Prompt,
    PromptReady,
    Timings,
    TokenLogprob,
    Usage,
    Vocabulary,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family

PromptMode = Literal["chat", "raw"]


@dataclass(slots=True)
class Answer:
    """What has come of a turn so far. `outcome` is None while it is being generated."""

    request_id: str
    pieces: list[str] = field(default_factory=list)
    prompt: PromptReady | None = None
    outcome: Finished | Failed | Cancelled | None = None
    tokens: int = 0
    token_ids: list[int] = field(default_factory=list)
    """Of the answer."""
    vocabulary: Vocabulary = field(default_factory=dict)
    """Every token of the prompt and the answer."""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    """One a token of the answer, where they were asked for."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def usage(self) -> Usage:
        match self.outcome:
            case Finished(usage=usage) | Cancelled(usage=usage):
                return usage
            case _:
                spans = self.prompt.media if self.prompt else ()
                return Usage(
                    prompt_tokens=len(self.prompt.token_ids) if self.prompt else 0,
                    completion_tokens=self.tokens,
                    image_tokens=sum(span.tokens for span in spans),
                )

    @property
    def timings(self) -> Timings | None:
        match self.outcome:
            case Finished(timings=timings) | Cancelled(timings=timings):
                return timings
            case _:
                return None

    @property
    def failure(self) -> Failure | None:
        return self.outcome.failure if isinstance(self.outcome, Failed) else None

    def take(self, event: EngineEvent) -> None:
        """Record an event of this request."""
        match event:
            case PromptReady():
                self.prompt = event
                self.vocabulary.update(event.vocabulary)
            case Delta():
                self.pieces.append(event.text)
                self.tokens += event.tokens
                self.token_ids += event.token_ids
                self.vocabulary.update(event.vocabulary)
                self.logprobs += event.logprobs
            case Finished() | Failed() | Cancelled():
                self.outcome = event


def new_request_id() -> str:
    return uuid.uuid4().hex


def make_request(
    family: Family,
    turns: Sequence[Turn],
    sampling: Sampling,
    *,
    mode: PromptMode = "chat",
    request_id: str | None = None,
    logprobs: int | None = None,
    keep: bool = False,
) -> GenerateRequest:
    """The request for the answer to the last turn. Raises VlmtuiError when the family cannot take the conversation."""
    build = chat_prompt if mode == "chat" else raw_prompt
    return GenerateRequest(
        request_id=request_id or new_request_id(),
        prompt=build(family, turns),
        sampling=with_family_stops(family, sampling),
        logprobs=logprobs,
        keep=keep,
    )


def with_family_stops(family: Family, sampling: Sampling) -> Sampling:
    """The sampling with the family's stop tokens added."""
    return msgspec.structs.replace(
        sampling,
        stop_tokens=(*sampling.stop_tokens, *family.stop_tokens),
        stop_token_ids=(*sampling.stop_token_ids, *family.stop_token_ids),
    )


async def run_turn(engine: Engine, request: GenerateRequest) -> AsyncGenerator[tuple[EngineEvent, Answer], None]:
    """Generate, yielding each event with the answer as it stands after it."""
    answer = Answer(request.request_id)
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            answer.take(event)
            yield event, answer


async def render(engine: Engine, prompt: Prompt) -> PromptReady:
    """The prompt as the model would be given it; nothing is generated. Raises VlmtuiError when it cannot be made."""
    request = GenerateRequest(request_id=new_request_id(), prompt=prompt, sampling=Sampling(), only_render=True)
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            match event:
                case PromptReady():
                    return event
                case Failed(failure=failure):
                    raise failure.error()
    raise VlmtuiError(ErrorKind.INTERNAL, "The engine ended the request without a word.")
