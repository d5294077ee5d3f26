"""The difference of two answers, word by word, also while they grow, and counts of equal ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import msgspec

from vlmtui.inspection.sequence_diff import DiffBlock, Operation, common_start, diff_blocks
from vlmtui.text import one_line

_CJK = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORDS = re.compile(rf"\s+|[{_CJK}]|[^\W{_CJK}]+|[^\w\s]")


class AnswerSpan(msgspec.Struct, frozen=True):
    """A text that both answers share, or two texts at the same place that differ."""

    operation: Operation
    left: str
    right: str


class AnswerDiff(msgspec.Struct, frozen=True):
    """The difference of two answers."""

    spans: tuple[AnswerSpan, ...]
    """The spans in order: all left texts joined are the left answer, all right texts joined the right answer."""
    identical: bool
    """True if the texts are equal. The tokens may still differ: then `first_divergence` is not None."""
    first_difference: int | None
    """Offset in characters of the first differing word, in both answers; None when the texts are the same."""
    first_divergence: int | None
    """Index of the first differing token of both answers; None when the ids are equal or not given."""


def answer_diff(
    left: str,
    right: str,
    left_ids: Sequence[int] | None = None,
    right_ids: Sequence[int] | None = None,
) -> AnswerDiff:
    """Compare two answers by words, white space included, and by their token ids where both are given.

    Chinese and Japanese are compared by characters.
    """
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
    """Split into words, marks and runs of white space; joined they are `text`."""
    return _WORDS.findall(text)


def _first_divergence(left: Sequence[int] | None, right: Sequence[int] | None) -> int | None:
    if left is None or right is None or tuple(left) == tuple(right):
        return None
    return common_start(left, right)


class DifferingSpan(msgspec.Struct, frozen=True):
    """Characters `start:end` of an answer, which the other answer does not have there."""

    start: int
    end: int


def differing_spans(
    left: str, right: str, *, left_grows: bool, right_grows: bool
) -> tuple[tuple[DifferingSpan, ...], tuple[DifferingSpan, ...]]:
    """Return the differing spans of each side. While a side grows, its last word, which may be incomplete, and the
    other side's text beyond its end do not count as different. Slow for thousands of words."""
    words = _words(left, left_grows), _words(right, right_grows)
    blocks = diff_blocks(*words)
    if blocks and blocks[-1].operation != "equal":
        blocks = [*blocks[:-1], *_without_rest(blocks[-1], (left_grows, right_grows))]
    return tuple(_differing(blocks, words[0], 0)), tuple(_differing(blocks, words[1], 1))


def _words(text: str, grows: bool) -> list[str]:
    words = words_of(text)
    return words[:-1] if grows else words


def _differing(blocks: Sequence[DiffBlock], words: Sequence[str], side: int) -> Iterator[DifferingSpan]:
    starts = [0, *accumulate(map(len, words))]
    for block in blocks:
        first, last = (block.left_start, block.left_end) if side == 0 else (block.right_start, block.right_end)
        if block.operation != "equal" and first < last:
            yield DifferingSpan(starts[first], starts[last])


def _without_rest(block: DiffBlock, grows: tuple[bool, bool]) -> Iterator[DiffBlock]:
    """The last block without the words to which the other, growing side has not come yet."""
    left, right = block.left_end - block.left_start, block.right_end - block.right_start
    most_left = right if grows[1] else left
    most_right = left if grows[0] else right
    left_end, right_end = block.left_start + min(left, most_left), block.right_start + min(right, most_right)
    if left_end > block.left_start or right_end > block.right_start:
        yield DiffBlock("changed", block.left_start, left_end, block.right_start, right_end)


_QUOTE_MAX = 48


def tally(answers: Iterable[str]) -> list[tuple[str, int]]:
    """Return the different answers with their counts, the most frequent first; surrounding space is ignored."""
    return Counter(answer.strip() for answer in answers).most_common()


def tally_text(answers: Iterable[str]) -> str:
    """Return `3 × “a red circle” · 1 × “a blue circle”`; empty for fewer than two answers. Safe to show."""
    found = tally(answers)
    total = sum(count for _, count in found)
    if total < 2:
        return ""
    if len(found) == 1:
        return "Both answers are equal." if total == 2 else f"All {total} answers are equal."
    if len(found) == total:
        return f"{total} different answers."
    return " · ".join(f"{count} × “{_quoted(answer)}”" for answer, count in found)


def _quoted(answer: str) -> str:
    line = one_line(answer)
    return line if len(line) <= _QUOTE_MAX else f"{line[: _QUOTE_MAX - 1]}…"
