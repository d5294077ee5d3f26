"""Turns updates of Textual's compositor into escape sequences for only those cells that differ on the terminal.

Textual writes every changed line whole, and an answer that grows changes all lines. Here the terminal first scrolls its
lines; after that, only a few cells differ. This takes a twentieth of the bytes. `docs/upstream/frame-output.md`
proposes it to Textual.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import is_not, ne
from typing import Final, NamedTuple

from rich.cells import split_graphemes
from rich.color import ColorSystem
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.strip import Strip

from vlmtui.text import growth
from vlmtui.ui.terminal.painter import COLOUR, PLACEHOLDER, Painter, picture_runs

_OFF: Final = {
    "1": "22",
    "2": "22",
    "3": "23",
    "4": "24",
    "5": "25",
    "6": "25",
    "7": "27",
    "8": "28",
    "9": "29",
    "21": "24",
    "51": "54",
    "52": "54",
    "53": "55",
}
"""SGR parameters of attributes, each with the parameter that ends it."""
_SHOWN_ON_BLANKS: Final = frozenset({"4", "5", "6", "7", "8", "9", "21", "51", "52", "53"})
"""Attributes that are visible on blanks too."""


class Pen:
    """Colours, attributes and hyperlink of a cell. Made by `pen_of`: equal pens are the same object."""

    __slots__ = ("attributes", "background", "blank", "foreground", "full", "link")

    def __init__(self, attributes: frozenset[str], foreground: str, background: str, link: str) -> None:
        """All but `link` are SGR parameters; an empty colour is the terminal's default. `link`: the body of OSC 8."""
        self.attributes = attributes
        self.foreground = foreground
        self.background = background
        self.link = link
        self.full = ";".join(filter(None, [*sorted(attributes, key=int), foreground, background]))
        """All SGR parameters, to follow a reset."""
        is_seen = bool(link) or not attributes.isdisjoint(_SHOWN_ON_BLANKS)
        is_blank = not attributes and not foreground and not link
        self.blank: Pen = self if is_seen or is_blank else _pen(frozenset(), "", background, "")
        """The simplest pen that draws a blank with the same look."""

    @property
    def erases(self) -> bool:
        """True if an erased cell looks the same as a blank that is written with this pen."""
        return self.blank is self and not self.attributes and not self.link


@lru_cache(maxsize=4096)
def pen_of(sgr: str, link: str = "") -> Pen:
    """Return the pen for SGR parameters (`1;38;2;255;0;0`) after a reset, and for a hyperlink."""
    attributes: set[str] = set()
    colours = {"3": "", "4": ""}
    parts = iter(sgr.split(";") if sgr else ())
    for part in parts:
        if part in ("38", "48"):
            kind = next(parts, "5")
            values = [next(parts, "0") for _ in range(3 if kind == "2" else 1)]
            colours[part[0]] = ";".join([part, kind, *values])
        elif part in _OFF:
            attributes.add(part)
        elif part in ("39", "49"):
            colours[part[0]] = ""
        else:
            colours["4" if len(part) == 3 or part[0] == "4" else "3"] = part
    return _pen(frozenset(attributes), colours["3"], colours["4"], link)


@lru_cache(maxsize=4096)
def _pen(attributes: frozenset[str], foreground: str, background: str, link: str) -> Pen:
    return Pen(attributes, foreground, background, link)


@lru_cache(maxsize=4096)
def pen_of_style(style: Style, colours: ColorSystem) -> Pen:
    """Return the pen that draws a style."""
    return pen_of(Strip.render_ansi(style, colours), f"id={style.link_id};{style.link}" if style.link else "")


PLAIN: Final = pen_of("")
"""The terminal's default pen."""


@lru_cache(maxsize=4096)
def change_of(before: Pen, now: Pen) -> str:
    """Return the shortest sequence that changes one pen to another."""
    linked = "" if before.link == now.link else f"\x1b]8;{now.link or ';'}\x1b\\"
    gone, come = before.attributes - now.attributes, set(now.attributes - before.attributes)
    off = {_OFF[attribute] for attribute in gone}
    come |= {attribute for attribute in now.attributes if _OFF[attribute] in off}  # 22 ends bold and dim
    steps = [*sorted(off), *sorted(come, key=int)]
    if before.foreground != now.foreground:
        steps.append(now.foreground or "39")
    if before.background != now.background:
        steps.append(now.background or "49")
    if not steps:
        return linked
    one_by_one, afresh = ";".join(steps), f"0;{now.full}" if now.full else ""
    return f"{linked}\x1b[{min(one_by_one, afresh, key=len)}m"


