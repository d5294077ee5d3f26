"""Compare two answers word by word, and count equal answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from vlmtui.inspection.sequence_diff import Operation, common_start, diff_blocks
from vlmtui.text import cut, one_line

_CJK = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORDS = re.compile(rf"\s+|[{_CJK}]|[^\W{_CJK}]+|[^\w\s]")


class AnswerSpan(msgspec.Struct, frozen=True):
    """A text that both answers share, or two differing texts at the same place."""

    operation: Operation
    left: str
    right: str


class AnswerDiff(msgspec.Struct, frozen=True):
    spans: tuple[AnswerSpan, ...]
    """The spans in order. Joined, the left texts are the left answer, and the right texts the right answer."""
    identical: bool
    """True if the texts are equal. The token ids may still differ (`first_divergence`)."""
    first_difference: int | None
    """The offset in characters of the first differing word, the same in both answers; None if the texts are equal."""
    first_divergence: int | None
    """The index of the first differing token; None if the token ids are equal or unknown."""


def answer_diff(
    left: str,
    right: str,
    left_ids: Sequence[int] | None = None,
    right_ids: Sequence[int] | None = None,
) -> AnswerDiff:
    """Compare two answers by words and white space (Chinese and Japanese by characters), and by token ids if both
    sides have them."""
    one, other = words_of(left), words_of(right)
    spans = tuple(
        AnswerSpan(
            part.operation,
            "".join(one[part.left_start : part.left_end]),
            "".join(other[part.right_start : part.right_end]),
        )
        for part in diff_blocks(one, other)
    )
    shared = common_start(one, other)
    return AnswerDiff(
        spans=spans,
        identical=left == right,
        first_difference=None if left == right else len("".join(one[:shared])),
        first_divergence=_first_divergence(left_ids, right_ids),
    )


def words_of(text: str) -> list[str]:
    """Split into words, punctuation marks and runs of white space; joined they are `text`."""
    return _WORDS.findall(text)


def _first_divergence(left: Sequence[int] | None, right: Sequence[int] | None) -> int | None:
    if left is None or right is None or tuple(left) == tuple(right):
        return None
    return common_start(left, right)


_QUOTE_MAX = 48


def tally(answers: Iterable[str]) -> list[tuple[str, int]]:
    """Return (answer, count), the most frequent first. White space around an answer is ignored."""
    return Counter(answer.strip() for answer in answers).most_common()


def tally_text(answers: Iterable[str]) -> str:
    """Return `3 × “a red circle” · 1 × “a blue circle”`, safe to show; "" for fewer than two answers."""
    found = tally(answers)
    total = sum(count for _, count in found)
    if total < 2:
        return ""
    if len(found) == 1:
        return "Both answers are equal." if total == 2 else f"All {total} answers are equal."
    if len(found) == total:
        return f"{total} different answers."
    return " · ".join(f"{count} × “{cut(one_line(answer), _QUOTE_MAX)}”" for answer, count in found)
