"""The prompts and answers that the inspector shows, new or stored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.conversation import Attachment, ChatPrompt, RawPrompt, Turn, all_attachments, attachments_of
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import GenerateRequest, PromptReady, TokenLogprob, Vocabulary
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import Remedy, VlmtuiError, bad_input
from vlmtui.inspection.build import pieces, texts_of
from vlmtui.inspection.prompt_diff import PromptTokens
from vlmtui.inspection.tokens import Piece, attachment_of
from vlmtui.media.describe import clock
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model
from vlmtui.registry.prompts import raw_prompt
from vlmtui.registry.schema import Family
from vlmtui.session.conversation import Conversation
from vlmtui.session.dials import variables_of
from vlmtui.session.exchange import Exchange, turns_as_sent
from vlmtui.session.generation import Answer, PromptMedia, make_request, render, whole_answer
from vlmtui.session.resume import is_of_engine, stored_sampling
from vlmtui.store.records import GenerationRecord
from vlmtui.text import is_number

Part = Literal["prompt", "tokens", "media", "template", "request", "answer"]
ALTERNATIVES = 5
"""Alternatives requested for each token of an answer."""
_EXTENSIONS: dict[Part, str] = {
    "prompt": "prompt.txt",
    "tokens": "tokens.tsv",
    "media": "media.json",
    "template": "template.jinja",
    "request": "request.json",
    "answer": "answer.json",
}
PARTS = tuple(_EXTENSIONS)
_SHA_SHOWN = 16


class PromptReport(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, its answer and how they were generated. Independent of engine and conversation."""

    title: str
    """`exchange 2`, `raw prompt`."""
    prompt: PromptReady | None = None
    prompt_text: str = ""
    """The prompt's text, for a stored answer without tokens."""
    made_here: str = ""
    """The prompt made from the model family's TOML record, if the engine reports none. The engine's may differ."""
    answer: str = ""
    answer_ids: tuple[int, ...] = ()
    vocabulary: Vocabulary = msgspec.field(default_factory=dict)
    logprobs: tuple[TokenLogprob, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    """The attachments, in the order of their placeholders."""
    used: Sampling | None = None
    """The sampling that the engine used, with all defaults filled in; None: not recorded, or no answer yet."""
    request: GenerateRequest | None = None
    info: EngineInfo | None = None
    recipe: GenerationRecord | None = None
    """How a stored answer was generated, if `request` and `info` are unknown."""
    model_name: str = ""
    """The model's name, if that is all that is known of it."""

    @classmethod
    def of_answer(
        cls,
        title: str,
        answer: Answer,
        *,
        request: GenerateRequest | None = None,
        info: EngineInfo | None = None,
        recipe: GenerationRecord | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> PromptReport:
        """Return the report of an answer. `attachments`: the attachments of the prompt, for an answer without
        `request`."""
        inspected = cls(
            title=title,
            prompt_text=recipe.prompt if recipe else "",
            attachments=attachments_of(request.prompt) if request else tuple(attachments),
            request=request,
            info=info,
            recipe=recipe,
        )
        return inspected.with_answer(answer)

    @property
    def text(self) -> str:
        """The whole prompt, with one placeholder per token of an image."""
        return self.prompt.prompt if self.prompt else self.prompt_text

    @property
    def sampling(self) -> Sampling | None:
        """The sampling as sent, without the engine's defaults."""
        return self.request.sampling if self.request else self.recipe.sampling if self.recipe else None

    @property
    def model(self) -> str:
        """A repository id, a folder, or the model's name; empty if unknown."""
        return self.info.spec.model if self.info else self.recipe.model if self.recipe else self.model_name

    def with_answer(self, answer: Answer) -> PromptReport:
        """Return a copy with another answer, and with the prompt of that answer if it is known."""
        return msgspec.structs.replace(
            self,
            prompt=answer.prompt or self.prompt,
            answer=answer.text,
            used=answer.used,
            answer_ids=tuple(answer.token_ids),
            vocabulary={**self.vocabulary, **answer.vocabulary},
            logprobs=tuple(answer.logprobs),
        )


class AnswerToken(msgspec.Struct, frozen=True):
    """A token of an answer. Hostile text."""

    text: str
    id: int
    label: str = ""
    """`part of “é”`; empty for whole characters."""
    logprob: float | None = None
    """In nats; None if it was not requested."""
    alternatives: tuple[tuple[str, int, float], ...] = ()
    """Text, id and log-probability of the most likely tokens, most likely first."""

    @property
    def probability(self) -> float | None:
        """0 to 1; None if it was not requested."""
        return None if self.logprob is None else math.exp(self.logprob)


def prompt_pieces(inspected: PromptReport) -> list[Piece]:
    """Return the prompt's tokens, with each image as one piece; empty if unknown. Slow for long prompts."""
    return pieces(inspected.prompt, inspected.attachments) if inspected.prompt else []


def answer_tokens(inspected: PromptReport) -> list[AnswerToken]:
    """Return the answer's tokens, with probabilities if known; empty if the tokens are unknown."""
    found = _pieces(inspected.answer_ids, inspected.vocabulary)
    logprobs: Sequence[TokenLogprob | None] = inspected.logprobs
    if len(logprobs) != len(found):
        logprobs = [None] * len(found)
    return [_answer_token(piece, known, inspected.vocabulary) for piece, known in zip(found, logprobs, strict=True)]


def part_text(inspected: PromptReport, part: Part) -> str:
    """Return one part of the inspector as text to copy or save; empty if there is none.

    Hostile text (`vlmtui.text`).
    """
    match part:
        case "prompt":
            return inspected.text
        case "tokens":
            return "".join(_token_lines(inspected))
        case "media":
            return _json(_media(inspected)) if inspected.attachments else ""
        case "template":
            return template_of(inspected)
        case "request":
            known = {"request": inspected.request, "engine": inspected.info, "recipe": inspected.recipe}
            return _json({**known, "sampling_used": inspected.used})
        case "answer":
            return _json(_answer(inspected)) if inspected.answer or inspected.answer_ids else ""


def part_file(inspected: PromptReport, part: Part) -> str:
    """Return the file name for a part: `vlmtui-exchange-2-prompt.txt`."""
    plain = "-".join("".join(char if char.isascii() and char.isalnum() else " " for char in inspected.title).split())
    return f"vlmtui-{plain.lower() or 'prompt'}-{_EXTENSIONS[part]}"


def template_of(inspected: PromptReport) -> str:
    """Return the chat template's source; empty if none was used, or if it is unknown."""
    prompt = inspected.request.prompt if inspected.request else None
    own = inspected.info.chat_template if inspected.info else ""
    if isinstance(prompt, ChatPrompt):
        has_own = bool(own) or bool(inspected.info and inspected.info.has_chat_template)
        return prompt.chat_template or own or ("" if has_own else prompt.fallback_template or "")
    return own


async def with_logprobs(engine: Engine, inspected: PromptReport) -> PromptReport:
    """Repeat the request with its seed and with log-probabilities, outside the conversation. Raises VlmtuiError."""
    if inspected.request is None:
        raise bad_input("The request of this answer was not stored.", hint="Render it again first (r).")
    require_same(engine, inspected)
    require_capability(engine.info, "logprobs")
    sampling = inspected.request.sampling
    if inspected.used is not None:
        sampling = msgspec.structs.replace(sampling, seed=inspected.used.seed)
    request = msgspec.structs.replace(inspected.request, sampling=sampling, logprobs=ALTERNATIVES, keep=False)
    answer = await whole_answer(engine, request)
    if answer.failure is not None:
        raise answer.failure.error()
    return inspected.with_answer(answer)


async def rendered_again(engine: Engine, inspected: PromptReport, request: GenerateRequest) -> PromptReport:
    """Return the report with `request` rendered now. Raises VlmtuiError as `with_logprobs` does."""
    require_same(engine, inspected)
    prompt = await render(engine, request.prompt, request.sampling)
    return msgspec.structs.replace(
        inspected,
        prompt=prompt,
        vocabulary={**inspected.vocabulary, **prompt.vocabulary},
        request=request,
        info=engine.info,
        attachments=attachments_of(request.prompt),
    )


def require_same(engine: Engine, inspected: PromptReport) -> None:
    """Raise VlmtuiError unless the loaded model is the one that answered."""
    if inspected.model and engine.spec.model != inspected.model:
        name = inspected.info.spec.name if inspected.info else inspected.model
        raise bad_input(f"{name} generated this answer, but {engine.spec.name} is loaded.", remedy=Remedy.LOAD_MODEL)


def _pieces(ids: Sequence[int], vocabulary: Vocabulary) -> list[Piece]:
    special = frozenset(token for token in ids if token in vocabulary and vocabulary[token].special)
    data = {token: found for token in ids if token in vocabulary and (found := vocabulary[token].data) is not None}
    return PromptTokens(ids=tuple(ids), texts=texts_of(ids, vocabulary), special_ids=special, raw_bytes=data).pieces()


def _answer_token(piece: Piece, known: TokenLogprob | None, vocabulary: Vocabulary) -> AnswerToken:
    if known is None:
        return AnswerToken(piece.text, piece.ids[0], piece.label)
    top = tuple(
        (_pieces((candidate.token_id,), vocabulary)[0].text, candidate.token_id, candidate.logprob)
        for candidate in known.top
    )
    return AnswerToken(piece.text, piece.ids[0], piece.label, known.logprob, top)


def _token_lines(inspected: PromptReport) -> Iterator[str]:
    prompt, vocabulary = inspected.prompt, inspected.vocabulary
    if prompt is None:
        return
    yield "index\tid\ttext\n"
    for index, token in enumerate(prompt.token_ids):
        text = vocabulary[token].text if token in vocabulary else None
        yield f"{index}\t{token}\t{msgspec.json.encode(text).decode()}\n"


def _media(inspected: PromptReport) -> list[dict[str, object]]:
    spans = inspected.prompt.media if inspected.prompt else ()
    placed = {id(item): span for span in spans if (item := attachment_of(span, inspected.attachments))}
    return [{"attachment": item, "in_prompt": placed.get(id(item))} for item in inspected.attachments]


def _answer(inspected: PromptReport) -> dict[str, object]:
    tokens = [
        {"id": token.id, "text": token.text, "logprob": token.logprob, "alternatives": token.alternatives}
        for token in answer_tokens(inspected)
    ]
    return {"text": inspected.answer, "tokens": tokens}


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def exchange_numbered(conversation: Conversation, number: str) -> Exchange:
    """Return exchange `number` of the conversation, from 1; empty: the newest. Raises VlmtuiError."""
    everything = conversation.branch.all
    if not everything:
        raise bad_input("There is no prompt to inspect yet.", hint="Send a message first.")
    wanted = len(everything) if not number else int(number) if is_number(number) else 0
    if not 1 <= wanted <= len(everything):
        raise bad_input(f"There is no message {number}.", hint=f"Messages: 1 to {len(everything)}.")
    return everything[wanted - 1]


async def report_of(conversation: Conversation, exchange: Exchange, now: EngineInfo | None) -> PromptReport:
    """Return an exchange's report. `now`: the loaded engine, for facts that are not stored. Raises VlmtuiError."""
    record, turn = exchange.record, exchange.answer_id
    if record is None and turn is not None:
        record = (await conversation.recorder.store.run(lambda store: store.turn(turn))).generation
    info = exchange.info
    if info is None and now is not None and record is not None and is_of_engine(record, now):
        info = now
    return PromptReport.of_answer(
        f"exchange {conversation.number_of(exchange)}",
        exchange.answer,
        request=exchange.request,
        info=info,
        recipe=record,
        attachments=all_attachments(_turns(conversation, exchange, record)),
    )


def made_here(known: PromptReport, family: Family | None) -> PromptReport:
    """Return the report. If the engine reported no prompt, the field `made_here` is set to the prompt that the family's
    record makes."""
    asked = known.request.prompt if known.request is not None else None
    if known.text or family is None or not isinstance(asked, ChatPrompt):
        return known
    try:
        prompt = raw_prompt(family, asked.turns, variables_of(known.request.sampling) if known.request else None)
    except VlmtuiError:
        return known
    text = prompt.text if isinstance(prompt, RawPrompt) else ""
    return msgspec.structs.replace(known, made_here=text)


def request_again(
    conversation: Conversation, exchange: Exchange, known: PromptReport, family: Family
) -> GenerateRequest:
    """Return a request that repeats the request of a stored exchange. Raises VlmtuiError."""
    record, sampling = known.recipe, known.sampling
    if record is None or sampling is None:
        raise bad_input("How this answer was generated is unknown.")
    turns = _turns(conversation, exchange, record)
    adapter = "" if record.imported else record.adapter
    return make_request(family, turns, stored_sampling(sampling), mode=record.mode, adapter=adapter)


def family_of(known: PromptReport, loaded: Model | None, registry: Registry) -> Family | None:
    """Return the family of the model that answered; None if it is neither loaded nor in the registry."""
    if loaded is not None and known.model in (loaded.spec.model, loaded.spec.name, ""):
        return loaded.family
    name = known.recipe.family if known.recipe is not None else None
    return registry.get(name) if name else None


def _turns(conversation: Conversation, exchange: Exchange, record: GenerationRecord | None) -> list[Turn]:
    """Return the turns that were sent for the exchange's answer."""
    if record is None:
        return conversation.turns_until(exchange)
    return turns_as_sent(exchange, record.system_prompt, record.attachments)


def media_facts(item: PromptMedia) -> list[tuple[str, str]]:
    """Return facts about an attachment of a prompt, as names and values. Hostile text."""
    attachment = item.attachment
    rows = [("file", attachment.name)]
    if attachment.modality == "audio":
        rows += _audio(attachment)
    else:
        rows.append(("size", f"{attachment.width} × {attachment.height} pixels"))
    if attachment.modality == "video":
        rows += _frames(attachment)
    if item.resized:
        width, height = item.resized
        same = (width, height) == (attachment.width, attachment.height)
        rows.append(("resized to", f"{width} × {height} pixels" + (" (as it was)" if same else "")))
    for span in item.spans:
        if span.grid:
            rows.append(("grid", " × ".join(map(str, span.grid)) + f" = {math.prod(span.grid):,} patches or tiles"))
        separators = f" ({span.length:,} with separators)" if span.length != span.tokens else ""
        last = span.offset + span.length - 1
        rows.append(("tokens", f"{span.tokens:,}{separators}, at {span.offset:,} to {last:,} of the prompt"))
        rows += [(name, f"shape ({', '.join(map(str, shape))})") for name, shape in span.tensors.items()]
    if not item.spans:
        rows.append(("tokens", "unknown" if item.tokens is None else f"{item.tokens:,}"))
    rows += [("format", attachment.format), ("SHA-256", f"{attachment.sha256[:_SHA_SHOWN]}…")]
    return [*rows, *(("note", note) for note in attachment.notes)]


def _audio(attachment: Attachment) -> list[tuple[str, str]]:
    rows = [("length", clock(attachment.duration_s or 0.0))]
    if attachment.sample_rate is not None:
        rows.append(("rate", f"{attachment.sample_rate:,} samples a second"))
    if attachment.channels is not None:
        rows.append(("channels", f"{attachment.channels}"))
    return rows


def _frames(attachment: Attachment) -> list[tuple[str, str]]:
    rows = [] if attachment.duration_s is None else [("length", clock(attachment.duration_s))]
    if (sampling := attachment.sampling) is not None:
        rows.append(("frames", f"{sampling.num_frames}" if sampling.fps is None else f"{sampling.fps:g} a second"))
    return rows
