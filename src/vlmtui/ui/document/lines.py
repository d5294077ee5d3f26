"""Lines of text as they are shown on the screen, and how to get the unwrapped text back from them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from rich.cells import cell_len, chop_cells
from textual.content import Content, Span
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from vlmtui.text import growth

Drawn = Callable[[Widget, Style], Strip]
"""Draws a row of an image as it is now: for a widget, on a background."""


Spans = tuple[tuple[int, int, Style | str], ...]
"""Styles of a line: the first character, the one after the last, and the style."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line on the screen.

    It is hidden from the garbage collector, and its styles are plain tuples: an answer may have 100,000 lines, and a
    collection that visits all their parts delays a key by a quarter of a second.
    """

    plain: str
    spans: Spans = ()
    joins: str | None = None
    """The text between this line and the one before, if wrapping separated them; None: a line break did."""
    indent: int = 0
    """Characters at its start that are not part of the text."""
    tail: int = 0
    """Characters at its end that are not part of the text."""

    @classmethod
    def of(cls, content: Content, joins: str | None = None, *, indent: int = 0, tail: int = 0) -> Line:
        return cls(content.plain, _plain_spans(content), joins, indent, tail)

    @property
    def content(self) -> Content:
        return Content(self.plain, [Span(*span) for span in self.spans], strip_control_codes=False)

    def but(self, **changes: object) -> Line:
        """Return the line with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def after(self, *before: Content | str | tuple[str, str]) -> Line:
        """Return the line with a prefix that is not part of the text, such as a bullet."""
        first = Content.assemble(*before)
        line = self.pad_left(len(first))
        return line.but(plain=first.plain + self.plain, spans=(*_plain_spans(first), *line.spans))

    def pad_left(self, count: int) -> Line:
        spans = tuple((start + count, end + count, style) for start, end, style in self.spans)
        return self.but(plain=" " * count + self.plain, spans=spans, indent=self.indent + count)

    def filled(self, width: int, style: str) -> Line:
        """Return the line in a style, filled with spaces up to `width` cells."""
        plain = self.plain + " " * (width - cell_len(self.plain))
        return self.but(plain=plain, spans=((0, len(plain), style), *self.spans))

    def same_as(self, other: Line) -> bool:
        is_text = type(self) is type(other)
        return self is other or (is_text and self.plain == other.plain and self.spans == other.spans)


class PictureLine(Line, frozen=True, gc=True, kw_only=True):
    """A row of an image."""

    drawn: Drawn

    def same_as(self, other: Line) -> bool:
        return self is other


def _plain_spans(content: Content) -> Spans:
    return tuple((start, end, style) for start, end, style in content.spans)


Lines = list[Line]

BLANK = Line("")
BREAK = "↵"
"""Stands for a line break."""
_HANGING = 4
"""Columns by which `hanging` indents the second and further rows."""


def one(content: Content | str, style: str = "") -> Line:
    """Return text as a line, without wrapping."""
    return Line.of(content if isinstance(content, Content) else Content.styled(content, style))


def wrapped(text: Content, width: int) -> Lines:
    """Return a text wrapped at words; an empty text is a blank line."""
    lines: Lines = []
    for written in text.split("\n", allow_blank=True):
        plain, at = written.plain, 0
        if len(plain) <= width and plain.isascii() and "\t" not in plain:
            lines.append(Line.of(written))
            continue
        for number, piece in enumerate(written.wrap(room_for(written, max(1, width))) or [Content()]):
            shown = piece.plain.strip(" ")
            start = plain.find(shown, at) if number and shown else at
            joins = None if not number else plain[at:start] if start >= 0 else ""
            lines.append(Line.of(piece, joins))
            at = max(at, start) + len(shown if number else piece.plain.rstrip(" "))
    return lines


def room_for(text: Content, width: int) -> int:
    """Return the width at which to wrap a text so that no row is wider than `width` even in a terminal that draws it
    wider."""
    room, more = width, growth(text.plain)
    if more:
        room = max(1, width * text.cell_length // (text.cell_length + more))
        while room > 1 and any(row.cell_length + growth(row.plain) > width for row in text.wrap(room)):
            room = room * 9 // 10
    return room


def spaces_after(text: str) -> str:
    """Return the spaces at the end of a text."""
    return text[len(text.rstrip(" ")) :]


def hanging(text: str, width: int) -> Lines:
    """Wrap a line with a hanging indent. It is divided at a space if there is one in the second half of the row,
    otherwise where the row is full."""
    lines: Lines = []
    joins, indent = None, 0
    while cell_len(text) > (room := max(2, width - indent)):
        piece = chop_cells(text, room)[0]
        space = piece.rfind(" ")
        if space > len(piece) // 2:
            piece = piece[: space + 1]
        lines.append(Line(" " * indent + piece, (), joins, indent))
        text = text[len(piece) :]
        joins, indent = spaces_after(piece), _HANGING
    return [*lines, Line(" " * indent + text, (), joins, indent)]


def as_written(lines: Iterable[tuple[Line, int, int | None]]) -> str:
    """Return parts of lines as text, without the line breaks that wrapping added. `lines`: a line, a start and an end
    for each part; an end of None means the end of the line."""
    found: list[str] = []
    for line, start, end in lines:
        last = len(line.plain) - line.tail
        text = line.plain[: last if end is None else min(end, last)][max(start, line.indent) :].rstrip(" ")
        if found and line.joins is not None:
            found.append(line.joins)
        elif found:
            found.append("\n")
        found.append(text)
    return "".join(found)


def places_of(words: str, lines: Sequence[Line]) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Find `words` (lower case) in lines, ignoring case, also where wrapping divides them. Yield the places of each
    match, one for each of its lines.

    A place is a tuple of (index of a line, its first character, the one after its last).
    """
    texts, starts, at = list[str](), list[int](), 0
    for line in lines:
        gap = "\n" if line.joins is None else line.joins
        text = _lower(line.plain[line.indent : len(line.plain) - line.tail].rstrip(" "))
        at += len(gap)
        texts += [gap, text]
        starts.append(at)
        at += len(text)
    whole = "".join(texts)
    found = whole.find(words)
    while found >= 0:
        end = found + len(words)
        first, last = bisect_right(starts, found) - 1, bisect_right(starts, end - 1) - 1
        yield tuple(
            (
                number,
                lines[number].indent + max(0, found - starts[number]),
                lines[number].indent + min(end - starts[number], len(lines[number].plain)),
            )
            for number in range(max(0, first), last + 1)
        )
        found = whole.find(words, end)


def _lower(text: str) -> str:
    """Return a text in lower case. Every character keeps its index."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(one if len(one.lower()) > 1 else one.lower() for one in text)
