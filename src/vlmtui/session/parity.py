"""Has engines make the same prompts and answers, so that they can be compared stage by stage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

import msgspec

from vlmtui.domain.conversation import Turn
from vlmtui.domain.generation import Delta, EngineEvent, Failed, GenerateRequest, PromptReady
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.parity import CaseParity, ParitySide, Stage, StageOutcome, StageResult
from vlmtui.paths import private_dir
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family, KnownDifference
from vlmtui.session.generation import PromptMode, new_request_id

CASES = ("text", "image", "images")
"""Canned conversations that are compared unless others are named."""
TOP = 20
"""Likeliest tokens that are asked for at each position: vLLM's limit, unless it was loaded with another."""


class Generates(Protocol):
    """The part of an engine that is needed here."""

    def generate(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]: ...


class ParityPrompt(msgspec.Struct, frozen=True):
    """A conversation to compare."""

    case: str
    mode: PromptMode
    turns: tuple[Turn, ...]


class ParityReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was found."""

    model: str
    family: str
    engine: str
    """`vLLM 0.32.0, float32, cpu`."""
    reference: str
    """The same of the other side; its model too, where that is another one."""
    cases: tuple[CaseParity, ...]
    known: tuple[KnownDifference, ...] = ()
    """What the family's record says of this engine on this device."""

    @property
    def reason(self) -> str:
        """Why the first difference is there, if that is known; else empty."""
        stage = self.first.stage.value if self.first is not None else ""
        return next((one.why for one in self.known if one.stage == stage), "")

    @property
    def first(self) -> StageResult | None:
        """The earliest stage that differs in any conversation."""
        found = [one.first for one in self.cases if one.first is not None]
        order = list(Stage)
        return min(found, key=lambda one: order.index(one.stage), default=None)

    @property
    def is_complete(self) -> bool:
        """Whether every conversation was compared to the end."""
        return bool(self.cases) and not any(one.errors for one in self.cases)

    @property
    def unknown(self) -> int:
        """Number of stages that could not be compared."""
        return sum(one.outcome is StageOutcome.UNKNOWN for case in self.cases for one in case.stages)


async def gather_sides(
    engine: Generates, family: Family, prompts: Sequence[ParityPrompt], folder: Path, *, tokens: int
) -> list[ParitySide]:
    """Return what the engine makes of each conversation: its prompt, its processor's values (written into `folder`,
    which is made private), and a greedy answer of `tokens` tokens. What fails is told in the side."""
    private = private_dir(folder)
    return [await _gather(engine, family, prompt, private, tokens) for prompt in prompts]


async def _gather(engine: Generates, family: Family, prompt: ParityPrompt, folder: Path, tokens: int) -> ParitySide:
    sampling = Sampling(
        temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0,
        frequency_penalty=0.0, seed=0, max_tokens=tokens, skip_special_tokens=False, extra={"ignore_eos": True},
    )  # fmt: skip
    side = ParitySide()
    try:
        made = (chat_prompt if prompt.mode == "chat" else raw_prompt)(family, prompt.turns)
        render = GenerateRequest(
            request_id=new_request_id(), prompt=made, sampling=sampling, only_render=True, view=str(folder), values=True
        )
        side = await _read(engine, render, side)
        answer = GenerateRequest(request_id=new_request_id(), prompt=made, sampling=sampling, logprobs=TOP)
        return await _read(engine, answer, side)
    except VlmtuiError as error:
        return msgspec.structs.replace(side, error=" ".join(filter(None, (error.message, error.detail))))


async def _read(engine: Generates, request: GenerateRequest, side: ParitySide) -> ParitySide:
    """Return the side with what a request gave. Raises VlmtuiError."""
    words, ids, logprobs = dict(side.words), list(side.answer_ids), list(side.logprobs)
    ready: PromptReady | None = None
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            match event:
                case PromptReady():
                    ready = event
                    words |= {number: token.text for number, token in event.vocabulary.items()}
                case Delta():
                    ids += event.token_ids
                    logprobs += event.logprobs
                    words |= {number: token.text for number, token in event.vocabulary.items()}
                case Failed(failure=failure):
                    raise failure.error()
    side = msgspec.structs.replace(side, words=words, answer_ids=tuple(ids), logprobs=tuple(logprobs))
    if ready is not None and request.only_render:
        side = msgspec.structs.replace(
            side, text=ready.text, token_ids=ready.token_ids, media=ready.media, seen=ready.seen
        )
    return side
