"""Lines of text as they are shown, and how they were written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, chop_cells
from textual.content import Content
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

Drawn = Callable[[Widget, Style], Strip]
"""Draws a line that is no text, such as a row of a picture, as it is now: for a widget, on a background."""


class Line(NamedTuple):
    """A line of a given width."""

    content: Content
    joins: str | None = None
    """The text between this line and the one before, where both are one line as written; None: a line break."""
    indent: int = 0
    """Characters at its start that are not part of the text."""
    drawn: Drawn | None = None
    """Draws the line in place of `content`."""
    tail: int = 0
    """Characters at its end that are not part of the text."""

    @property
    def plain(self) -> str:
        return self.content.plain

    def after(self, *before: Content | str | tuple[str, str]) -> Line:
        """Return the line with something in front that is not part of the text."""
        content = Content.assemble(*before, self.content)
        return self._replace(content=content, indent=self.indent + len(content) - len(self.content))

    def pad_left(self, count: int) -> Line:
        return self._replace(content=self.content.pad_left(count), indent=self.indent + count)

    def same_as(self, other: Line) -> bool:
        """Return whether both look the same."""
        if self is other:
            return True
        mine, its = self.content, other.content
        is_equal = mine is its or (mine.plain == its.plain and mine.spans == its.spans)
        return is_equal and self.drawn is other.drawn


Lines = list[Line]

BLANK = Line(Content())
BREAK = "↵"
"""Shows a line break."""
_HANGING = 4
"""Columns of indent of a wrapped line's further rows."""


def one(content: Content | str, style: str = "") -> Line:
    """Return a line that fits."""
    return Line(content if isinstance(content, Content) else Content.styled(content, style))


def wrapped(text: Content, width: int) -> Lines:
    """Return a text wrapped at words; an empty one is a blank line."""
    lines: Lines = []
    for written in text.split("\n", allow_blank=True):
        plain, at = written.plain, 0
        if len(plain) <= width and plain.isascii() and "\t" not in plain:
            lines.append(Line(written))
            continue
        for number, piece in enumerate(written.wrap(max(1, width)) or [Content()]):
            shown = piece.plain.strip(" ")
            start = plain.find(shown, at) if number and shown else at
            joins = None if not number else plain[at:start] if start >= 0 else ""
            lines.append(Line(piece, joins))
            at = max(at, start) + len(shown if number else piece.plain.rstrip(" "))
    return lines


def spaces_after(text: str) -> str:
    """Return the spaces at the end of a text."""
    return text[len(text.rstrip(" ")) :]


def hanging(text: str, width: int) -> Lines:
    """Return a line wrapped with an indent; breaks at a space if one is near."""
    lines: Lines = []
    joins, indent = None, 0
    while cell_len(text) > (room := max(2, width - indent)):
        piece = chop_cells(text, room)[0]
        space = piece.rfind(" ")
        if space > len(piece) // 2:
            piece = piece[: space + 1]
        lines.append(Line(Content(" " * indent + piece), joins, indent))
        text = text[len(piece) :]
        joins, indent = spaces_after(piece), _HANGING
    return [*lines, Line(Content(" " * indent + text), joins, indent)]


def as_written(lines: Iterable[tuple[Line, int, int | None]]) -> str:
    """Return the text of parts of lines: of each line the first character, and the one after the last (None: all)."""
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
    """Yield the places of words, which are in lower case, in lines of any case, also where a place was wrapped. A place
    lists its lines, each with its first character and the one after its last."""
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
    """Return a text in lower case, every character at its old index."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(one if len(one.lower()) > 1 else one.lower() for one in text)
