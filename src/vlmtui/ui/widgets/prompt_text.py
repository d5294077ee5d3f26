"""A widget for long text, shown exactly, line by line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len, chop_cells
from textual import events, on
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

_NARROWEST = 8
_BAR, _NO_BAR = Content.styled("▌ ", "$warning"), Content.styled("  ", "$faint")


class PromptText(ScrollView, can_focus=True):
    """Wraps at the width, not at words, so that every space is visible; a run with its own style (a special token,
    an image) moves to the next row whole if it fits there. Only rows in view are rendered."""

    DEFAULT_CSS = """
    PromptText {
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        overflow-x: hidden;
        overflow-y: auto;
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Content] = ()
        self._rows: list[tuple[int, int, int]] = []
        """For each row the line, and its first and last character in it."""
        self._width = 0
        self._barred: Collection[int] | None = None

    @property
    def lines(self) -> Sequence[Content]:
        """The lines shown, before wrapping."""
        return self._lines

    @property
    def text_width(self) -> int:
        """Cells of a row of text."""
        return max(self.scrollable_content_region.width - self._edge, _NARROWEST)

    def show(self, lines: Sequence[Content], *, barred: Collection[int] | None = None) -> None:
        """Show these lines; control characters must be visible already. `barred` are the numbers of the lines with a
        bar at the left edge; None: no line has one, nor room for it."""
        self._lines = lines
        self._barred = barred
        self._rows = []
        self._width = 0
        self._break()
        self.scroll_to(y=0, animate=False)

    def scroll_to_line(self, line: int) -> None:
        """Scroll so that a line, from 0, is in the upper half."""
        row = next((number for number, (at, _, _) in enumerate(self._rows) if at >= line), 0)
        self.scroll_to(y=max(0, row - self.size.height // 3), animate=False)

    @on(events.Resize)
    def _resized(self) -> None:
        self._break()

    def render_line(self, y: int) -> Strip:
        row, style, width = y + round(self.scroll_y), self.visual_style, self.size.width
        if row >= len(self._rows):
            return Strip.blank(width, style.rich_style)
        line, start, end = self._rows[row]
        content = self._lines[line][start:end]
        if self._barred is not None:
            content = Content.assemble(_BAR if line in self._barred else _NO_BAR, content)
        strips = Visual.to_strips(self, content, width, 1, style)
        return strips[0].extend_cell_length(width, style.rich_style) if strips else Strip.blank(width, style.rich_style)

    @property
    def _edge(self) -> int:
        return 0 if self._barred is None else _BAR.cell_length

    def _break(self) -> None:
        width = self.scrollable_content_region.width
        if width < 1 or width == self._width:
            return
        self._width = width
        self._rows = []
        for number, line in enumerate(self._lines):
            start = 0
            for part in parts_of(line, self.text_width):
                self._rows.append((number, start, start + part))
                start += part
        self.virtual_size = Size(width, len(self._rows))
        self.refresh()


def parts_of(line: Content, width: int) -> list[int]:
    """Return how many characters of the line go into each row of `width` cells."""
    rows, used, taken = [], 0, 0  # the rows so far; cells and characters of the current one
    for text, is_whole in _stretches(line):
        cells = cell_len(text)
        if is_whole and used and used + cells > width >= cells:
            rows.append(taken)
            used = taken = 0
        for count, size in _chopped(text, width - used, width):
            if used + size > width:
                rows.append(taken)
                used = taken = 0
            used, taken = used + size, taken + count
    return [*rows, taken]


def _stretches(line: Content) -> Iterator[tuple[str, bool]]:
    """Yield the line's text in order, with whether it may be broken: runs with their own style may not."""
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
    """Yield characters and cells of the pieces of a text: the first fits into `room` cells, or into `width` if
    nothing does; all others into `width`."""
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
