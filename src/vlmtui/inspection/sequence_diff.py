"""Diff two sequences: fast for long sequences that are almost equal, and with limited work for others."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Literal

import msgspec

Operation = Literal["equal", "removed", "added", "changed"]

_WORK = 400_000
"""The most pairs of equal items for difflib. With more pairs, items that occur once on each side divide the work."""


class DiffBlock(msgspec.Struct, frozen=True):
    """The items `left_start:left_end` correspond to `right_start:right_end` of the other side."""

    operation: Operation
    left_start: int
    left_end: int
    right_start: int
    right_end: int


def diff_blocks(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[DiffBlock]:
    """Return equal and differing blocks in order, without gaps. Adjacent blocks have different operations."""
    matches = _matched(left, right, (0, len(left), 0, len(right)))
    return list(_joined([(0, 0, 0), *matches, (len(left), len(right), 0)]))


def common_start(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    shorter = min(len(left), len(right))
    return next((number for number in range(shorter) if left[number] != right[number]), shorter)


_Match = tuple[int, int, int]
_Window = tuple[int, int, int, int]


def _matched(left: Sequence[Hashable], right: Sequence[Hashable], window: _Window) -> list[_Match]:
    """Return the equal runs (left index, right index, length) in a window. Equal ends of the window are matched
    first."""
    left_start, left_end, right_start, right_end = window
    here, there = left[left_start:left_end], right[right_start:right_end]
    head = common_start(here, there)
    tail = common_start(here[head:][::-1], there[head:][::-1])
    ends = [(left_start, right_start, head), (left_end - tail, right_end - tail, tail)]
    middle = (left_start + head, left_end - tail, right_start + head, right_end - tail)
    inside = _inside(left, right, middle)
    return [match for match in (ends[0], *inside, ends[1]) if match[2]]


def _inside(left: Sequence[Hashable], right: Sequence[Hashable], window: _Window) -> list[_Match]:
    left_start, left_end, right_start, right_end = window
    here, there = left[left_start:left_end], right[right_start:right_end]
    counts = (Counter(here), Counter(there))
    if sum(count * counts[1][item] for item, count in counts[0].items()) <= _WORK:
        blocks = difflib.SequenceMatcher(None, here, there, autojunk=False).get_matching_blocks()
        return [(left_start + block.a, right_start + block.b, block.size) for block in blocks]
    anchors = [(left_start + one, right_start + other) for one, other in _anchors(here, there, counts)]
    if not anchors:
        return []
    found: list[_Match] = []
    before = (left_start, right_start)
    for one, other in [*anchors, (left_end, right_end)]:
        found += _matched(left, right, (before[0], one, before[1], other))
        found.append((one, other, int(one < left_end)))
        before = (one + 1, other + 1)
    return [match for match in found if match[2]]


def _anchors(
    left: Sequence[Hashable], right: Sequence[Hashable], counts: tuple[Counter[Hashable], Counter[Hashable]]
) -> list[tuple[int, int]]:
    """Return index pairs of items that occur once on each side: the longest sequence that increases on both sides."""
    places = {item: number for number, item in enumerate(right) if counts[1][item] == 1}
    pairs = [(number, places[item]) for number, item in enumerate(left) if counts[0][item] == 1 and item in places]
    tails: list[int] = []
    last: list[int] = []
    before: list[int | None] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(tails, place)
        before.append(last[length - 1] if length else None)
        if length == len(tails):
            tails.append(place)
            last.append(index)
        else:
            tails[length], last[length] = place, index
    rising: list[tuple[int, int]] = []
    step = last[-1] if last else None
    while step is not None:
        rising.append(pairs[step])
        step = before[step]
    return rising[::-1]


def _joined(matches: Sequence[_Match]) -> Iterator[DiffBlock]:
    """Merge adjacent matches, and yield the blocks: matches and the differences between them."""
    merged: list[list[int]] = []
    for left, right, size in matches:
        if merged and merged[-1][0] + merged[-1][2] == left and merged[-1][1] + merged[-1][2] == right:
            merged[-1][2] += size
        else:
            merged.append([left, right, size])
    done = (0, 0)
    for left, right, size in merged:
        if (left, right) != done:
            operation: Operation = "added" if left == done[0] else "removed" if right == done[1] else "changed"
            yield DiffBlock(operation, done[0], left, done[1], right)
        if size:
            yield DiffBlock("equal", left, left + size, right, right + size)
        done = (left + size, right + size)
