"""What is written to a terminal so that it shows other cells: cursor moves, pens, text."""

from __future__ import annotations

from operator import is_not, ne
from typing import Final

from vlmtui.ui.terminal.cells import Chars, Pens, is_doubtful
from vlmtui.ui.terminal.pens import PLAIN, Pen, change_of

_GAP: Final = 4
"""Most unchanged cells that are written again rather than passed over: a move takes as many bytes."""
_ERASED: Final = 12
"""Fewest blanks inside a line that are erased and passed over rather than written."""
_ERASED_AT_END: Final = 4
"""Fewest blanks at the end of a line that are erased."""


class CellRow:
    """A line of the screen."""

    __slots__ = ("chars", "has_picture", "is_risky", "pens")

    def __init__(self, chars: Chars, pens: Pens, *, is_risky: bool = False, has_picture: bool = False) -> None:
        self.chars = chars
        self.pens = pens
        self.is_risky = is_risky
        """Whether terminals may count its cells differently: it is written whole or not at all."""
        self.has_picture = has_picture
        """Whether the terminal draws a picture there."""

    def same_as(self, other: CellRow) -> bool:
        return self.chars == other.chars and self.pens == other.pens


def cells_changed(before: CellRow | None, now: CellRow) -> int:
    """Return how many cells differ; `before` None: unknown cells, of which those with text count."""
    if before is None:
        return len("".join(now.chars).rstrip())
    if before.same_as(now):
        return 0
    different = sum(map(ne, before.chars, now.chars)) if before.chars != now.chars else 0
    return max(different, sum(map(is_not, before.pens, now.pens)) if before.pens != now.pens else 0)


class Writer:
    """Collects text for the terminal. Knows where the cursor is and which pen is taken; unknown at the start."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._at: tuple[int, int] | None = None
        """Column and line of the cursor."""
        self._pen = PLAIN
        self._written: dict[int, list[tuple[int, int]]] = {}
        """Where text was written, by line: first column, and the column after the last."""

    def has_written(self, y: int, x: int, end: int) -> bool:
        """Return whether something was written between two columns of a line."""
        return any(start < end and x < stop for start, stop in self._written.get(y, ()))

    def text(self) -> str:
        """Return everything, with the pen put back."""
        return "".join([*self._parts, change_of(self._pen, PLAIN)])

    def scroll(self, top: int, bottom: int, lines: int) -> None:
        """Move the lines `top` to `bottom` (inclusive) up by `lines`, down if negative. What is exposed is unknown."""
        self._parts.append(f"\x1b[{top + 1};{bottom + 1}r\x1b[{top + 1}H")
        self._parts.append(f"\x1b[{lines}M" if lines > 0 else f"\x1b[{-lines}L")
        self._parts.append("\x1b[r")
        self._at = None

    def row(self, y: int, before: CellRow | None, now: CellRow, drawn: CellRow | None = None) -> None:
        """Write what differs in line `y`; `before` None: it shows anything. `drawn`: what to write for `now`."""
        width, drawn = len(now.chars), drawn or now
        if before is None or before.is_risky or now.is_risky:
            self._run(y, 0, width, drawn)
            return
        differs = [
            one is not other or char != shown
            for one, other, char, shown in zip(now.pens, before.pens, now.chars, before.chars, strict=True)
        ]
        x = 0
        while True:
            try:
                start = differs.index(True, x)
            except ValueError:
                return
            end = _end_of_run(differs, start)
            while not now.chars[start] or not before.chars[start]:  # not from the middle of a wide character
                start -= 1
            while end < width and not (now.chars[end] and before.chars[end]):
                end += 1
            self._run(y, start, end, drawn)
            x = end

    def _run(self, y: int, x: int, end: int, row: CellRow) -> None:
        """Write the cells `x` to `end` (exclusive)."""
        chars, pens, width = row.chars, row.pens, len(row.chars)
        self._written.setdefault(y, []).append((x, end))
        self._move(x, y)
        while x < end:
            char, pen = chars[x], pens[x]
            if char == " " and pen.erases:
                blanks = _blanks(row, x, end)
                if x + blanks == end and (rest := _blanks(row, x, width)) >= _ERASED_AT_END and x + rest == width:
                    self._take(pen)
                    self._parts.append("\x1b[K")
                    return
                if blanks >= _ERASED and x + blanks < width:
                    self._take(pen)
                    self._parts.append(f"\x1b[{blanks}X")
                    x += blanks
                    if x < end:
                        self._move(x, y)
                    continue
            if not (char == " " and self._pen.blank is pen):
                self._take(pen)
            start, x = x, x + 1
            while x < width and not chars[x]:
                x += 1
            if is_doubtful(char):
                # a terminal for which it is narrower would leave in the second cell what stood there
                self._parts.append(f"{' ' * (x - start)}\x1b[{start + 1}G{char}")
                self._at = None
                if x < end:
                    self._parts.append(f"\x1b[{x + 1}G")
                    self._at = (x, y)
            else:
                self._parts.append(char)
                self._at = (x, y) if x < width else None

    def _take(self, pen: Pen) -> None:
        if pen is not self._pen:
            self._parts.append(change_of(self._pen, pen))
            self._pen = pen

    def _move(self, x: int, y: int) -> None:
        at, self._at = self._at, (x, y)
        if at == (x, y):
            return
        place = f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H" if y else "\x1b[H"
        if at is not None and at[1] == y:
            if x == 0:
                place = "\r"
            elif x > at[0]:
                place = min(f"\x1b[{x - at[0]}C" if x - at[0] > 1 else "\x1b[C", f"\x1b[{x + 1}G", key=len)
            else:
                place = f"\x1b[{x + 1}G"
        elif at is not None and x == 0 and y == at[1] + 1:
            place = "\x1b[E"
        elif at is not None and at[0] == x:
            place = f"\x1b[{y + 1}d"
        self._parts.append(place)


def _end_of_run(differs: list[bool], start: int) -> int:
    """Return where a run of changed cells ends, short gaps included."""
    end = start + 1
    while True:
        while end < len(differs) and differs[end]:
            end += 1
        try:
            following = differs.index(True, end, end + _GAP + 1)
        except ValueError:
            return end
        end = following + 1


def _blanks(row: CellRow, x: int, end: int) -> int:
    """Return how many cells from `x` on are blanks of one pen."""
    pen, chars, pens = row.pens[x], row.chars, row.pens
    at = x + 1
    while at < end and chars[at] == " " and pens[at] is pen:
        at += 1
    return at - x
