"""The rows of the left prompt: equal turns folded, the others beside the turns on the right. No widgets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec
from textual.content import Content

from vlmtui.inspection.prompt_turns import PromptTurn, TurnPair
from vlmtui.ui.compare.compare_pane import runs_content
from vlmtui.ui.document.blocks import row_lengths
from vlmtui.ui.widgets.clicks import clickable

_FILLER = Content.styled("┊", "$faint")
_FILL_MAX = 2000
"""Rows that are left empty at one place, at most: a turn further down begins where it can."""


class TurnBlock(msgspec.Struct, frozen=True):
    """A turn of the left prompt, or the line that stands for folded ones."""

    lines: tuple[Content, ...]
    differs: bool = False
    row: int | None = None
    """The row of the right prompt to stand beside; None: any."""
    is_fold: bool = False


class TurnRows(msgspec.Struct, frozen=True):
    """All lines of the left prompt."""

    lines: list[Content]
    barred: frozenset[int]
    """Numbers of the lines of differing turns."""
    beside: list[tuple[int, int]]
    """Rows of the left prompt with the row of the right prompt that each stands beside, both ascending."""
    height: int
    """All rows."""


def newest_turn(pairs: Sequence[TurnPair]) -> int:
    """The pair of the newest user turn, which is never folded; 0 without one."""
    return max((at for at, pair in enumerate(pairs) if pair.left and pair.left.role == "user"), default=0)


def fold_line(pairs: Sequence[TurnPair], last: int, key: str) -> Content:
    """The line that stands for equal turns. `last` is the number of the last one, `key` the key that unfolds them."""
    first = last - len(pairs) + 1
    role = pairs[0].left.role if pairs[0].left else ""
    which = f"turns {first:,}–{last:,}" if first < last else f"turn {last:,} · {role}"
    pictures = sum(len(pair.left.pictures) for pair in pairs if pair.left)
    told = f" · {pictures:,} picture{'' if pictures == 1 else 's'}" if pictures else ""
    said = f"{which} · equal{told} · {key} unfolds"
    return Content.assemble(clickable("▸ ", "$accent", fold=1), clickable(said, "$muted", fold=1))


def lines_of_turn(turn: PromptTurn, *, is_last: bool) -> tuple[Content, ...]:
    """The lines of a turn, without the empty one after the line break that leads to the next turn."""
    lines = runs_content(turn.runs).split("\n", allow_blank=True)
    return tuple(lines[:-1] if not is_last and len(lines) > 1 and not lines[-1] else lines)


def turn_rows(blocks: Sequence[TurnBlock], width: int) -> TurnRows:
    """Return the lines, with rows left empty so that a turn begins beside its row where those before it let it.
    `width` is that of a row in cells."""
    lines: list[Content] = []
    barred: set[int] = set()
    beside = [(0, 0)]
    row = 0
    for block in blocks:
        if block.row is not None:
            gap = min(max(block.row - row, 0), _FILL_MAX)
            lines += [_FILLER] * gap
            row += gap
            if block.row >= beside[-1][1]:
                beside.append((row, block.row))
        if block.differs:
            barred.update(range(len(lines), len(lines) + len(block.lines)))
        lines += block.lines
        row += sum(len(row_lengths(line, width)) for line in block.lines)
    return TurnRows(lines, frozenset(barred), beside, row)


def right_of(beside: Sequence[tuple[int, int]], left: float) -> float:
    """Return the row of the right prompt beside this row of the left one."""
    return _across([(one, other) for one, other in beside], left)


def left_of(beside: Sequence[tuple[int, int]], right: float) -> float:
    """Return the row of the left prompt beside this row of the right one."""
    return _across([(other, one) for one, other in beside], right)


def _across(pairs: Sequence[tuple[int, int]], here: float) -> float:
    """Rows follow those of the turn that they are in, up to the next turn."""
    at = max(bisect_right([row for row, _ in pairs], here) - 1, 0)
    there = pairs[at][1] + here - pairs[at][0]
    return min(there, pairs[at + 1][1]) if at + 1 < len(pairs) else there