Chars = list[str]
"""The character of each cell, with its combining characters; "" for the second cell of a wide character."""
Pens = list[Pen]
"""The pen of each cell; a blank's has only attributes that are visible on blanks."""

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_ONE_CELL: Final = re.compile(
    "[\x20-\x7e\xa0-\xac\xae-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u25fc\u2713\u2717]+"
)
"""Characters that every terminal draws one cell wide, and that do not combine with others."""
_LINE: Final = re.compile("[\u2500-\u259f]")
"""Borders and bars, which stand in their columns whatever is before them."""
_DOUBTFUL_FROM: Final = 0x10000
"""The first code point (emoji, …) from which on terminals differ in the width of characters."""
_SEXTANTS: Final = re.compile("[\U0001fb00-\U0001fb3b]")
"""Characters of one cell that images are drawn with."""


class CellRow:
    """The cells of a strip, or of a line of the screen."""

    __slots__ = ("chars", "has_picture", "is_risky", "pens")

    def __init__(self, chars: Chars, pens: Pens, *, is_risky: bool = False, has_picture: bool = False) -> None:
        self.chars = chars
        self.pens = pens
        self.is_risky = is_risky
        """True if terminals may count the row's cells differently. Such a row is only written as a whole."""
        self.has_picture = has_picture
        """True if the terminal itself draws a part of an image in the row."""

    @property
    def text(self) -> str:
        return "".join(self.chars)

    def same_as(self, other: CellRow) -> bool:
        return self.chars == other.chars and self.pens == other.pens


def cells_of(strip: Strip, width: int, colours: ColorSystem) -> CellRow | None:
    """Return a strip's cells; None if the strip contains escape sequences, or is not `width` cells wide."""
    chars: Chars = []
    pens: Pens = []
    is_risky = has_picture = False
    for text, style, control in strip:
        if control:
            return None
        pen = PLAIN if style is None else pen_of_style(style, colours)
        if _ONE_CELL.fullmatch(text):
            chars += text
            blank = pen.blank
            pens += [pen] * len(text) if blank is pen else [blank if char == " " else pen for char in text]
        elif _CONTROL.search(text):
            return None
        else:
            if PLACEHOLDER in text:
                # The colour of a placeholder identifies the image, so filters that change text colours are undone.
                has_picture, pen = True, pen_of(f"38;5;{COLOUR};{pen.background}".rstrip(";"))
            is_risky = _add_graphemes(text, pen, chars, pens) or is_risky
    if len(chars) != width:
        return None
    return CellRow(chars, pens, is_risky=is_risky, has_picture=has_picture)


def is_doubtful(char: str) -> bool:
    """Return whether terminals differ in how many cells a character takes."""
    if not char or char.startswith(PLACEHOLDER):
        return False
    return len(char) > 1 or (ord(char) >= _DOUBTFUL_FROM and not _SEXTANTS.match(char))


def _add_graphemes(text: str, pen: Pen, chars: Chars, pens: Pens) -> bool:
    """Append characters of any width; return whether terminals may count their cells differently."""
    is_risky = False
    for start, end, width in split_graphemes(text)[0]:
        char = text[start:end]
        if width:
            chars += (char, *("",) * (width - 1))
            pens += [pen.blank if char == " " else pen] * width
        elif chars:  # it combines with the character before it
            last = len(chars) - 1
            while last and not chars[last]:
                last -= 1
            chars[last] += char
            char = chars[last]
        is_risky = is_risky or is_doubtful(char)
    return is_risky


_GAP: Final = 4
"""Most unchanged cells between changed ones that are written too: moving the cursor takes as many bytes."""
_ERASED_AT_END: Final = 4
"""Fewest blanks at the end of a line that are erased instead of written."""


