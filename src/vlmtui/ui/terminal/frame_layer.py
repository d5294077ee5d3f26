"""Between Textual's compositor and the terminal: knows what the terminal shows, and sends only what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.color import ColorSystem
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from vlmtui.ui.terminal.cells import Cells, cells_of
from vlmtui.ui.terminal.line_moves import find_move
from vlmtui.ui.terminal.painter import Painter
from vlmtui.ui.terminal.pens import PLAIN
from vlmtui.ui.terminal.placeholders import PLACEHOLDER, picture_runs
from vlmtui.ui.terminal.row_text import CellRow, Writer

_REMEMBERED = 1500
"""Strips whose cells are kept: some screens full."""
_UNDER_PICTURE = "\xa0"
"""A blank that a multiplexer tells from those without a picture."""


class PlacedStrip(NamedTuple):
    """A strip from column `x` of line `y` on, up to column `end`."""

    y: int
    x: int
    end: int
    strip: Strip


class FrameLayer:
    """Turns the compositor's updates into text for the terminal.

    `take` records an update, `send` returns what brings the terminal there: several updates may become one frame. After
    `forget` nothing is known of the terminal, and the next frame is a full one.
    """

    def __init__(self, colours: ColorSystem | None = None, painter: Painter | None = None) -> None:
        self._painter = painter
        self._colours = colours or ColorSystem.TRUECOLOR
        self._size = (0, 0)
        self._wanted: list[CellRow] = []
        self._shown: list[CellRow | None] = []
        """What the terminal shows; None: unknown."""
        self._placed: list[dict[int, tuple[Strip, Cells]]] = []
        """The strips of each line of `_wanted`, by column."""
        self._hints: Counter[int] = Counter()
        """How far pieces of lines have moved up since the last frame."""
        self._changed: set[int] = set()
        """Lines of `_wanted` that may differ from what is shown."""
        self._loose: set[int] = set()
        """Lines of `_wanted` with cells that terminals may count differently and that no placed strip has."""
        self._cells: dict[int, tuple[Strip, Cells]] = {}
        self._older_cells: dict[int, tuple[Strip, Cells]] = {}

    def forget(self) -> None:
        """Note that the terminal may show anything."""
        self._size = (0, 0)
        self._wanted, self._shown, self._placed = [], [], []
        self._hints.clear()
        self._changed.clear()
        self._loose.clear()

    def knows(self, size: tuple[int, int]) -> bool:
        """Return whether it is known what a terminal of this size is to show: a partial update is enough."""
        return self._size == size

    def take(self, update: LayoutUpdate | ChopsUpdate) -> bool:
        """Record an update. False if it holds more than text: the terminal must get it as it is."""
        if isinstance(update, LayoutUpdate) and update.region.offset == (0, 0):
            self._resize(update.region.width, update.region.height)
        return self._take(_pieces(update), moves=True)

    def put(self, pieces: Iterable[PlacedStrip]) -> bool:
        """Record strips, after `move_up` where they have moved. False: as of `take`."""
        return self._take(pieces, moves=False)

    def move_up(self, area: Region, lines: int) -> None:
        """Record that the cells of an area move up; what is exposed must be put."""
        x, end = area.column_span
        for y in range(area.y, area.bottom):
            row, placed = self._wanted[y], self._placed[y]
            for start in [start for start, (_, one) in placed.items() if start < end and start + len(one.chars) > x]:
                del placed[start]
            if y + lines < area.bottom:
                source = self._wanted[y + lines]
                row.chars[x:end] = source.chars[x:end]
                row.pens[x:end] = source.pens[x:end]
                row.is_risky = row.is_risky or source.is_risky
            if row.is_risky:
                self._loose.add(y)
            self._changed.add(y)
        self._hints[lines] += area.height

    def has_pictures(self, top: int, bottom: int) -> bool:
        """Return whether pictures are to be drawn in lines `top` to `bottom`, exclusive."""
        return any(row.has_picture for row in self._wanted[top:bottom])

    def copy(self, y: int, x: int, end: int) -> CellRow:
        """Return cells of a line."""
        row = self._wanted[y]
        return CellRow(row.chars[x:end], row.pens[x:end])

    def paste(self, y: int, x: int, cells: CellRow) -> None:
        """Record copied cells, which are the same in all terminals."""
        row, end = self._wanted[y], x + len(cells.chars)
        row.chars[x:end] = cells.chars
        row.pens[x:end] = cells.pens
        self._changed.add(y)

    def send(self) -> str:
        """Return what makes the terminal show what is wanted, the cursor anywhere after it; empty if it does."""
        writer, shown = Writer(), self._shown
        if self._hints and (move := find_move(shown, self._wanted, self._hints)):
            top, bottom, lines = move
            writer.scroll(top, bottom, lines)
            part = shown[top : bottom + 1]
            blank: list[CellRow | None] = [None] * abs(lines)
            shown[top : bottom + 1] = [*part[lines:], *blank] if lines > 0 else [*blank, *part[:lines]]
            self._changed.update(range(top, bottom + 1))
        self._hints.clear()
        for y in sorted(self._changed):
            now, before = self._wanted[y], shown[y]
            if before is None or not before.same_as(now):
                writer.row(y, before, now, self._blanked(now))
                shown[y] = CellRow(
                    now.chars.copy(), now.pens.copy(), is_risky=now.is_risky, has_picture=now.has_picture
                )
        self._changed.clear()
        text = writer.text()
        return self._with_pictures(text, writer) if self._painter is not None else text

    def _blanked(self, row: CellRow) -> CellRow:
        """Return a line with blanks for the pictures that are drawn over it. They differ from other blanks: what a
        multiplexer writes when the picture is gone removes it."""
        if not row.has_picture or self._painter is None or not self._painter.draws_over:
            return row
        chars = [_UNDER_PICTURE if char.startswith(PLACEHOLDER) else char for char in row.chars]
        return CellRow(chars, row.pens, is_risky=row.is_risky)

    def _with_pictures(self, text: str, writer: Writer) -> str:
        """Return a frame with what draws its pictures."""
        assert self._painter is not None, "nothing draws pictures"
        runs = [run for y, row in enumerate(self._wanted) if row.has_picture for run in picture_runs(y, row.chars)]
        written = [run for run in runs if writer.has_written(run.y, run.x, run.x + run.width)]
        if self._painter.draws_over:
            return text + self._painter.over(written)
        return self._painter.before({run.number for run in runs}) + text

    def _resize(self, width: int, height: int) -> None:
        if self._size != (width, height):
            self._size = (width, height)
            self._wanted = [CellRow([" "] * width, [PLAIN] * width) for _ in range(height)]
            self._shown = [None] * height
            self._placed = [{} for _ in range(height)]
            self._changed = set(range(height))

    def _take(self, pieces: Iterable[PlacedStrip], *, moves: bool) -> bool:
        found = []
        for piece in pieces:
            if piece.y >= len(self._placed):
                continue
            placed = self._placed[piece.y].get(piece.x)
            if placed is not None and placed[0] is piece.strip:
                continue
            cells = self._cells_of(piece.strip, piece.end - piece.x)
            if cells is None:
                self.forget()
                return False
            found.append((piece, cells))
        if moves:
            self._note_moves(found)
        for piece, cells in found:
            self._place(piece, cells)
        return True

    def _place(self, piece: PlacedStrip, cells: Cells) -> None:
        y, x, end, strip = piece
        row, placed = self._wanted[y], self._placed[y]
        row.chars[x:end] = cells.chars
        row.pens[x:end] = cells.pens
        former = placed.get(x)
        if former is None or len(former[1].chars) != end - x:
            covered = [other for other, (_, one) in placed.items() if x < other + len(one.chars) and other < end]
            for other in covered:
                del placed[other]
        placed[x] = strip, cells
        if y in self._loose and sum(len(one.chars) for _, one in placed.values()) == self._size[0]:
            self._loose.discard(y)  # strips have all of it again
        row.is_risky, row.has_picture = y in self._loose, False
        for _, one in placed.values():
            row.is_risky = row.is_risky or one.is_risky
            row.has_picture = row.has_picture or one.has_picture
        self._changed.add(y)

    def _note_moves(self, pieces: list[tuple[PlacedStrip, Cells]]) -> None:
        """Count how far texts have moved that stood in other lines before, each only if it stood in a single one."""
        wanted = {(piece.x, cells.text) for piece, cells in pieces if not cells.text.isspace()}
        if len({piece.y for piece, _ in pieces}) < 2:
            return
        stood: dict[tuple[int, str], int] = {}
        for y, placed in enumerate(self._placed):
            for x, (_, cells) in placed.items():
                if (key := (x, cells.text)) in wanted:
                    stood[key] = -1 if key in stood else y
        for piece, cells in pieces:
            y = stood.get((piece.x, cells.text), -1)
            if y >= 0 and y != piece.y:
                self._hints[y - piece.y] += 1

    def _cells_of(self, strip: Strip, width: int) -> Cells | None:
        key = id(strip)
        found = self._cells.get(key) or self._older_cells.get(key)
        if found is not None and found[0] is strip and len(found[1].chars) == width:
            cells: Cells | None = found[1]
        else:
            cells = cells_of(strip, width, self._colours)
        if cells is not None:
            if len(self._cells) > _REMEMBERED:
                self._older_cells, self._cells = self._cells, {}
            self._cells[key] = (strip, cells)
        return cells


def _pieces(update: LayoutUpdate | ChopsUpdate) -> Iterator[PlacedStrip]:
    """Return the strips of an update, each with its place."""
    if isinstance(update, LayoutUpdate):
        for y, strips in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in strips:
                yield PlacedStrip(y, x, x + strip.cell_length, strip)
                x += strip.cell_length
        return
    for y, x1, x2 in update.spans:
        for end, (x, piece) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if piece is not None and x < x2 and end > x1:
                yield PlacedStrip(y, x, end, piece)
