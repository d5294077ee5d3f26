"""Compares the chat template's prompt with a raw prompt, which the user edits and may save."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from vlmtui.domain.capabilities import lack, require_capability
from vlmtui.domain.conversation import Attachment, Prompt, RawPrompt, Turn, all_attachments, attachments_of
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import Cancelled, Failed, Failure, Finished, GenerateRequest, PromptReady, Token
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError, bad_input, require_text
from vlmtui.files import write_private
from vlmtui.inspection.answer_diff import AnswerDiff, answer_diff
from vlmtui.inspection.build import tokens_of
from vlmtui.inspection.prompt_diff import PromptDiff, prompt_diff
from vlmtui.inspection.prompt_turns import PlaceholderSlot, own_tokens, placeholders, raw_text_of
from vlmtui.inspection.raw_prompt_check import Finding, check_raw
from vlmtui.inspection.replay import Comparison, Side, from_json
from vlmtui.paths import Paths
from vlmtui.reading import is_file, read_struct, read_whole
from vlmtui.registry.match import Model
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family
from vlmtui.registry.unlisted import UNLISTED
from vlmtui.session.conversation import Conversation
from vlmtui.session.dials import variables_of
from vlmtui.session.engines import AppEngines
from vlmtui.session.exchange import Exchange
from vlmtui.session.generation import Answer, PromptMode, render, request_for, tags_of
from vlmtui.session.lanes import (
    InFlightRequest,
    Lane,
    Lanes,
    LaneSpec,
    recorded_side,
    with_seed,
)
from vlmtui.session.persistence import LiveConversation
from vlmtui.session.prompt_report import ALTERNATIVES, PromptReport
from vlmtui.session.resume import Generation

_NAME = re.compile(r"[^\s./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,79}")
_BYTES_MAX = 10_000_000
TEMPLATE = "from the record"
RENDERED = "from the chat template"


class RawDraft(msgspec.Struct, eq=False):
    """The text of the raw prompt's editor. It outlives the screen, so that nothing typed is lost."""

    text: str = ""
    filled: str = ""
    """The text before any editing."""
    origin: str = ""
    """Where the text came from: `TEMPLATE`, `RENDERED`; empty: nowhere yet, or a saved prompt."""
    saved_as: str = ""
    """The name of the saved prompt that it was loaded from or saved as; empty: none."""

    @property
    def is_edited(self) -> bool:
        return self.text != self.filled

    def fill(self, text: str, origin: str = "", *, saved_as: str = "") -> None:
        """Replace the text."""
        self.text = self.filled = text
        self.origin, self.saved_as = origin, saved_as


def draft_file(paths: Paths, conversation: str) -> Path:
    """Return the file of a stored conversation's raw prompt."""
    return paths.state / "raw" / f"{conversation}.json"


class RawDrafts:
    """The raw prompt drafts of the conversations, one file each."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._known: dict[LiveConversation, RawDraft] = {}

    async def of(self, conversation: LiveConversation) -> RawDraft:
        """Return the conversation's draft, perhaps from an earlier session; empty if there is none."""
        draft = self._known.get(conversation)
        if draft is None:
            id = conversation.id
            stored = await asyncio.to_thread(read_draft, self._paths, id) if id is not None else None
            draft = self._known.setdefault(conversation, stored or RawDraft())
        return draft

    async def write(self, conversation: LiveConversation) -> None:
        """Store the draft if its conversation is stored. Raises VlmtuiError."""
        draft, id = self._known.get(conversation), conversation.id
        if draft is not None and id is not None:
            await asyncio.to_thread(write_private, draft_file(self._paths, id), msgspec.json.encode(draft))


def read_draft(paths: Paths, conversation: str) -> RawDraft | None:
    """Return the draft of a stored conversation; None if there is none or it cannot be read. Blocking."""
    try:
        return read_struct(draft_file(paths, conversation), RawDraft, bytes_max=_BYTES_MAX)
    except VlmtuiError:
        return None


