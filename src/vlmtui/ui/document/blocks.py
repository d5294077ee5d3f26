"""Kinds of text blocks in a document: styled text; plain text that grows while it streams; prompts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, chop_cells
from textual.content import Content, Span

from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import BREAK, Line, Lines, spaces_after, wrapped

_PIECE = 16_000
"""Characters of a long text that one call lays out, so that keys do not wait long."""
_AT_ONCE = 2 * _PIECE
"""Most new characters that one call lays out."""
_LONG_LINE = 4_000
"""Characters of a line from which on it is laid out in pieces."""
_NARROWEST = 8


class TextBlock(Block):
    """Styled text, wrapped at words. The caller makes control characters visible."""

    def __init__(
        self, text: Content | str = "", *, label: Content | None = None, edge: str = "", margin: int = 0
    ) -> None:
        """`label`: shown before the text. If the label takes at most half of the width, the text wraps beside it."""
        super().__init__()
        self.text = text if isinstance(text, Content) else Content(text)
        self.label = label
        self.edge, self.margin = edge, margin

    def lay_out(self, width: int) -> Lines:
        if self.label is None:
            return wrapped(self.text, width) if self.text else []
        indent = self.label.cell_length
        if indent * 2 > width:
            return wrapped(Content.assemble(self.label, self.text), width)
        first, *more = wrapped(self.text, width - indent)
        return [
            Line.of(Content.assemble(self.label, first.content)),
            *(line.after(" " * indent) for line in more),
        ]


def fact(label: str, text: str, columns: int, *, margin: int = 0) -> TextBlock:
    """Return a line for a list of facts: a label, `columns` wide, and the text."""
    return TextBlock(text, label=Content.styled(label.ljust(columns), "$muted"), margin=margin)


class PlainBlock(Block):
    """Text that grows, shown exactly, not as Markdown. The caller makes control characters visible."""

    def __init__(self, *, margin: int = 0) -> None:
        super().__init__()
        self.margin = margin
        self.text = ""
        self.instead = Content()
        """Shown if the text is empty."""
        self.below = Content()
        """Shown below the text, for example why the answer ended."""
        self._marks: Sequence[Span] = ()
        self._settled: Lines = []
        """The first lines, which more text does not change."""
        self._taken = 0
        """The number of characters in `_settled`."""
        self._joins: str | None = None
        """The text between `_settled` and the next line, as `Line.joins`; None: a line break."""
        self._steps: list[tuple[int, int, str | None]] = []
        """The values of `_taken`, `len(_settled)` and `_joins` before each time that `_settled` grew."""
        self._settled_for = 0
        """The width of the lines in `_settled`."""
        self._shown = 0
        """The number of characters in the last layout."""

    def show(self, text: str) -> None:
        if not text.startswith(self.text):
            self._settled_for = 0
        self.text = text

    def mark(self, marks: Sequence[Span]) -> None:
        """Style parts of the text. `marks`: spans in the order of the text."""
        same = next((at for at, pair in enumerate(zip(self._marks, marks, strict=False)) if pair[0] != pair[1]), None)
        same = min(len(self._marks), len(marks)) if same is None else same
        changed = [mark.start for mark in (*self._marks[same : same + 1], *marks[same : same + 1])]
        self._marks = marks
        while changed and self._steps and self._taken > min(changed):
            self._taken, count, self._joins = self._steps.pop()
            del self._settled[count:]

    def lay_out(self, width: int) -> Lines:
        if width != self._settled_for:
            self._settled, self._taken, self._joins, self._settled_for = [], 0, None, width
            self._steps, self._shown = [], 0
        whole = len(self.text)
        end = whole if whole - self._taken <= _AT_ONCE else max(self._taken + _PIECE, self._shown)
        self.is_behind, self._shown = end < whole, end
        settled = self.text.rfind("\n", self._taken, end) + 1
        if not settled and end - self._taken > _LONG_LINE:
            settled = max(self.text.rfind(" ", self._taken, end) + 1, self._taken + _LONG_LINE)
        if settled > self._taken:
            self._settle(settled, width)
        ends_in_blank_line = not self.text or self.text.endswith("\n")
        rest = self._lines(self._taken, end, width) if end > self._taken or ends_in_blank_line else []
        found = [*self._settled, *rest] if whole else wrapped(self.instead, width) if self.instead else []
        return [*found, *wrapped(self.below, width)] if self.below and not self.is_behind else found

    def _settle(self, end: int, width: int) -> None:
        """Lay out the text up to the character `end` for good, and move its rows into `_settled`. The last row is left
        out if later text may change it."""
        is_line, joins = self.text[end - 1] == "\n", None
        lines = self._lines(self._taken, end - is_line, width)
        if not is_line:
            start = self.text.rfind(lines[-1].plain.strip(" "), self._taken, end) if len(lines) > 1 else -1
            end, joins = (start, lines.pop().joins) if start >= 0 else (end, "")
        self._steps.append((self._taken, len(self._settled), self._joins))
        self._settled += lines
        self._taken, self._joins = end, joins

    def _lines(self, start: int, end: int, width: int) -> Lines:
        spans = [
            Span(max(0, mark.start - start), min(end, mark.end) - start, mark.style)
            for mark in self._marks
            if mark.start < end and mark.end > start
        ]
        lines = wrapped(Content(self.text[start:end], spans), width)
        if self._joins is not None:
            lines[0] = lines[0].but(joins=self._joins)
        return lines


_WORD = re.compile(r"\S+\s*|\s+")


class PromptBlock(Block):
    """A prompt, shown exactly. Lines break at the width, so that every space is visible, and a run with its own style
    (a special token, an image) is split only if it is wider than a row; or at words, as in a text area."""

    def __init__(
        self,
        lines: Sequence[Content],
        *,
        edge: str = "",
        margin: int = 0,
        break_style: str = "",
        by_word: bool = False,
    ) -> None:
        """`lines`: control characters in them must be visible already. `break_style`: the style of the sign ↵ that
        shows line breaks; empty: no sign."""
        super().__init__()
        self.written = lines
        self.edge, self.margin = edge, margin
        self._break_style = break_style
        self._lengths = word_row_lengths if by_word else row_lengths

    def lay_out(self, width: int) -> Lines:
        return [row for number, line in enumerate(self.written) for row in self._rows_of(number, line, width)]

    def _rows_of(self, number: int, line: Content, width: int) -> Lines:
        has_break = bool(self._break_style) and number < len(self.written) - 1
        shown = Content.assemble(line, (BREAK, self._break_style)) if has_break else line
        found: Lines = []
        start = 0
        for part in self._lengths(shown, max(width, _NARROWEST)):
            found.append(Line.of(shown[start : start + part], spaces_after(found[-1].plain) if found else None))
            start += part
        if has_break:
            found[-1] = found[-1].but(tail=len(BREAK))
        return found


def row_lengths(line: Content, width: int) -> list[int]:
    """Return how many characters of the line go into each row of `width` cells."""
    return _rows(_stretches(line), width)


def word_row_lengths(line: Content, width: int) -> list[int]:
    """Return how many characters of the line go into each row of `width` cells if rows end after words. A word with the
    spaces after it begins a row if it would not fit into the last one, as in Textual's text area."""
    return _rows(((word, True) for word in _WORD.findall(line.plain)), width, splits_none=True)