def cells_changed(before: CellRow | None, now: CellRow) -> int:
    """Return how many cells differ. If `before` is None, it is unknown what the terminal shows; then all cells up to
    the end of the text count."""
    if before is None:
        return len(now.text.rstrip())
    if before.same_as(now):
        return 0
    different = sum(map(ne, before.chars, now.chars)) if before.chars != now.chars else 0
    return max(different, sum(map(is_not, before.pens, now.pens)) if before.pens != now.pens else 0)


class Writer:
    """Collects the text of a frame for the terminal. Knows where the cursor is, and which pen (colours and attributes)
    is set."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._at: tuple[int, int] | None = None
        """Column and line of the cursor; None: unknown."""
        self._pen = PLAIN
        self._written: dict[int, list[tuple[int, int]]] = {}
        """Written ranges of columns by line: the first column, and the one after the last."""

    def has_written(self, y: int, x: int, end: int) -> bool:
        """Return whether something was written in line `y` from column `x` to `end` (exclusive)."""
        return any(start < end and x < stop for start, stop in self._written.get(y, ()))

    def text(self) -> str:
        """Return the frame. At its end, colours and attributes are reset."""
        return "".join([*self._parts, change_of(self._pen, PLAIN)])

    def scroll(self, top: int, bottom: int, lines: int) -> None:
        """Move the lines `top` to `bottom` (inclusive) up by `lines`, down if negative. What the exposed lines then
        show is unknown."""
        self._parts.append(f"\x1b[{top + 1};{bottom + 1}r\x1b[{top + 1}H")
        self._parts.append(f"\x1b[{lines}M" if lines > 0 else f"\x1b[{-lines}L")
        self._parts.append("\x1b[r")
        self._at = None

    def row(self, y: int, before: CellRow | None, now: CellRow, drawn: CellRow | None = None) -> None:
        """Write the cells of line `y` in which `now` differs from `before` (None: unknown). `drawn`: the cells to write
        in place of those of `now`."""
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
            while not now.chars[start] or not before.chars[start]:  # do not begin inside a wide character
                start -= 1
            while end < width and not (now.chars[end] and before.chars[end]):
                end += 1
            self._run(y, start, end, drawn)
            x = end

    def _run(self, y: int, x: int, end: int, row: CellRow) -> None:
        """Write the cells `x` to `end` (exclusive). Text whose width in the terminal is unknown is written without
        moving the cursor, which could erase a part of it, up to blanks or a line that have room for the difference."""
        chars, pens, width = row.chars, row.pens, len(row.chars)
        blank_from = _blank_from(row)
        self._written.setdefault(y, []).append((x, end))
        ahead = 0
        """By how many cells the terminal's cursor may be farther than `x`."""
        is_sure = not row.is_risky and not growth("".join(chars[x:end]))
        if row.is_risky and any(map(growth, chars[x:end])):
            self._blanks(y, x, end, pens)
        self._move(x, y)
        while x < end:
            char, pen = chars[x], pens[x]
            if ahead and (char == " " or _LINE.match(char)):
                blanks = next((at for at in range(x, end) if chars[at] != " "), end) - x
                if char != " " or (blanks > ahead and x + blanks < end):
                    x, ahead = x + min(ahead, blanks), 0
                    self._parts.append(f"\x1b[{x + 1}G")
                    self._at = (x, y)
                    continue
            if x >= blank_from:
                self._use_pen(pen)
                self._parts.append("\x1b[K")
                return
            if not (char == " " and self._pen.blank is pen):
                self._use_pen(pen)
            start, x = x, x + 1
            while x < width and not chars[x]:
                x += 1
            ahead += 0 if is_sure else growth(char)
            if ahead:
                self._parts.append(char)
                self._at = None
            elif not is_sure and is_doubtful(char):
                # blanks first: a terminal that draws it narrower would leave the old second cell
                self._parts.append(f"{' ' * (x - start)}\x1b[{start + 1}G{char}")
                self._at = None
                if x < end:
                    self._parts.append(f"\x1b[{x + 1}G")
                    self._at = (x, y)
            else:
                self._parts.append(char)
                self._at = (x, y) if x < width else None

    def _blanks(self, y: int, x: int, end: int, pens: Pens) -> None:
        """Write blanks in the cells `x` to `end` (exclusive)."""
        self._move(x, y)
        for pen in pens[x:end]:
            self._use_pen(pen)
            self._parts.append(" ")
        self._at = None

    def _use_pen(self, pen: Pen) -> None:
        if pen is not self._pen:
            self._parts.append(change_of(self._pen, pen))
            self._pen = pen

    def _move(self, x: int, y: int) -> None:
        at, self._at = self._at, (x, y)
        if at == (x, y):
            return
        is_in_line = at is not None and at[1] == y
        self._parts.append(f"\x1b[{x + 1}G" if is_in_line else f"\x1b[{y + 1};{x + 1}H")