class SavedPrompts:
    """A model family's saved raw prompts: files `prompts/FAMILY/NAME.txt` in the config folder."""

    def __init__(self, paths: Paths, family: str) -> None:
        self._folder = paths.config / "prompts" / (family if _NAME.fullmatch(family) else "unlisted")

    def names(self) -> list[str]:
        """Return the names of all saved prompts, sorted."""
        try:
            found = [file.stem for file in self._folder.iterdir() if file.suffix == ".txt" and is_file(file)]
        except OSError:
            return []
        return sorted((name for name in found if _NAME.fullmatch(name)), key=str.casefold)

    def save(self, name: str, text: str) -> str:
        """Save the text, replacing an older prompt of this name. Return the name as saved. Raises VlmtuiError."""
        name = name.strip()
        if not _NAME.fullmatch(name) or len(os.fsencode(name)) > 200:
            hint = "A name has up to 80 characters, no slashes, and does not begin with a dot."
            raise bad_input("Not a valid name for a prompt.", hint=hint)
        require_text(text, "Can't save the prompt: it contains characters that are not text.")
        write_private(self._file(name), text.encode(), durable=True)
        return name

    def load(self, name: str) -> str:
        """Return a saved prompt. Raises VlmtuiError if it is missing or not UTF-8."""
        data = read_whole(self._file(name), bytes_max=_BYTES_MAX)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise bad_input("The saved prompt is not UTF-8 text.", detail=str(error)) from error

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.txt"


class TokenAt(msgspec.Struct, frozen=True):
    """A token of an answer. Hostile text."""

    text: str
    logprob: float | None = None
    top: tuple[tuple[str, float], ...] = ()
    """The most likely tokens at this position with their log-probabilities, most likely first."""


class Divergence(msgspec.Struct, frozen=True):
    """The first differing token of the two answers."""

    index: int
    left: TokenAt | None
    """None: this answer has already ended."""
    right: TokenAt | None


class Difference(msgspec.Struct, frozen=True):
    """The differences of the two prompts and of the two answers, of those that exist so far."""

    prompts: PromptDiff | None = None
    answers: AnswerDiff | None = None
    divergence: Divergence | None = None
    failed: tuple[PromptMode, ...] = ()
    """Sides without a complete answer."""
    is_stale: bool = False
    """True if the raw prompt was edited since."""
    problem: VlmtuiError | None = None
    """Why nothing can be compared."""


def difference_of(
    sides: Sequence[Side],
    *,
    failed: Iterable[PromptMode] = (),
    has_answers: bool = True,
    is_stale: bool = False,
) -> Difference:
    """Compute the differences of the first two sides of a comparison. Slow for long prompts."""
    left, right = sides[:2]
    prompts = None
    if left.prompt_token_texts and right.prompt_token_texts:
        tokens = [tokens_of(side, attachments_of(side.request) if side.request else ()) for side in (left, right)]
        prompts = prompt_diff(*tokens)
    without = tuple(failed)
    if not has_answers or any(not side.answer and side.mode in without for side in (left, right)):
        return Difference(prompts, failed=without, is_stale=is_stale)
    ids = (left.answer_token_ids or None, right.answer_token_ids or None)
    answers = answer_diff(left.answer, right.answer, *ids)
    divergence = None
    if answers.first_divergence is not None:
        at = answers.first_divergence
        divergence = Divergence(at, _token_at(left, at), _token_at(right, at))
    return Difference(prompts, answers, divergence, without, is_stale)


def _token_at(side: Side, index: int) -> TokenAt | None:
    if index >= len(side.answer_token_ids):
        return None
    text = side.answer_token_texts[index] if side.answer_token_texts else f"⟨{side.answer_token_ids[index]}⟩"
    if side.logprobs is None or index >= len(side.logprobs):
        return TokenAt(text)
    known = side.logprobs[index]
    return TokenAt(text, known.logprob, tuple((one.text, one.logprob) for one in known.top))


class LoadedComparison(msgspec.Struct, frozen=True):
    created_ms: int
    """Milliseconds since 1970, UTC."""
    document: Comparison


def answer_of(side: Side) -> Answer:
    """Return the answer of a side (a prompt and its answer) of a comparison document. The answer has its prompt if the
    document has the prompt's tokens."""
    special = frozenset(side.special_token_ids)
    pairs = (
        *zip(side.prompt_token_ids, side.prompt_token_texts, strict=False),
        *zip(side.answer_token_ids, side.answer_token_texts, strict=False),
    )
    vocabulary = {id: Token(text=text, special=id in special, data=side.token_bytes.get(id)) for id, text in pairs}
    ready = PromptReady(
        request_id="",
        prompt=side.prompt,
        token_ids=side.prompt_token_ids,
        media=side.media,
        vocabulary=vocabulary,
        used=side.used,
    )
    answer = Answer(
        "", [side.answer], ready if side.prompt_token_ids else None, tokens=len(side.answer_token_ids), used=side.used
    )
    answer.vocabulary = vocabulary
    answer.token_ids = list(side.answer_token_ids)
    answer.outcome = _outcome(side)
    return answer