def _rows(pieces: Iterable[tuple[str, bool]], width: int, *, splits_none: bool = False) -> list[int]:
    """Return how many characters go into each row of `width` cells.

    pieces: texts, each with whether it stays in one row. splits_none: a piece that is wider than a row begins one, too;
    otherwise it goes on in the row of the piece before it."""
    rows, used, taken = [], 0, 0  # the rows so far; cells and characters of the current one
    for text, is_whole in pieces:
        cells = cell_len(text)
        if is_whole and taken and used + cells > width and (splits_none or cells <= width):
            rows.append(taken)
            used = taken = 0
        for count, size in _chopped(text, width - used, width):
            if used + size > width:
                rows.append(taken)
                used = taken = 0
            used, taken = used + size, taken + count
    return [*rows, taken]


def _stretches(line: Content) -> Iterator[tuple[str, bool]]:
    """Yield the line's text in pieces, each with whether it must not be split. Pieces with a style must not be
    split."""
    text, position = line.plain, 0
    for span in sorted(line.spans, key=lambda one: one.start):
        start = max(span.start, position)
        if span.end <= start:
            continue
        if start > position:
            yield text[position:start], False
        yield text[start : span.end], True
        position = span.end
    if position < len(text):
        yield text[position:], False


def _chopped(text: str, room: int, width: int) -> Iterator[tuple[int, int]]:
    """Split a text into pieces, and yield the number of characters and cells of each. The first piece fits into `room`
    cells, the others into `width`."""
    if text.isascii():
        first = min(room, len(text))
        yield first, first
        for start in range(first, len(text), width):
            size = min(width, len(text) - start)
            yield size, size
        return
    head = next(iter(chop_cells(text, room)), "") if room > 1 else ""
    if cell_len(head) > room:
        head = ""
    yield len(head), cell_len(head)
    for part in chop_cells(text[len(head) :], width) if len(head) < len(text) else ():
        yield len(part), cell_len(part)
