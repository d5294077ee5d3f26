"""The difference between the two sides of a comparison: prompts, answers, first differing token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from vlmtui.domain.prompt import attachments_of
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.answer_diff import AnswerDiff, answer_diff
from vlmtui.inspection.build import tokens_of
from vlmtui.inspection.prompt_diff import PromptDiff, prompt_diff
from vlmtui.inspection.replay import Side
from vlmtui.session.generation import PromptMode


class TokenAt(msgspec.Struct, frozen=True):
    """The token of an answer at a position. Hostile text."""

    text: str
    logprob: float | None = None
    top: tuple[tuple[str, float], ...] = ()
    """The most likely tokens at this position with their log-probabilities, most likely first."""


class Divergence(msgspec.Struct, frozen=True):
    """The first differing token of the two answers."""

    index: int
    left: TokenAt | None
    """None: that answer has already ended."""
    right: TokenAt | None


class Difference(msgspec.Struct, frozen=True):
    """The difference of the two sides, as far as they exist."""

    prompts: PromptDiff | None = None
    answers: AnswerDiff | None = None
    divergence: Divergence | None = None
    failed: tuple[PromptMode, ...] = ()
    """Sides without a complete answer."""
    is_stale: bool = False
    """The raw prompt changed since."""
    is_stored: bool = False
    """Whether this is an earlier comparison, read from the store."""
    problem: VlmtuiError | None = None
    """Why nothing can be compared."""


def difference_of(
    sides: Sequence[Side],
    *,
    generation_prompt: str = "",
    failed: Iterable[PromptMode] = (),
    has_answers: bool = True,
    is_stale: bool = False,
) -> Difference:
    """Compute the difference of the first two sides of a comparison. Slow for long prompts."""
    left, right = sides[:2]
    prompts = None
    if left.prompt_token_texts and right.prompt_token_texts:
        tokens = [tokens_of(side, attachments_of(side.request) if side.request else ()) for side in (left, right)]
        prompts = prompt_diff(*tokens, generation_prompt=generation_prompt)
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