def _end_of_run(differs: list[bool], start: int) -> int:
    """Return the index after a run of changed cells. A run may contain a few unchanged cells, since moving the cursor
    over them takes more bytes."""
    end = start + 1
    while True:
        while end < len(differs) and differs[end]:
            end += 1
        try:
            following = differs.index(True, end, end + _GAP + 1)
        except ValueError:
            return end
        end = following + 1


def _blank_from(row: CellRow) -> int:
    """Return the column from which the rest of the line can be erased instead of written; the line's width if nothing
    can be erased."""
    start = width = len(row.chars)
    pen = row.pens[-1] if row.pens else PLAIN
    while start and row.chars[start - 1] == " " and row.pens[start - 1] is pen:
        start -= 1
    return start if pen.erases and width - start >= _ERASED_AT_END else width


_SCROLL_COST: Final = 30
"""Bytes that a scroll takes."""
_CANDIDATES: Final = 2
_SCROLLED_LINES_MIN: Final = 2
"""Fewest changed lines for which a scroll is considered."""


LineMove = tuple[int, int, int]
"""First and last line that move, and by how many lines they move up; down if negative."""


def find_move(before: Sequence[CellRow | None], now: Sequence[CellRow], hints: Counter[int]) -> LineMove | None:
    """Return the scroll that saves the most cells; None if no scroll saves any.

    `hints`: by how many lines texts moved up (negative: down), and how often. Lines for which scrolling costs more
    cells, such as those beside a fixed panel, are left out of the scroll.
    """
    unmoved_costs = [cells_changed(one, other) for one, other in zip(before, now, strict=True)]
    if len(unmoved_costs) - unmoved_costs.count(0) < _SCROLLED_LINES_MIN:
        return None
    all_of_it, best = sum(unmoved_costs), (0, (0, 0, 0))
    for lines, _ in hints.most_common(_CANDIDATES):
        if abs(lines) < len(now):
            best = max(best, _best_scroll(before, now, unmoved_costs, lines))
        if best[0] * 2 > all_of_it:  # no other scroll can save more
            break
    return best[1] if best[0] > 0 else None


def _best_scroll(
    before: Sequence[CellRow | None], now: Sequence[CellRow], unmoved_costs: Sequence[int], lines: int
) -> tuple[int, LineMove]:
    """Return how many cells the best scroll by `lines` saves, and that scroll. `unmoved_costs`: how many cells of each
    line change without a scroll."""
    if lines < 0:
        saved, (top, bottom, _) = _best_scroll(before[::-1], now[::-1], unmoved_costs[::-1], -lines)
        last = len(now) - 1
        return saved, (last - bottom, last - top, lines)
    height = len(now)
    moved, exposed = [0], [0]  # cells saved by all lines above
    for y in range(height):
        source = before[y + lines] if y + lines < height else None
        fixed = _has_picture(before[y]) or _has_picture(now[y]) or _has_picture(source)
        here = unmoved_costs[y]
        moved.append(moved[-1] + (here - cells_changed(source, now[y]) if not fixed else -height * 1000))
        exposed.append(exposed[-1] + (here - cells_changed(None, now[y]) if not fixed else -height * 1000))
    best, top, found = 0, 0, (0, 0, lines)
    for bottom in range(lines, height):
        first_exposed = bottom - lines + 1
        if moved[first_exposed - 1] < moved[top]:
            top = first_exposed - 1
        saved = moved[first_exposed] - moved[top] + exposed[bottom + 1] - exposed[first_exposed] - _SCROLL_COST
        if saved > best:
            best, found = saved, (top, bottom, lines)
    return best, found


