"""Compares the chat template with a raw prompt: both prompts, the raw prompt's draft, and both answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Turn, all_attachments
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import GenerateRequest, PromptReady
from vlmtui.domain.prompt import Prompt, RawPrompt, attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError
from vlmtui.inspection.folded_prompt import raw_text_of
from vlmtui.inspection.raw_prompt_check import Finding, check_raw
from vlmtui.inspection.raw_turns import own_tokens
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family
from vlmtui.session.difference import Difference, difference_of
from vlmtui.session.generation import Answer, PromptMode, render, request_for
from vlmtui.session.lanes import InFlightRequest, Lane, Lanes, LaneSpec, recorded_side
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.raw_draft import RawDraft

ALTERNATIVES = 5
"""How many of the most likely tokens to request with log-probabilities."""
TEMPLATE = "raw template"
RENDERED = "chat template's text"
_SEEDS = 2**31


class ComparisonInput(msgspec.Struct, frozen=True):
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


@dataclass(eq=False, slots=True)
class ComparedSide:
    """One of the two: its prompt as it would be sent, and once it is asked, its lane."""

    mode: PromptMode
    lane: Lane | None = None
    """None before it is asked."""
    rendered: PromptReady | None = None
    """The prompt as the model would be given it, made without an answer."""
    rendered_from: Prompt | None = None

    @property
    def answer(self) -> Answer | None:
        return self.lane.answer if self.lane else None

    @property
    def request(self) -> GenerateRequest | None:
        return self.lane.request if self.lane else None

    @property
    def is_running(self) -> bool:
        return self.lane is not None and self.lane.is_running

    @property
    def is_over(self) -> bool:
        return self.lane is not None and not self.lane.is_running

    @property
    def has_failed(self) -> bool:
        """Whether its answer did not come, or not to its end."""
        return self.lane is not None and self.lane.has_failed

    @property
    def prompt(self) -> PromptReady | None:
        """The newest that is known."""
        return (self.answer.prompt if self.answer else None) or self.rendered

    def report(self, info: EngineInfo) -> PromptReport | None:
        """The side for the inspector; None where no prompt was made yet."""
        title = "chat template" if self.mode == "chat" else "raw prompt"
        if self.lane is not None:
            return PromptReport.of_answer(title, self.lane.answer, request=self.lane.request, info=info)
        if self.rendered is None or self.rendered_from is None:
            return None
        return PromptReport(
            title=title,
            prompt=self.rendered,
            vocabulary=self.rendered.vocabulary,
            attachments=attachments_of(self.rendered_from),
            info=info,
        )


@dataclass(eq=False)
class CompareController:
    """One question, its two prompts, and the raw prompt's draft."""

    input: ComparisonInput
    draft: RawDraft
    logprobs: bool = False
    """Whether the next answers are asked for with log-probabilities."""
    sampling: Sampling = field(init=False)
    """Of the answers that were asked for last: the seed is set where one is used."""
    chat: ComparedSide = field(init=False)
    raw: ComparedSide = field(init=False)

    def __post_init__(self) -> None:
        self.sampling = self.input.sampling
        self.chat, self.raw = ComparedSide("chat"), ComparedSide("raw")
        self._lanes = Lanes(())

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

    @property
    def is_stale(self) -> bool:
        """Whether the raw prompt is another one than the raw answer was asked with."""
        sent = self.raw.request.prompt if self.raw.request else None
        return isinstance(sent, RawPrompt) and sent.text != self.draft.text

    def chat_prompt(self) -> Prompt:
        """Raises VlmtuiError when the family cannot take the conversation."""
        return chat_prompt(self.input.family, self.input.turns)

    def template_prompt(self) -> Prompt:
        """Return the raw prompt built from the family's record. Raises VlmtuiError if that is not possible."""
        return raw_prompt(self.input.family, self.input.turns)

    def raw_prompt(self) -> RawPrompt:
        """The raw prompt as it is written now."""
        return RawPrompt(text=self.draft.text, attachments=self.raw_attachments())

    def raw_attachments(self) -> tuple[Attachment, ...]:
        """In the order in which a raw prompt's placeholders stand for them."""
        try:
            return attachments_of(self.template_prompt())
        except VlmtuiError:
            return self.input.attachments

    def special_tokens(self) -> frozenset[str]:
        """Texts that are one token each, as far as they are known."""
        given = self.input
        known = {*given.info.special_tokens, *given.info.stop_tokens, *given.family.stop_tokens}
        return frozenset(known if given.info.special_tokens else known | own_tokens(given.family)) - {"@eos_token"}

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
        info = self.input.info
        return raw_text_of(ready, self.input.family, bos=info.bos_token, adds_bos=info.adds_bos)

    def check(self, text: str) -> list[Finding]:
        """Return the findings about a raw prompt, blocking ones first."""
        info = self.input.info
        return check_raw(
            text,
            self.raw_attachments(),
            self.input.family,
            special_tokens=frozenset(info.special_tokens),
            stop_tokens=info.stop_tokens,
            bos=info.bos_token,
            adds_bos=info.adds_bos,
            families=self.input.families,
        )

    def require_sendable(self) -> list[Finding]:
        """What is wrong with the raw prompt and does not keep it from being sent.

        Raises VlmtuiError where the engine would refuse it or be harmed by it, or where it is empty.
        """
        if not self.draft.text:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "The raw prompt is empty.", remedy=Remedy.FILL_RAW_PROMPT)
        findings = self.check(self.draft.text)
        blocking = next((finding for finding in findings if finding.blocks), None)
        if blocking is not None:
            hint, remedy = (f"To fix it: {blocking.fix.label}.", Remedy.APPLY_FIX) if blocking.fix else ("", None)
            message = f"Not sent: {blocking.message}"
            raise VlmtuiError(ErrorKind.PLACEHOLDER_MISMATCH, message, hint=hint, remedy=remedy)
        return findings

    def prepare(self) -> list[Finding]:
        """Make ready to ask: where the seed is open and matters, one is drawn for both. Gives what is wrong with the
        raw prompt all the same.

        Raises VlmtuiError as `require_sendable` and `chat_prompt` do; then nothing has changed.
        """
        if self.is_running:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "Both are being answered.", remedy=Remedy.STOP_COMPARISON)
        findings = self.require_sendable()
        self.chat_prompt()
        self.sampling = with_seed(self.input.sampling)
        return findings

    @property
    def alternatives(self) -> int | None:
        """How many of the likeliest tokens the next answers are asked for with; None: no log-probabilities."""
        return ALTERNATIVES if self.logprobs else None

    def begin(self, engine: Engine, in_flight: InFlightRequest | None = None) -> None:
        """Both sides begin anew, after `prepare`. `in_flight`: the conversation itself asks the left one."""
        raw = self._spec(
            "raw", request_for(self.raw_prompt(), self.input.family, self.sampling, logprobs=self.alternatives)
        )
        if in_flight is not None:
            chat = in_flight.request
        else:
            chat = request_for(self.chat_prompt(), self.input.family, self.sampling, logprobs=self.alternatives)
        self.chat.lane, self.raw.lane = Lane(self._spec("chat", chat), engine, in_flight), Lane(raw, engine)
        self._lanes = Lanes([self.chat.lane, self.raw.lane])

    async def answer(self) -> None:
        """Take in what both sides are answered, after `begin`. Each has an outcome afterwards, whatever happens."""
        await self._lanes.run()

    async def stop(self, *modes: PromptMode) -> None:
        """Stop these sides; keep their partial answers."""
        for side in self.sides:
            if side.mode in modes and side.lane is not None:
                await side.lane.stop()

    def difference(self) -> Difference:
        """Compute the difference. Slow for long prompts."""
        return difference_of(
            [self._side(side) for side in self.sides],
            generation_prompt=self.input.family.raw.generation_prompt,
            failed=[side.mode for side in self.sides if side.has_failed],
            has_answers=self.is_over,
            is_stale=self.is_stale,
        )

    def document(self) -> Comparison:
        """All of it, after `answer`, to be stored, exported and run again; without the bytes of the attachments."""
        return self._lanes.document(generation_prompt=self.input.family.raw.generation_prompt)

    def _spec(self, mode: PromptMode, request: GenerateRequest) -> LaneSpec:
        return LaneSpec(request=request, sampling=self.sampling, mode=mode, label=mode, turn=self.input.turns[-1])

    @staticmethod
    def _side(side: ComparedSide) -> Side:
        request = side.request.prompt if side.request else side.rendered_from
        return recorded_side(side.mode, side.answer, side.prompt, request=request)

    async def _render(self, engine: Engine, side: ComparedSide, prompt: Prompt) -> PromptReady:
        ready = await render(engine, prompt)
        side.rendered, side.rendered_from = ready, prompt
        return ready


def with_seed(sampling: Sampling) -> Sampling:
    """Return the sampling with a random seed if none is set and tokens are sampled."""
    if sampling.seed is not None or sampling.temperature == 0:
        return sampling
    return msgspec.structs.replace(sampling, seed=random.randrange(_SEEDS))
