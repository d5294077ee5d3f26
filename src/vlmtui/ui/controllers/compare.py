"""The chat template and a raw prompt, asked the same at the same time. No widgets here."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Turn, all_attachments
from vlmtui.domain.engine import (
    EngineInfo,
    Failed,
    Failure,
    GenerateRequest,
    Prompt,
    PromptReady,
    RawPrompt,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.session import PromptMode, new_request_id, render, run_turn, with_family_stops
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.guard import Finding, check_raw
from vlmtui.inspection.made import comparison_of, side_of
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.inspection.turns import own_tokens
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family
from vlmtui.ui.controllers.compare_difference import Difference, difference_of
from vlmtui.ui.controllers.compared_side import ComparedSide, Sent
from vlmtui.ui.controllers.folded_prompt import attachments_of, raw_text_of
from vlmtui.ui.controllers.raw_draft import RawDraft

MODES: tuple[PromptMode, PromptMode] = ("chat", "raw")
ALTERNATIVES = 5
"""How many of the likeliest tokens are asked for with log-probabilities."""
TEMPLATE = "raw template"
RENDERED = "chat template's text"
_SEEDS = 2**31


class Asked(msgspec.Struct, frozen=True):
    """What both sides are asked."""

    turns: tuple[Turn, ...]
    family: Family
    info: EngineInfo
    sampling: Sampling
    families: tuple[Family, ...] = ()
    """Of the registry, whose placeholders the guard knows."""

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Of the conversation, in its order; their places give them their numbers."""
        return all_attachments(self.turns)

    @property
    def question(self) -> str:
        return self.turns[-1].text