def _outcome(side: Side) -> Finished | Failed | Cancelled:
    if side.finish_reason is not None:
        return Finished(
            request_id="", finish_reason=side.finish_reason, usage=side.usage, timings=side.timings, stop=side.stop
        )
    if side.timings.total_s:
        return Cancelled(request_id="", usage=side.usage, timings=side.timings)
    return Failed(request_id="", failure=Failure(kind=ErrorKind.INTERNAL, message=side.failure))


@dataclass(eq=False, slots=True)
class ComparedMessage:
    conversation: Conversation
    exchange: Exchange | None = None
    """None: the draft, which is not sent yet."""

    @classmethod
    def of(cls, conversation: Conversation) -> ComparedMessage:
        """Return the message to compare: the draft; if it is empty, the last sent message. Raises VlmtuiError if there
        is neither, while an answer is running, and while a file is loading."""
        conversation.require_rest()
        draft = conversation.draft
        if draft.pending:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "A file is still loading.")
        if draft.words.strip() or draft.attachments:
            return cls(conversation)
        if conversation.last is None:
            hint = "Write a message first. Compare sends it with the chat template and with a raw prompt."
            raise VlmtuiError(ErrorKind.BAD_USAGE, "There is nothing to compare yet.", hint=hint)
        return cls(conversation, conversation.last)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns to send: system prompt, history, and the message."""
        return tuple(self.conversation.turns_until(self.exchange))

    def sent(self, exchange: Exchange) -> InFlightRequest:
        """Note that the draft was sent, and became this exchange. Return the exchange's request, so that a lane can
        follow it."""
        assert exchange.request is not None
        self.exchange = exchange
        answers = self.conversation.answers
        return InFlightRequest(
            exchange.request,
            exchange.answer,
            lambda: answers.wait_until_sent(exchange),
            lambda: answers.wait_until_over(exchange),
        )

    async def adopt(self, lane: Lane, model: Model) -> None:
        """Add a lane's answer to the conversation as another answer to the sent message, and show it. Raises
        VlmtuiError."""
        if self.exchange is None or lane.is_running or not lane.answer.text:
            raise bad_input("There is no answer to use yet.")
        lane.answer.read_by(tags_of(model.family))
        made = Generation(lane.request, lane.answer, model, lane.info, lane.spec.mode)
        await self.conversation.adopt(self.exchange, made)

    async def store(self, document: Comparison, attachments: Iterable[Attachment]) -> None:
        """Store a comparison with the message. Raises VlmtuiError."""
        exchange, items = self.exchange, tuple(attachments)
        await self.conversation.recorder.flush()
        turn = exchange.user_id if exchange is not None else None
        if turn is None:
            raise VlmtuiError(ErrorKind.INTERNAL, "Can't store the comparison: its message is not stored yet.")
        await self.conversation.recorder.store.run(lambda store: store.add_comparison(turn, document, items))

    async def stored(self) -> list[LoadedComparison]:
        """Return the comparisons stored with the message, newest first, without unreadable ones. Raises VlmtuiError."""
        turn = self.exchange.user_id if self.exchange is not None else None
        if turn is None:
            return []
        found: list[LoadedComparison] = []
        for one in reversed(await self.conversation.recorder.store.run(lambda store: store.comparisons(turn))):
            with suppress(VlmtuiError):
                found.append(LoadedComparison(one.created_ms, from_json(msgspec.json.encode(one.document))))
        return found


@dataclass(eq=False, slots=True)
class ComparedSide:
    """A side of the comparison: a prompt (`chat` or `raw`) and, once the prompt was sent, its lane
    (`vlmtui.session.lanes`)."""

    mode: PromptMode
    lane: Lane | None = None
    """None until the first request."""
    rendered: PromptReady | None = None
    """The prompt as the engine rendered it without generating."""
    rendered_from: Prompt | None = None

    @property
    def answer(self) -> Answer | None:
        return self.lane.answer if self.lane else None

    @property
    def is_running(self) -> bool:
        return self.lane is not None and self.lane.is_running

    @property
    def prompt(self) -> PromptReady | None:
        """The newest prompt, rendered or sent."""
        return self.rendered or (self.answer.prompt if self.answer else None)

    def recorded(self) -> Side:
        """Return the side in the form of a comparison document."""
        request = self.lane.request.prompt if self.lane else self.rendered_from
        return recorded_side(self.mode, self.answer, self.prompt, request=request)

    def report(self, info: EngineInfo) -> PromptReport | None:
        """Return the side for the inspector; None until its prompt is rendered."""
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
class PromptComparison:
    """A message with two prompts, the chat template's and a raw prompt, and the answers to both."""

    turns: tuple[Turn, ...]
    family: Family
    info: EngineInfo
    settings: Sampling
    """The sampling of both sides, as set by the user."""
    draft: RawDraft
    families: tuple[Family, ...] = ()
    """The registry's families: a raw prompt is checked for the placeholders of all of them."""
    adapter: str = ""
    """The LoRA adapter's folder for both sides; empty: none, or the engine's own."""
    sampling: Sampling = field(init=False)
    """The sampling of the last requests, with the seed that was drawn for them."""
    chat: ComparedSide = field(init=False)
    raw: ComparedSide = field(init=False)

    @classmethod
    def of(
        cls, message: ComparedMessage, draft: RawDraft, engines: AppEngines, families: tuple[Family, ...]
    ) -> PromptComparison:
        """Return the comparison of a message. Raises VlmtuiError if no engine is loaded, if the engine does not accept
        raw prompts, or if it does not accept media in raw prompts and the message has attachments."""
        info, family = engines.require_info(), engines.require_model().family
        require_capability(info, "raw_prompts")
        if all_attachments(message.turns):
            require_capability(info, "raw_media")
        settings = message.conversation.settings
        return cls(message.turns, family, info, settings.sampling, draft, families=families, adapter=settings.adapter)

    def __post_init__(self) -> None:
        self.sampling = self.settings
        self.chat, self.raw = ComparedSide("chat"), ComparedSide("raw")
        self._lanes = Lanes(())

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The conversation's attachments, in order of their numbers."""
        return all_attachments(self.turns)

    @property
    def added_bos(self) -> str:
        """The BOS token that the engine adds to a raw prompt; empty: none."""
        return (self.info.bos_token or "") if self.info.adds_bos else ""

    @property
    def sides(self) -> tuple[ComparedSide, ComparedSide]:
        return self.chat, self.raw

    @property
    def is_running(self) -> bool:
        return self._lanes.is_running

    @property
    def is_over(self) -> bool:
        """True if both sides were sent and have ended."""
        return len(self._lanes) > 0 and not self.is_running

    @property
    def is_stale(self) -> bool:
        """True if the raw prompt was edited since it was sent."""
        sent = self.raw.lane.request.prompt if self.raw.lane else None
        return isinstance(sent, RawPrompt) and sent.text != self.draft.text

    def chat_prompt(self) -> Prompt:
        """Return the chat side's prompt. Raises VlmtuiError if the family does not accept the conversation."""
        return chat_prompt(self.family, self.turns)

    def template_prompt(self) -> Prompt:
        """Return the raw prompt made from the model family's TOML record. Raises VlmtuiError."""
        return raw_prompt(self.family, self.turns, variables_of(self.sampling))

    def raw_prompt(self) -> RawPrompt:
        return RawPrompt(text=self.draft.text, attachments=self.raw_attachments())

    def raw_attachments(self) -> tuple[Attachment, ...]:
        """Return the attachments in the order of the raw prompt's placeholders."""
        try:
            return attachments_of(self.template_prompt())
        except VlmtuiError:
            return self.attachments

    def special_tokens(self) -> frozenset[str]:
        known = {*self.info.special_tokens, *self.info.stop_tokens, *self.family.stop_tokens}
        return frozenset(known if self.info.special_tokens else known | own_tokens(self.family)) - {"@eos_token"}

    async def render_chat(self, engine: Engine) -> PromptReady:
        """Render the chat side's prompt. Raises VlmtuiError."""
        return await self._render(engine, self.chat, self.chat_prompt())

    async def render_raw(self, engine: Callable[[], Engine]) -> None:
        """Render the raw prompt as edited, unless the answer already tells this prompt's tokens. Raises VlmtuiError."""
        self.raw.rendered = None
        if self.raw.prompt is None or self.is_stale:
            await self._render(engine(), self.raw, self.raw_prompt())

    async def template_text(self, engine: Callable[[], Engine]) -> tuple[str, str]:
        """Return the editor's initial text, and its origin (`TEMPLATE`): the raw prompt that the family's record makes.
        If the record uses the model's own template, the engine that `engine` returns renders the text. Raises
        VlmtuiError."""
        prompt = self.template_prompt()
        if isinstance(prompt, RawPrompt):
            return prompt.text, TEMPLATE
        ready = await render(engine(), prompt, self._request(prompt).sampling)
        is_listed = self.family.family != UNLISTED
        return self.text_of(ready) if is_listed else ready.text or self.text_of(ready), TEMPLATE

    async def rendered_text(self, engine: Engine) -> tuple[str, str]:
        """Return the chat side's prompt as raw text, and its origin (`RENDERED`). Raises VlmtuiError."""
        return self.text_of(self.chat.rendered or await self.render_chat(engine)), RENDERED

    def text_of(self, ready: PromptReady) -> str:
        """Return the raw text of a rendered prompt."""
        return raw_text_of(ready, self.family, added_bos=self.added_bos)

    def check(self, text: str) -> list[Finding]:
        """Return the problems of a raw prompt; those that must not be sent come first."""
        info = self.info
        return check_raw(
            text,
            self.raw_attachments(),
            self.family,
            special_tokens=frozenset(info.special_tokens),
            stop_tokens=info.stop_tokens,
            bos=info.bos_token,
            adds_bos=info.adds_bos,
            families=self.families,
        )

    def placeholders(self, text: str) -> list[PlaceholderSlot]:
        """Return a raw prompt's placeholders with their attachments."""
        return placeholders(text, self.family, self.raw_attachments())

    def require_sendable(self) -> None:
        """Raise VlmtuiError if the raw prompt must not be sent."""
        if not self.draft.text:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "The raw prompt is empty.", remedy=Remedy.FILL_RAW_PROMPT)
        blocking = next((finding for finding in self.check(self.draft.text) if finding.blocks), None)
        if blocking is not None:
            hint, remedy = (f"To fix it: {blocking.fix.label}.", Remedy.APPLY_FIX) if blocking.fix else ("", None)
            message = f"Can't send: {blocking.message}"
            raise VlmtuiError(ErrorKind.PLACEHOLDER_MISMATCH, message, hint=hint, remedy=remedy)

    def prepare(self) -> None:
        """Check both prompts, and draw a seed if the sampling needs one. Raises VlmtuiError, and then changes
        nothing."""
        if self.is_running:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "Both answers are still running.", remedy=Remedy.STOP_COMPARISON)
        self.require_sendable()
        self.chat_prompt()
        self.sampling = with_seed(self.settings)

    @property
    def alternatives(self) -> int | None:
        """The number of log-probabilities to request per token; None: the engine tells none."""
        return None if lack(self.info, "logprobs") else ALTERNATIVES

    def begin(self, engine: Engine, in_flight: InFlightRequest | None = None) -> None:
        """Create new lanes for both sides. `in_flight`: the conversation's request for the chat side, if there is one;
        the lane of that side follows it."""
        raw = self._spec("raw", self._request(self.raw_prompt()))
        chat = in_flight.request if in_flight is not None else self._request(self.chat_prompt())
        self.chat.lane, self.raw.lane = Lane(self._spec("chat", chat), engine, in_flight), Lane(raw, engine)
        self.raw.rendered = None
        self._lanes = Lanes([self.chat.lane, self.raw.lane])

    async def answer(self) -> None:
        """Run both lanes until they end, after `begin`."""
        await self._lanes.run()

    async def stop(self) -> None:
        """Stop both sides; keep the partial answers."""
        await self._lanes.stop()

    def difference(self) -> Difference:
        """Compute the differences. Slow for long prompts."""
        return difference_of(
            [side.recorded() for side in self.sides],
            failed=[side.mode for side in self.sides if side.lane is not None and side.lane.has_failed],
            has_answers=self.is_over,
            is_stale=self.is_stale,
        )

    def document(self) -> Comparison:
        """Return the comparison as a document, without the attachments' bytes."""
        return self._lanes.document()

    async def keep(self, message: ComparedMessage) -> None:
        """Store the comparison with its message, if there is an answer. Raises VlmtuiError."""
        if any(side.answer is not None and side.answer.text for side in self.sides):
            await message.store(await asyncio.to_thread(self.document), self.attachments)

    def _request(self, prompt: Prompt) -> GenerateRequest:
        return request_for(prompt, self.family, self.sampling, logprobs=self.alternatives, adapter=self.adapter)

    def _spec(self, mode: PromptMode, request: GenerateRequest) -> LaneSpec:
        return LaneSpec(request=request, sampling=self.sampling, mode=mode, label=mode, turns=self.turns)

    async def _render(self, engine: Engine, side: ComparedSide, prompt: Prompt) -> PromptReady:
        ready = await render(engine, prompt, self._request(prompt).sampling)
        side.rendered, side.rendered_from = ready, prompt
        return ready
