"""Compares the chat template with a raw prompt: both prompts, the raw prompt's draft, and both answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
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
from vlmtui.inspection.build import fingerprint_of
from vlmtui.inspection.findings import Finding
from vlmtui.inspection.folded_prompt import PlaceholderSlot, placeholders, raw_text_of
from vlmtui.inspection.prompt_turns import own_tokens
from vlmtui.inspection.raw_prompt_check import check_raw, lost_attachments
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.registry.match import Model
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.difference import Difference, difference_of
from vlmtui.session.generation import Answer, PromptMode, render, request_for
from vlmtui.session.lane_engines import HERE, LaneEngines
from vlmtui.session.lane_plan import with_seed
from vlmtui.session.lanes import InFlightRequest, Lane, Lanes, LaneSpec, recorded_side
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.raw_draft import RawDraft

ALTERNATIVES = 5
"""How many of the most likely tokens to request with log-probabilities."""
TEMPLATE = "raw template"
RENDERED = "chat template's text"


class ComparisonInput(msgspec.Struct, frozen=True):
    """What both sides share: model, turns, sampling."""

    turns: tuple[Turn, ...]
    family: Family
    info: EngineInfo
    sampling: Sampling
    families: tuple[Family, ...] = ()
    """The registry's families, whose placeholders the guard recognizes."""
    adapter: str = ""
    """The folder of the LoRA adapter that answers both; empty: none, or the engine's own."""

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The conversation's attachments, in order; the position is the number."""
        return all_attachments(self.turns)

    @property
    def question(self) -> str:
        return self.turns[-1].text


