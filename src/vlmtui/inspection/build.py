"""Turn an engine's events into prompts to compare, and into the comparison document (`replay.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from vlmtui.domain.conversation import Attachment, Prompt, attachments_of, with_attachments
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import (
    Cancelled,
    Failed,
    Finished,
    PromptReady,
    Timings,
    TokenLogprob,
    Vocabulary,
    usage_of,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.inspection.answer_diff import answer_diff
from vlmtui.inspection.prompt_diff import PromptTokens, prompt_diff
from vlmtui.inspection.replay import (
    CandidateRecord,
    Comparison,
    DiffSummary,
    EngineFingerprint,
    LogprobRecord,
    Side,
    media_record,
    summary_of,
)
from vlmtui.inspection.tokens import Piece

Mode = Literal["chat", "raw"]
Outcome = Finished | Failed | Cancelled
_NAMES = {"chat": "the chat template", "raw": "the raw prompt"}


def prompt_tokens(prompt: PromptReady, attachments: Sequence[Attachment], *, name: str = "") -> PromptTokens:
    """Return a rendered prompt in the form that `prompt_diff` compares.

    `attachments`: in the order of their placeholders. `name`: the prompt's name in findings, such as `the chat
    template`.
    """
    return PromptTokens(
        ids=prompt.token_ids,
        texts=texts_of(prompt.token_ids, prompt.vocabulary),
        special_ids=frozenset(token for token, entry in prompt.vocabulary.items() if entry.special),
        media=prompt.media,
        attachments=tuple(attachments),
        name=name,
        raw_bytes=_bytes_of(prompt.vocabulary),
    )


def pieces(prompt: PromptReady, attachments: Sequence[Attachment]) -> list[Piece]:
    """Return the prompt's pieces in order: a piece for each token, and a single piece for an image or video."""
    return prompt_tokens(prompt, attachments).pieces()


def texts_of(token_ids: Iterable[int], vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return the tokens' texts. A token that is not in the vocabulary becomes its id, `⟨1234⟩`. Hostile text."""
    return tuple(vocabulary[token].text if token in vocabulary else f"⟨{token}⟩" for token in token_ids)


def side_of(
    mode: Mode,
    prompt: PromptReady | None,
    *,
    text: str,
    token_ids: Sequence[int],
    vocabulary: Vocabulary,
    logprobs: Sequence[TokenLogprob] | None,
    outcome: Outcome | None,
    label: str = "",
    request: Prompt | None = None,
) -> Side:
    """Return one side of a comparison.

    `text`, `token_ids` and `logprobs` belong to the answer; `vocabulary` covers prompt and answer. `prompt`: None if
    the request failed before the prompt was rendered. `request`: stored so that a reader of the document can run this
    side again.
    """
    known = {**(prompt.vocabulary if prompt else {}), **vocabulary}
    ids = prompt.token_ids if prompt else ()
    used = {*ids, *token_ids}
    return Side(
        mode=mode,
        label=label,
        used=prompt.used if prompt else None,
        request=without_paths(request) if request is not None else None,
        prompt=prompt.prompt if prompt else "",
        prompt_token_ids=ids,
        prompt_token_texts=texts_of(ids, known),
        special_token_ids=tuple(sorted(token for token in used if token in known and known[token].special)),
        token_bytes={token: data for token, data in sorted(_bytes_of(known).items()) if token in used},
        media=prompt.media if prompt else (),
        answer=text,
        answer_token_ids=tuple(token_ids),
        answer_token_texts=texts_of(token_ids, known),
        usage=outcome.usage if isinstance(outcome, Finished | Cancelled) else usage_of(prompt, len(token_ids)),
        timings=outcome.timings if isinstance(outcome, Finished | Cancelled) else Timings(),
        finish_reason=outcome.finish_reason if isinstance(outcome, Finished) else None,
        stop=outcome.stop if isinstance(outcome, Finished) else None,
        failure=_failure(outcome),
        logprobs=tuple(_logprob(one, known) for one in logprobs) if logprobs else None,
    )


def comparison_of(
    info: EngineInfo,
    sampling: Sampling,
    attachments: Sequence[Attachment],
    sides: Sequence[Side],
) -> Comparison:
    return Comparison(
        **msgspec.structs.asdict(fingerprint_of(info)),
        sampling=sampling,
        attachments=tuple(map(media_record, attachments)),
        sides=tuple(sides),
        difference=_difference(sides, attachments),
    )


def fingerprint_of(info: EngineInfo) -> EngineFingerprint:
    return EngineFingerprint(
        model=info.spec.name,
        revision=info.revision,
        backend=info.spec.backend,
        engine=info.engine,
        engine_version=info.engine_version,
        device=info.device,
        dtype=info.dtype,
        engine_args=info.engine_args,
    )


def tokens_of(side: Side, attachments: Sequence[Attachment]) -> PromptTokens:
    """Return the prompt of one side of a document, in the form that `prompt_diff` compares.

    If the side has no token texts, `prompt_diff` raises ValueError. `attachments`: the comparison's, used if the side
    has no request.
    """
    own = attachments_of(side.request) if side.request is not None else attachments
    return PromptTokens(
        ids=side.prompt_token_ids,
        texts=side.prompt_token_texts,
        special_ids=frozenset(side.special_token_ids),
        media=side.media,
        attachments=tuple(own),
        name=side.label or _NAMES[side.mode],
        raw_bytes=side.token_bytes,
    )


def without_paths(prompt: Prompt) -> Prompt:
    """Return the prompt without the paths of its files, so that it can be shared. `with_paths` puts paths back."""
    return with_attachments(
        prompt,
        lambda item: msgspec.structs.replace(
            item, path="", source="", name=item.name.encode("utf-8", "replace").decode()
        ),
    )


def with_paths(prompt: Prompt, paths: Mapping[str, str]) -> Prompt:
    """Return the prompt with the paths of its files. `paths` are by SHA-256; raises KeyError if one is missing."""
    return with_attachments(prompt, lambda item: msgspec.structs.replace(item, path=paths[item.sha256]))


def _bytes_of(vocabulary: Vocabulary) -> dict[int, bytes]:
    return {token: entry.data for token, entry in vocabulary.items() if entry.data is not None}


def _failure(outcome: Outcome | None) -> str:
    match outcome:
        case Failed(failure=failure):
            return failure.message
        case Cancelled():
            return "Stopped before it was complete."
        case None:
            return "Not complete yet."
        case Finished():
            return ""


def _logprob(one: TokenLogprob, vocabulary: Vocabulary) -> LogprobRecord:
    def text(token: int) -> str:
        return texts_of((token,), vocabulary)[0]

    top = tuple(
        CandidateRecord(token_id=other.token_id, text=text(other.token_id), logprob=other.logprob) for other in one.top
    )
    return LogprobRecord(token_id=one.token_id, text=text(one.token_id), logprob=one.logprob, top=top)


def _difference(sides: Sequence[Side], attachments: Sequence[Attachment]) -> DiffSummary | None:
    if len(sides) < 2 or not all(side.prompt_token_ids for side in sides[:2]):
        return None
    one, other = sides[:2]
    left, right = (tokens_of(side, attachments) for side in (one, other))
    if left.name == right.name:
        left, right = (msgspec.structs.replace(tokens, name="") for tokens in (left, right))
    prompts = prompt_diff(left, right)
    answers = answer_diff(one.answer, other.answer, one.answer_token_ids, other.answer_token_ids)
    return summary_of(prompts, answers)