@dataclass(eq=False)
class CompareController:
    """One question, its two prompts, and the raw prompt's draft."""

    asked: Asked
    draft: RawDraft
    logprobs: bool = False
    """Whether the next answers are asked for with log-probabilities."""
    sampling: Sampling = field(init=False)
    """Of the answers that were asked for last: the seed is set where one is used."""
    chat: ComparedSide = field(init=False)
    raw: ComparedSide = field(init=False)

    def __post_init__(self) -> None:
        self.sampling = self.asked.sampling
        self.chat, self.raw = ComparedSide("chat"), ComparedSide("raw")

    @property
    def sides(self) -> tuple[ComparedSide, ComparedSide]:
        return self.chat, self.raw

    @property
    def is_running(self) -> bool:
        return any(side.is_running for side in self.sides)

    @property
    def is_over(self) -> bool:
        """Whether both sides were asked and have their outcome."""
        return all(side.is_over for side in self.sides)

    def chat_prompt(self) -> Prompt:
        """Raises VlmtuiError when the family cannot take the conversation."""
        return chat_prompt(self.asked.family, self.asked.turns)

    def template_prompt(self) -> Prompt:
        """The raw prompt as the registry writes it. Raises VlmtuiError when it cannot."""
        return raw_prompt(self.asked.family, self.asked.turns)

    def raw_prompt(self) -> RawPrompt:
        """The raw prompt as it is written now."""
        return RawPrompt(text=self.draft.text, attachments=self.raw_attachments())

    def raw_attachments(self) -> tuple[Attachment, ...]:
        """In the order in which a raw prompt's placeholders stand for them."""
        try:
            return attachments_of(self.template_prompt())
        except VlmtuiError:
            return self.asked.attachments

    def special_tokens(self) -> frozenset[str]:
        """Texts that are one token each, as far as they are known."""
        asked = self.asked
        known = {*asked.info.special_tokens, *asked.info.stop_tokens, *asked.family.stop_tokens}
        return frozenset(known if asked.info.special_tokens else known | own_tokens(asked.family)) - {"@eos_token"}

    async def render_chat(self, engine: Engine) -> PromptReady:
        """Make the left prompt. Raises VlmtuiError when it cannot be made."""
        return await self._render(engine, self.chat, self.chat_prompt())

    async def render_raw(self, engine: Engine) -> PromptReady:
        """Make the prompt of the raw text as it is now. Raises VlmtuiError when it cannot be made."""
        return await self._render(engine, self.raw, self.raw_prompt())

    async def template_text(self, engine: Callable[[], Engine]) -> tuple[str, str]:
        """What the editor is filled with first, and what that is; for people.

        The registry's own text; where the model's template writes it, what that wrote: `engine` gives the engine for
        it. Raises VlmtuiError.
        """
        prompt = self.template_prompt()
        if isinstance(prompt, RawPrompt):
            return prompt.text, TEMPLATE
        return self.text_of(await render(engine(), prompt)), TEMPLATE

    async def rendered_text(self, engine: Engine) -> tuple[str, str]:
        """The left prompt as a raw prompt, and what that is. Raises VlmtuiError when it cannot be made."""
        return self.text_of(self.chat.rendered or await self.render_chat(engine)), RENDERED

    def text_of(self, ready: PromptReady) -> str:
        """The raw text of a prompt that was made."""
        info = self.asked.info
        return raw_text_of(ready, self.asked.family, bos=info.bos_token, adds_bos=info.adds_bos)

    def check(self, text: str) -> list[Finding]:
        """What is wrong with a raw prompt; what blocks comes first."""
        info = self.asked.info
        return check_raw(
            text,
            self.raw_attachments(),
            self.asked.family,
            special_tokens=frozenset(info.special_tokens),
            stop_tokens=info.stop_tokens,
            bos=info.bos_token,
            adds_bos=info.adds_bos,
            families=self.asked.families,
        )

    def require_sendable(self) -> list[Finding]:
        """What is wrong with the raw prompt and does not keep it from being sent.

        Raises VlmtuiError where the engine would refuse it or be harmed by it, or where it is empty.
        """
        if not self.draft.text:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "The raw prompt is empty.", hint="Ctrl+O fills it.")
        findings = self.check(self.draft.text)
        blocking = next((finding for finding in findings if finding.blocks), None)
        if blocking is not None:
            hint = f"F8: {blocking.fix.label}." if blocking.fix else ""
            raise VlmtuiError(ErrorKind.PLACEHOLDER_MISMATCH, f"Not sent: {blocking.message}", hint=hint)
        return findings

    def prepare(self) -> list[Finding]:
        """Make ready to ask: where the seed is open and matters, one is drawn for both. Gives what is wrong with the
        raw prompt all the same.

        Raises VlmtuiError as `require_sendable` and `chat_prompt` do; then nothing has changed.
        """
        if self.is_running:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "Both are being answered.", hint="Esc stops them.")
        findings = self.require_sendable()
        self.chat_prompt()
        self.sampling = with_seed(self.asked.sampling)
        return findings

    def as_asked(self, request: GenerateRequest) -> GenerateRequest:
        """The request with the seed and the log-probabilities of this comparison."""
        logprobs = ALTERNATIVES if self.logprobs else None
        sampling = msgspec.structs.replace(request.sampling, seed=self.sampling.seed)
        return msgspec.structs.replace(request, sampling=sampling, logprobs=logprobs)

    def begin(self, sent: Sent | None = None) -> None:
        """Both sides begin anew, after `prepare`. `sent`: the left one is asked by the conversation itself."""
        self.chat.begin(sent.request if sent else self._request(self.chat_prompt()), sent)
        self.raw.begin(self._request(self.raw_prompt()))

    async def answer(self, engine: Engine) -> None:
        """Take in what both sides are answered, at the same time. Each has an outcome afterwards, whatever happens."""
        results = await asyncio.gather(*(self._answer(engine, side) for side in self.sides), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def stop(self, engine: Engine, *modes: PromptMode) -> None:
        """Stop these sides; what has come stays."""
        for side in self.sides:
            if side.mode in modes and side.is_running and side.answer is not None:
                await engine.cancel(side.answer.request_id)

    def difference(self) -> Difference:
        """Slow for long prompts."""
        sent = self.raw.request.prompt if self.raw.request else None
        return difference_of(
            [self.side(mode) for mode in MODES],
            generation_prompt=self.asked.family.raw.generation_prompt,
            failed=[side.mode for side in self.sides if side.has_failed],
            has_answers=self.is_over,
            is_stale=isinstance(sent, RawPrompt) and sent.text != self.draft.text,
        )

    def side(self, mode: PromptMode) -> Side:
        """The side as a document has it."""
        side = self.chat if mode == "chat" else self.raw
        answer = side.answer
        return side_of(
            mode,
            side.prompt,
            text=answer.text if answer else "",
            token_ids=answer.token_ids if answer else (),
            vocabulary=answer.vocabulary if answer else {},
            logprobs=(answer.logprobs or None) if answer else None,
            outcome=answer.outcome if answer else None,
            request=side.request.prompt if side.request else side.rendered_from,
        )

    def document(self) -> Comparison:
        """All of it, to be kept, exported and run again; without the bytes of the attachments."""
        return comparison_of(
            self.asked.info,
            self.sampling,
            self.asked.attachments,
            [self.side(mode) for mode in MODES],
            generation_prompt=self.asked.family.raw.generation_prompt,
        )

    def _request(self, prompt: Prompt) -> GenerateRequest:
        sampling = with_family_stops(self.asked.family, self.sampling)
        return self.as_asked(GenerateRequest(request_id=new_request_id(), prompt=prompt, sampling=sampling))

    async def _render(self, engine: Engine, side: ComparedSide, prompt: Prompt) -> PromptReady:
        ready = await render(engine, prompt)
        side.rendered, side.rendered_from = ready, prompt
        return ready

    async def _answer(self, engine: Engine, side: ComparedSide) -> None:
        request, answer = side.request, side.answer
        assert request is not None
        assert answer is not None
        if side.sent is not None:
            await side.sent.over()
            return
        if self.chat.sent is not None:
            await self.chat.sent.begun()
        try:
            async with aclosing(run_turn(engine, request)) as events:
                async for event, _ in events:
                    answer.take(event)
        finally:
            if answer.outcome is None:
                lost = Failure(kind=ErrorKind.ENGINE_DIED, message="The answer was interrupted.")
                answer.take(Failed(request_id=request.request_id, failure=lost))


def with_seed(sampling: Sampling) -> Sampling:
    """With a seed drawn where it is open and tokens are drawn at all."""
    if sampling.seed is not None or sampling.temperature == 0:
        return sampling
    return msgspec.structs.replace(sampling, seed=random.randrange(_SEEDS))