@dataclass(eq=False, slots=True)
class ComparedSide:
    """One side: its prompt as it would be sent, and its lane once it was sent."""

    mode: PromptMode
    lane: Lane | None = None
    """None before the first request."""
    rendered: PromptReady | None = None
    """The prompt as the model would be given it, rendered without generating."""
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
        """Whether its answer failed or was stopped."""
        return self.lane is not None and self.lane.has_failed

    def waits_for(self) -> str:
        """Return what it waits for before it is sent, in words; empty: nothing."""
        return self.lane.waits_for if self.lane is not None else ""

    @property
    def prompt(self) -> PromptReady | None:
        """The newest prompt, from the request or rendered."""
        return (self.answer.prompt if self.answer else None) or self.rendered

    def report(self, info: EngineInfo) -> PromptReport | None:
        """Return the side for the inspector; None before its prompt is rendered."""
        title = "chat template" if self.mode == "chat" else "raw prompt"
        if self.lane is not None:
            return PromptReport.of_answer(
                title, self.lane.answer, request=self.lane.request, info=self.lane.info or info
            )
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
    """Whether to request log-probabilities with the next answers."""
    engines: LaneEngines | None = None
    """The sides' engines, by mode; None: the app's for both."""
    engine_names: Mapping[str, str] = field(default_factory=lambda: {"chat": HERE, "raw": HERE})
    """What the user calls them, by mode."""
    sampling: Sampling = field(init=False)
    """Sampling of the last request, including the seed that was drawn for it."""
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
        """Whether both sides were sent and have an outcome."""
        return all(side.is_over for side in self.sides)

    @property
    def is_stale(self) -> bool:
        """Whether the raw prompt changed since the raw answer was requested."""
        sent = self.raw.request.prompt if self.raw.request else None
        return isinstance(sent, RawPrompt) and sent.text != self.draft.text

    def chat_prompt(self) -> Prompt:
        """Return the left prompt. Raises VlmtuiError when the family does not accept the conversation."""
        return chat_prompt(self.input.family, self.input.turns)

    def template_prompt(self) -> Prompt:
        """Return the raw prompt built from the family's record. Raises VlmtuiError if that is not possible."""
        return raw_prompt(self.input.family, self.input.turns)

    def raw_prompt(self) -> RawPrompt:
        """Return the raw prompt as currently written."""
        return RawPrompt(text=self.draft.text, attachments=self.raw_attachments())

    def raw_attachments(self) -> tuple[Attachment, ...]:
        """Attachments in the order of the raw prompt's placeholders."""
        try:
            return attachments_of(self.template_prompt())
        except VlmtuiError:
            return self.input.attachments

    def special_tokens(self) -> frozenset[str]:
        """The known texts that are one special token each."""
        given = self.input
        known = {*given.info.special_tokens, *given.info.stop_tokens, *given.family.stop_tokens}
        return frozenset(known if given.info.special_tokens else known | own_tokens(given.family)) - {"@eos_token"}

    async def render_chat(self, engine: Engine) -> PromptReady:
        """Render the left prompt. Raises VlmtuiError if that fails."""
        return await self._render(engine, self.chat, self.chat_prompt())

    async def render_raw(self, engine: Engine) -> PromptReady:
        """Render the raw text as it is now. Raises VlmtuiError if that fails."""
        return await self._render(engine, self.raw, self.raw_prompt())

    async def template_text(self, engine: Callable[[], Engine]) -> tuple[str, str]:
        """Return the text to start the editor with, and its origin in words.

        The text comes from the registry; where the model's own template writes the prompt, `engine` returns the engine
        that renders it. Raises VlmtuiError.
        """
        prompt = self.template_prompt()
        if isinstance(prompt, RawPrompt):
            return prompt.text, TEMPLATE
        return self.text_of(await render(engine(), prompt, self._request(prompt).sampling)), TEMPLATE

    async def rendered_text(self, engine: Engine) -> tuple[str, str]:
        """Return the left prompt as a raw prompt, and its origin in words. Raises VlmtuiError if rendering fails."""
        return self.text_of(self.chat.rendered or await self.render_chat(engine)), RENDERED

    def text_of(self, ready: PromptReady) -> str:
        """Return the raw text of a rendered prompt."""
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
            originals=self._originals(),
        )

    def placeholders(self, text: str) -> list[PlaceholderSlot]:
        """Return a raw prompt's placeholders with the attachments that they stand for. Slow for long prompts."""
        info, given = self.input.info, self.raw_attachments()
        lost = lost_attachments(
            text,
            given,
            self.input.family,
            special_tokens=frozenset(info.special_tokens),
            stop_tokens=info.stop_tokens,
            families=self.input.families,
            originals=self._originals(),
        )
        return placeholders(text, self.input.family, given, lost)

    def _originals(self) -> tuple[str, ...]:
        """Prompts that the draft may have been made from."""
        try:
            template = self.template_prompt()
        except VlmtuiError:
            return (self.draft.filled,)
        return (self.draft.filled, template.text) if isinstance(template, RawPrompt) else (self.draft.filled,)

    def require_sendable(self) -> list[Finding]:
        """Return the findings about the raw prompt that do not block it.

        Raises VlmtuiError if the engine would reject it or be harmed by it, or if it is empty.
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
        """Prepare to send: draw a seed for both sides if sampling needs one. Return the findings that do not block.

        Raises VlmtuiError as `require_sendable` and `chat_prompt` do; then nothing has changed.
        """
        if self.is_running:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "Both answers are still running.", remedy=Remedy.STOP_COMPARISON)
        findings = self.require_sendable()
        self.chat_prompt()
        self.sampling = with_seed(self.input.sampling)
        return findings

    @property
    def alternatives(self) -> int | None:
        """Number of alternatives to request for each token; None: no log-probabilities."""
        return ALTERNATIVES if self.logprobs else None

    def begin(self, engine: Engine, in_flight: InFlightRequest | None = None) -> None:
        """Create new lanes for both sides, after `prepare`. `engine`: the app's. `in_flight`: the conversation itself
        sends the left request."""
        raw = self._spec("raw", self._request(self.raw_prompt()))
        chat = in_flight.request if in_flight is not None else self._request(self.chat_prompt())
        left, right = ((self.engines.loaded(side) if self.engines else engine) for side in ("chat", "raw"))
        self.chat.lane, self.raw.lane = Lane(self._spec("chat", chat), left, in_flight), Lane(raw, right)
        self._lanes = Lanes([self.chat.lane, self.raw.lane])

    async def answer(self) -> None:
        """Run both lanes, after `begin`. Each has an outcome afterwards."""
        await (self._lanes.run() if self.engines is None else self.engines.run(self._lanes))

    @property
    def sends_draft(self) -> bool:
        """Whether the conversation itself can send the left request: its engine is the app's."""
        return self.engines is None or self.engines.is_current("chat")

    def model_of(self, side: ComparedSide) -> Model | None:
        """Return the model that answers a side; None: the app's."""
        return self.engines.models[side.mode] if self.engines is not None else None

    def engine_facts(self, side: ComparedSide) -> str:
        """What answers a side: `vLLM 0.32.0 · float32 · cpu`, or its name before it is loaded; empty if both sides have
        the app's."""
        if self.engines is None:
            return ""
        info = side.lane.info if side.lane is not None else None
        return fingerprint_of(info).facts if info is not None else self.engines.models[side.mode].spec.name

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
        """Return the comparison as a document, to be stored, exported and run again; attachments are not embedded."""
        return self._lanes.document(generation_prompt=self.input.family.raw.generation_prompt)

    async def keep(self, message: ComparedMessage, model: Callable[[], Model]) -> None:
        """Store the answered comparison with its message. A draft that the conversation did not send itself becomes its
        next message, with the first answer. `model` returns the app's. Raises VlmtuiError."""
        answered = [side for side in self.sides if side.answer is not None and side.answer.text]
        if not answered:
            return
        if message.exchange is None:
            await self.adopt(answered[0], message, model)
        await message.store(await asyncio.to_thread(self.document), self.input.attachments)

    async def adopt(self, side: ComparedSide, message: ComparedMessage, model: Callable[[], Model]) -> None:
        """Continue the conversation with a side's answer; `model` as above. Raises VlmtuiError."""
        if side.lane is not None:
            await message.adopt(side.lane, self.model_of(side) or model())

    def _request(self, prompt: Prompt) -> GenerateRequest:
        family, adapter = self.input.family, self.input.adapter
        return request_for(prompt, family, self.sampling, logprobs=self.alternatives, adapter=adapter)

    def _spec(self, mode: PromptMode, request: GenerateRequest) -> LaneSpec:
        return LaneSpec(request=request, sampling=self.sampling, mode=mode, label=mode, turns=self.input.turns)

    @staticmethod
    def _side(side: ComparedSide) -> Side:
        request = side.request.prompt if side.request else side.rendered_from
        return recorded_side(side.mode, side.answer, side.prompt, request=request)

    async def _render(self, engine: Engine, side: ComparedSide, prompt: Prompt) -> PromptReady:
        ready = await render(engine, prompt, self._request(prompt).sampling)
        side.rendered, side.rendered_from = ready, prompt
        return ready
