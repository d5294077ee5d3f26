"""What is known of a prompt and its answer: taken apart for the inspector."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Literal

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import GenerateRequest, PromptReady, TokenLogprob, Vocabulary
from vlmtui.domain.prompt import ChatPrompt, attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import Remedy, bad_input
from vlmtui.inspection.build import pieces, texts_of
from vlmtui.inspection.prompt_diff import PromptTokens
from vlmtui.inspection.tokens import Piece, attachment_of
from vlmtui.session.generation import Answer, new_request_id, render, run_turn
from vlmtui.store.records import GenerationRecord

Part = Literal["prompt", "tokens", "media", "template", "request", "answer"]
PARTS: tuple[Part, ...] = ("prompt", "tokens", "media", "template", "request", "answer")

ALTERNATIVES = 5
"""Tokens that are asked for at each place of an answer."""
_EXTENSIONS: dict[Part, str] = {
    "prompt": "prompt.txt",
    "tokens": "tokens.tsv",
    "media": "media.json",
    "template": "template.jinja",
    "request": "request.json",
    "answer": "answer.json",
}


class PromptReport(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, its answer and what they were made with. It needs no engine and no conversation any more."""

    title: str
    """`exchange 2`, `raw prompt`."""
    prompt: PromptReady | None = None
    prompt_text: str = ""
    """The prompt where nothing more of it was kept."""
    answer: str = ""
    answer_ids: tuple[int, ...] = ()
    vocabulary: Vocabulary = msgspec.field(default_factory=dict)
    logprobs: tuple[TokenLogprob, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    """In the order of their placeholders."""
    used: Sampling | None = None
    """What the engine sampled the answer with, every value resolved; None: not recorded, or no answer yet."""
    request: GenerateRequest | None = None
    info: EngineInfo | None = None
    recipe: GenerationRecord | None = None
    """Of a stored answer: what is left where `request` and `info` are not known any more."""

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
        """What came of a request; `attachments` where the request is not known."""
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
        """The whole prompt, every token of an image as it stands."""
        return self.prompt.prompt if self.prompt else self.prompt_text

    @property
    def sampling(self) -> Sampling | None:
        """As it was sent: what was left open is not filled in."""
        return self.request.sampling if self.request else self.recipe.sampling if self.recipe else None

    @property
    def model(self) -> str:
        """A repository id or a folder; empty where it is not known."""
        return self.info.spec.model if self.info else self.recipe.model if self.recipe else ""

    def with_answer(self, answer: Answer) -> PromptReport:
        """The same with another answer to it; the prompt is the answer's own, where that has one."""
        return msgspec.structs.replace(
            self,
            prompt=answer.prompt or self.prompt,
            answer=answer.text,
            used=answer.used,
            answer_ids=tuple(answer.token_ids),
            vocabulary={**self.vocabulary, **answer.vocabulary},
            logprobs=tuple(answer.logprobs),
        )

    def with_prompt(self, prompt: PromptReady, request: GenerateRequest, info: EngineInfo | None) -> PromptReport:
        """The same with a prompt that was rendered again."""
        return msgspec.structs.replace(
            self,
            prompt=prompt,
            vocabulary={**self.vocabulary, **prompt.vocabulary},
            request=request,
            info=info,
            attachments=attachments_of(request.prompt),
        )


class AnswerToken(msgspec.Struct, frozen=True):
    """A token of an answer; texts are hostile."""

    text: str
    id: int
    label: str = ""
    """`part of “é”`; empty for whole characters."""
    probability: float | None = None
    """0 to 1; None where it was not asked for."""
    alternatives: tuple[tuple[str, int, float], ...] = ()
    """Text, id and probability of the likeliest tokens at its place, the likeliest first."""


def prompt_pieces(inspected: PromptReport) -> list[Piece]:
    """The prompt's tokens, every image as one piece; none where its tokens are not known. Slow for long prompts."""
    return pieces(inspected.prompt, inspected.attachments) if inspected.prompt else []


def answer_tokens(inspected: PromptReport) -> list[AnswerToken]:
    """The answer's tokens with what is known of their probabilities; none where they were not told."""
    found = _pieces(inspected.answer_ids, inspected.vocabulary)
    logprobs: Sequence[TokenLogprob | None] = inspected.logprobs
    if len(logprobs) != len(found):
        logprobs = [None] * len(found)
    return [_answer_token(piece, known, inspected.vocabulary) for piece, known in zip(found, logprobs, strict=True)]


def part_text(inspected: PromptReport, part: Part) -> str:
    """One part of the inspector as a text to be copied or saved, exactly as it is: hostile; empty where there is
    nothing of it. JSON and tab-separated values escape what is no plain character."""
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
    """The name a part is saved by: `vlmtui-exchange-2-prompt.txt`."""
    plain = "-".join("".join(char if char.isascii() and char.isalnum() else " " for char in inspected.title).split())
    return f"vlmtui-{plain.lower() or 'prompt'}-{_EXTENSIONS[part]}"


def template_of(inspected: PromptReport) -> str:
    """The source of the chat template that wrote the prompt; empty where none did, or where it is not known."""
    prompt = inspected.request.prompt if inspected.request else None
    own = inspected.info.chat_template if inspected.info else ""
    if isinstance(prompt, ChatPrompt):
        has_own = bool(own) or bool(inspected.info and inspected.info.has_chat_template)
        return prompt.chat_template or own or ("" if has_own else prompt.fallback_template or "")
    return own


async def with_logprobs(engine: Engine, inspected: PromptReport) -> PromptReport:
    """The same request once more, with the seed that was used and the probabilities told; the conversation does not
    know of it.

    Raises VlmtuiError where the request is not known, another model is loaded, the engine does not tell them, or the
    request fails.
    """
    if inspected.request is None:
        raise bad_input("The request of this answer was not kept.", hint="Render it again first (r).")
    require_same(engine, inspected)
    require_capability(engine.info, "logprobs")
    sampling = inspected.request.sampling
    if inspected.used is not None:
        sampling = msgspec.structs.replace(sampling, seed=inspected.used.seed)
    request = msgspec.structs.replace(
        inspected.request,
        sampling=sampling,
        request_id=new_request_id(),
        logprobs=ALTERNATIVES,
        keep=False,
        only_render=False,
    )
    answer = Answer(request.request_id)
    async with aclosing(run_turn(engine, request, answer)) as events:
        async for _ in events:
            pass
    if answer.failure is not None:
        raise answer.failure.error()
    return inspected.with_answer(answer)


async def rendered_again(engine: Engine, inspected: PromptReport, request: GenerateRequest) -> PromptReport:
    """What `request` makes of the prompt now. Raises VlmtuiError as `with_logprobs` does."""
    require_same(engine, inspected)
    prompt = await render(engine, request.prompt)
    return inspected.with_prompt(prompt, request, engine.info)


def require_same(engine: Engine, inspected: PromptReport) -> None:
    """Raises VlmtuiError when another model is loaded than the one that answered."""
    if inspected.model and engine.spec.model != inspected.model:
        name = inspected.info.spec.name if inspected.info else inspected.model
        raise bad_input(f"{name} gave this answer, but {engine.spec.name} is loaded.", remedy=Remedy.PICK_MODEL)


def _pieces(ids: Sequence[int], vocabulary: Vocabulary) -> list[Piece]:
    """Tokens that are in no prompt."""
    special = frozenset(token for token in ids if token in vocabulary and vocabulary[token].special)
    data = {token: found for token in ids if token in vocabulary and (found := vocabulary[token].data) is not None}
    return PromptTokens(ids=tuple(ids), texts=texts_of(ids, vocabulary), special_ids=special, raw_bytes=data).pieces()


def _answer_token(piece: Piece, known: TokenLogprob | None, vocabulary: Vocabulary) -> AnswerToken:
    if known is None:
        return AnswerToken(piece.text, piece.ids[0], piece.label)
    top = tuple(
        (_pieces((candidate.token_id,), vocabulary)[0].text, candidate.token_id, math.exp(candidate.logprob))
        for candidate in known.top
    )
    return AnswerToken(piece.text, piece.ids[0], piece.label, math.exp(known.logprob), top)


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
        {"id": token.id, "text": token.text, "probability": token.probability, "alternatives": token.alternatives}
        for token in answer_tokens(inspected)
    ]
    return {"text": inspected.answer, "tokens": tokens}


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