def _has_picture(row: CellRow | None) -> bool:
    return row is not None and row.has_picture


_REMEMBERED = 400
"""Most strips whose cells are kept: several screens."""
_UNDER_PICTURE = "\xa0"
"""The blank under an image. To a multiplexer it differs from a space, so it redraws the cell when the image is gone."""


class PlacedStrip(NamedTuple):
    """A strip in line `y`, from column `x` to `end` (exclusive)."""

    y: int
    x: int
    end: int
    strip: Strip


class FrameLayer:
    """Turns the compositor's updates into frames for the terminal.

    `take` records an update; `send` returns the frame for all updates since the last one. After `forget`, the
    terminal's content is unknown, and the next frame is a whole screen.
    """

    def __init__(self, colours: ColorSystem | None = None, painter: Painter | None = None) -> None:
        self._painter = painter
        self._colours = colours or ColorSystem.TRUECOLOR
        self._size = (0, 0)
        self._wanted: list[CellRow] = []
        self._shown: list[CellRow | None] = []
        """The lines that the terminal shows; None: unknown."""
        self._placed: list[dict[int, tuple[Strip, CellRow]]] = []
        """The strips of each line of `_wanted`, by column."""
        self._hints: Counter[int] = Counter()
        """By how many lines pieces of text have moved up since the last frame, and how often."""
        self._changed: set[int] = set()
        """Lines of `_wanted` that may differ from `_shown`."""
        self._cells: dict[int, tuple[Strip, CellRow]] = {}

    def forget(self) -> None:
        """Forget what the terminal shows, so that the next frame is a whole screen."""
        self._size = (0, 0)
        self._wanted, self._shown, self._placed = [], [], []
        self._hints.clear()
        self._changed.clear()

    def knows(self, size: tuple[int, int]) -> bool:
        """Return whether the whole screen of this size is recorded, so that a partial update is enough."""
        return self._size == size

    def take(self, update: LayoutUpdate | ChopsUpdate) -> bool:
        """Record an update. Return False if it contains more than text, and must be written as it is."""
        if isinstance(update, LayoutUpdate) and update.region.offset == (0, 0):
            self._resize(update.region.width, update.region.height)
        found = []
        for piece in _pieces(update):
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
        self._note_moves(found)
        for piece, cells in found:
            self._place(piece, cells)
        return True

    def send(self) -> str:
        """Return the frame that updates the terminal; empty if nothing changed. It may leave the cursor anywhere."""
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
        """Return a line in which the cells of images are `_UNDER_PICTURE`, if the terminal draws images over cells."""
        if not row.has_picture or self._painter is None or not self._painter.draws_over:
            return row
        chars = [_UNDER_PICTURE if char.startswith(PLACEHOLDER) else char for char in row.chars]
        return CellRow(chars, row.pens, is_risky=row.is_risky)

    def _with_pictures(self, text: str, writer: Writer) -> str:
        """Return the text of a frame, with the sequences that draw its images."""
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

    def _place(self, piece: PlacedStrip, cells: CellRow) -> None:
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
        row.is_risky = any(one.is_risky for _, one in placed.values())
        row.has_picture = any(one.has_picture for _, one in placed.values())
        self._changed.add(y)

    def _note_moves(self, pieces: list[tuple[PlacedStrip, CellRow]]) -> None:
        """Count by how many lines texts have moved. A text that was in several lines does not count."""
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

    def _cells_of(self, strip: Strip, width: int) -> CellRow | None:
        found = self._cells.get(id(strip))
        if found is not None and found[0] is strip and len(found[1].chars) == width:
            return found[1]
        cells = cells_of(strip, width, self._colours)
        if cells is not None:
            if len(self._cells) > _REMEMBERED:
                self._cells.clear()
            self._cells[id(strip)] = (strip, cells)
        return cells


def _pieces(update: LayoutUpdate | ChopsUpdate) -> Iterator[PlacedStrip]:
    """Yield the strips of an update, each with its place."""
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
