"""Finds lines of the screen that moved up or down, so that the terminal can move them itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from vlmtui.ui.terminal.row_text import CellRow, cells_changed

_COST: Final = 30
"""Bytes of a scroll with its margins."""
_CANDIDATES: Final = 2
_FEWEST: Final = 2
"""Fewest changed lines that may be a scroll."""


class LineMove(NamedTuple):
    """Lines `top` to `bottom` (inclusive) move up by `lines`; down if negative."""

    top: int
    bottom: int
    lines: int


def find_move(before: Sequence[CellRow | None], now: Sequence[CellRow], hints: Counter[int]) -> LineMove | None:
    """Return the scroll that saves most; None: none saves anything. `hints` counts how far pieces of lines moved up,
    negative: down. Lines that cost more where they are moved (those beside a panel that stays) are left out."""
    stays = [cells_changed(one, other) for one, other in zip(before, now, strict=True)]
    if len(stays) - stays.count(0) < _FEWEST:
        return None
    all_of_it, best = sum(stays), (0, LineMove(0, 0, 0))
    for lines, _ in hints.most_common(_CANDIDATES):
        if abs(lines) < len(now):
            best = max(best, _best(before, now, stays, lines))
        if best[0] * 2 > all_of_it:  # another one could not save more
            break
    return best[1] if best[0] > 0 else None


def _best(
    before: Sequence[CellRow | None], now: Sequence[CellRow], stays: Sequence[int], lines: int
) -> tuple[int, LineMove]:
    """Return the cells that the best scroll by `lines` saves, and that scroll. `stays`: cells that change in each line
    without it."""
    if lines < 0:
        saved, move = _best(before[::-1], now[::-1], stays[::-1], -lines)
        last = len(now) - 1
        return saved, LineMove(last - move.bottom, last - move.top, lines)
    height = len(now)
    moved, exposed = [0], [0]  # sums of what is saved by the lines above
    for y in range(height):
        source = before[y + lines] if y + lines < height else None
        fixed = _has_picture(before[y]) or _has_picture(now[y]) or _has_picture(source)
        here = stays[y]
        moved.append(moved[-1] + (here - cells_changed(source, now[y]) if not fixed else -height * 1000))
        exposed.append(exposed[-1] + (here - cells_changed(None, now[y]) if not fixed else -height * 1000))
    best, top, found = 0, 0, LineMove(0, 0, lines)
    for bottom in range(lines, height):
        first_exposed = bottom - lines + 1
        if moved[first_exposed - 1] < moved[top]:
            top = first_exposed - 1
        saved = moved[first_exposed] - moved[top] + exposed[bottom + 1] - exposed[first_exposed] - _COST
        if saved > best:
            best, found = saved, LineMove(top, bottom, lines)
    return best, found


def _has_picture(row: CellRow | None) -> bool:
    return row is not None and row.has_picture
