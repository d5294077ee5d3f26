"""A document: blocks one below the other, laid out as lines of the same width. Independent of widgets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import is_
from typing import NamedTuple

from vlmtui.ui.document.lines import Line, Lines

_CHUNK = 1000
"""Lines that are compared by identity at a time, which is fast: most are the same objects."""


class Block(ABC):
    """A part of a document: a message, an answer, a line of a log."""

    edge = ""
    """The style of the bar at the block's left edge; empty: no bar."""
    margin = 0
    """The number of blank lines above the block. The bar does not cover them."""
    is_behind = False
    """True if `lay_out` has more of a long text to do in its next call."""

    def __init__(self) -> None:
        self.lines: Lines = []
        self.width: int | None = None
        """The width of `lines` in cells; None before the first layout."""

    @abstractmethod
    def lay_out(self, width: int) -> Lines:
        """Lay out the block, and return its lines, each at most `width` cells wide. Unchanged lines of a long block
        must be the same objects as before."""

    def fit(self, width: int) -> None:
        self.lines, self.width = self.lay_out(width), width

    def may_have(self, words: str) -> bool:
        """Return whether the block may show `words` (lower case). A search lays such blocks out before others."""
        return True

    def clicked(self, number: int, column: int) -> object:
        """Return what is shown at this column of a line, if a click there has a meaning, or else None."""
        return None


class Place(NamedTuple):
    """A line of a document, as a block and an index."""

    block: Block
    number: int
    """The line's index in its block; negative in the block's margin."""


class Change(NamedTuple):
    """What a new layout of a block changed in the document."""

    first: int
    """The first line that looks different."""
    before: int
    """The number of lines before, with the margin."""
    now: int
    """The number of lines now, with the margin."""


class Document:
    """A list of blocks, and the number of the line at which each block begins."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._starts: list[int] = [0]
        """The line where each block's margin begins; the last entry is the number of lines of the document."""
        self.width = 0
        """Width of the blocks in cells; 0 if it is not known yet."""

    @property
    def blocks(self) -> Sequence[Block]:
        return self._blocks

    @property
    def height(self) -> int:
        """The number of lines."""
        return self._starts[-1]

    def insert(self, blocks: Sequence[Block], at: int) -> None:
        """Insert blocks at an index. The caller lays them out."""
        self._blocks[at:at] = blocks
        self._count_from(at)

    def remove(self, blocks: Sequence[Block]) -> None:
        gone = set(map(id, blocks))
        first = next((number for number, one in enumerate(self._blocks) if id(one) in gone), None)
        if first is not None:
            self._blocks[first:] = [one for one in self._blocks[first:] if id(one) not in gone]
            self._count_from(first)

    def clear(self) -> None:
        self._blocks, self._starts = [], [0]

    def index(self, block: Block) -> int:
        """Return the index of a block. Raises ValueError."""
        return len(self._blocks) - 1 if self._blocks and block is self._blocks[-1] else self._blocks.index(block)

    def start(self, block: Block) -> int:
        """Return the first line of a block, below its margin."""
        at = self.index(block)
        return self._starts[at] + self._margin(at)

    def starts(self) -> Iterator[tuple[Block, int]]:
        """Yield all blocks, each with its first line below its margin."""
        return ((block, self._starts[at] + self._margin(at)) for at, block in enumerate(self._blocks))

    def end(self, block: Block) -> int:
        """Return the line after a block."""
        return self._starts[self.index(block) + 1]

    def place(self, line: int) -> Place | None:
        """Return the place of a line; None outside of the document."""
        if not 0 <= line < self.height:
            return None
        at = bisect_right(self._starts, line) - 1
        return Place(self._blocks[at], line - self._starts[at] - self._margin(at))

    def line(self, at: int) -> Line | None:
        """Return a line of the document; None in a margin and outside of the document."""
        place = self.place(at)
        if place is None or not 0 <= place.number < len(place.block.lines):
            return None
        return place.block.lines[place.number]

    def between(self, first: int, last: int) -> list[Block]:
        """Return the blocks with a line from `first` to `last` (exclusive), not counting margins."""
        if first >= last or not self._blocks:
            return []
        begin, end = max(0, bisect_right(self._starts, first) - 1), bisect_right(self._starts, last - 1)
        end = min(end, len(self._blocks))
        if end > begin and self._starts[end - 1] + self._margin(end - 1) >= last:
            end -= 1
        return self._blocks[begin:end]

    def lay_out(self, block: Block) -> Change:
        """Lay out a block again, and move the blocks below it."""
        before, had, at = block.lines, _height(block), self.index(block)
        block.fit(self.width)
        same = _same(before, block.lines)
        grown = len(block.lines) - had
        if grown:
            for number in range(at + 1, len(self._starts)):
                self._starts[number] += grown
        margin = self._margin(at)
        return Change(self._starts[at] + margin + same, margin + had, margin + len(block.lines))

    def stale(self, around: int) -> Iterator[Block]:
        """Yield the blocks that need a new layout, beginning with those nearest to the line `around`."""
        middle = min(max(0, bisect_right(self._starts, around) - 1), len(self._blocks))
        for distance in range(max(middle, len(self._blocks) - middle) + 1):
            for at in {middle + distance, middle - distance}:
                if 0 <= at < len(self._blocks) and self.is_stale(self._blocks[at]):
                    yield self._blocks[at]

    def is_stale(self, block: Block) -> bool:
        return block.width != self.width or block.is_behind

    def _margin(self, at: int) -> int:
        """Return a block's margin; the first block has none."""
        return self._blocks[at].margin if at else 0

    def _count_from(self, first: int) -> None:
        del self._starts[first + 1 :]
        for at in range(first, len(self._blocks)):
            self._starts.append(self._starts[-1] + self._margin(at) + _height(self._blocks[at]))


def _height(block: Block) -> int:
    """Return how many lines a block takes; 1 before its first layout."""
    return 1 if block.width is None else len(block.lines)


def _same(before: Lines, now: Lines) -> int:
    """Return how many lines at the beginning look the same in `before` and `now`. These lines of `now` are replaced by
    the objects in `before`."""
    least = min(len(before), len(now))
    first = 0
    while first < least and all(map(is_, before[first : first + _CHUNK], now[first : first + _CHUNK])):
        first += _CHUNK
    for number in range(first, least):
        if before[number] is not now[number]:
            if not before[number].same_as(now[number]):
                return number
            if before[number].joins == now[number].joins and before[number].indent == now[number].indent:
                now[number] = before[number]
    return least
