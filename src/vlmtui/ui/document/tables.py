"""Reads the HTML and OTSL tables that OCR models write, and lays out tables as styled lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import zip_longest

from textual.content import Content

from vlmtui.text import growth
from vlmtui.ui.document.lines import room_for

ROWS_MAX = 2_000
"""Most rows of a table that is read."""
COLUMNS_MAX = 60
"""Most columns of a table that is read."""
Rows = list[list[str]]
_OTSL = re.compile(r"<(fcel|ecel|lcel|ucel|xcel|ched|rhed|srow|nl)>")
_TAG = re.compile(r"<[^<>]*>|<[^<>]*$")
_CELL_MIN = 2
"""Smallest width of a column in cells: the widest character must fit."""


def read_html_table(text: str) -> Rows | None:
    """Return the rows of an HTML table, all of the same length; None if it has no cells, or too many. Cells under a
    `colspan` or `rowspan` are empty; entities stay as written."""
    reader = _HtmlTable()
    reader.feed(text)
    reader.close()
    return _padded_rows(reader.rows)


def read_otsl_table(text: str) -> Rows | None:
    """Return the rows of an OTSL table, filled up like those of `read_html_table`. The tokens are those of
    docling-core's `TableToken`: full and empty cell, spanned cell (left, up, both), three kinds of header, end of a
    row."""
    rows: Rows = [[]]
    pieces = _OTSL.split(text)
    for token, content in zip(pieces[1::2], pieces[2::2], strict=True):
        if token == "nl":
            rows.append([])
        else:
            rows[-1].append(" ".join(_TAG.sub("", content).split()))
    return _padded_rows(rows)


def without_tags(text: str) -> str:
    """Return the text without tags; a last tag may be unfinished."""
    return _TAG.sub(" ", text)


def _padded_rows(rows: Rows) -> Rows | None:
    rows = [row for row in rows if row]
    width = max(map(len, rows), default=0)
    if not 0 < width <= COLUMNS_MAX or len(rows) > ROWS_MAX:
        return None
    return [[*row, *[""] * (width - len(row))] for row in rows]


class _HtmlTable(HTMLParser):
    """Collects the cells of a table. Cells that a `rowspan` above covers are empty."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.rows: Rows = []
        self._spans: dict[int, int] = {}
        """By column, the number of further rows that a cell above covers."""
        self._is_cell = False
        self._column = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self._begin_row()
        elif tag in ("td", "th") and len(self.rows) <= ROWS_MAX:
            if not self.rows:
                self._begin_row()
            self._begin_cell({name: value or "" for name, value in attrs})
        elif tag == "br":
            self.handle_data("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self._is_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.rows[-1][self._column] += data

    def handle_entityref(self, name: str) -> None:
        self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(f"&#{name};")

    def _begin_row(self) -> None:
        self.rows.append([])
        self._is_cell = False

    def _begin_cell(self, attributes: dict[str, str]) -> None:
        row = self.rows[-1]
        while self._spans.get(len(row), 0) > 0 and len(row) <= COLUMNS_MAX:
            self._spans[len(row)] -= 1
            row.append("")
        self._column, self._is_cell = len(row), True
        for column in range(len(row), len(row) + _span(attributes, "colspan", COLUMNS_MAX)):
            self._spans[column] = _span(attributes, "rowspan", ROWS_MAX) - 1
            row.append("")


def _span(attributes: dict[str, str], name: str, most: int) -> int:
    value = attributes.get(name, "")
    return min(max(1, int(value)), most) if value.isascii() and value.isdigit() and len(value) < 6 else 1


def table_lines(rows: Sequence[Sequence[Content]], width: int) -> list[Content]:
    """Return the lines of a table with a frame; all rows have the same length, and the first is the heading. If the
    narrowest possible table is wider than `width`, the lines are too wide."""
    if not rows:
        return []
    heading = [cell.stylize("bold $accent") for cell in rows[0]]
    rows = [heading, *rows[1:]]
    widths = _columns([[_longest(cell) for cell in row] for row in rows], width)
    bar = Content.styled("│", "$foreground 20%")
    lines = [_rule("┌", "┬", "┐", widths)]
    for number, row in enumerate(rows):
        if number:
            lines.append(_rule("├", "┼", "┤", widths))
        cells = [cell.wrap(room_for(cell, column)) for cell, column in zip(row, widths, strict=True)]
        for pieces in zip_longest(*cells, fillvalue=Content()):
            padded = [
                piece.pad_right(max(0, column - piece.cell_length)).pad_left(1).pad_right(1)
                for piece, column in zip(pieces, widths, strict=True)
            ]
            lines.append(Content.assemble(bar, bar.join(padded), bar))
    return [*lines, _rule("└", "┴", "┘", widths)]


def _longest(cell: Content) -> int:
    return max((line.cell_length + growth(line.plain) for line in cell.split("\n")), default=0)


def _columns(lengths: list[list[int]], width: int) -> list[int]:
    """Return the widths of the columns. Each is as wide as its widest cell; if the table does not fit, the widest
    columns become narrower."""
    room = width - 3 * len(lengths[0]) - 1
    widths = [min(max(1, *column), max(room, _CELL_MIN)) for column in zip(*lengths, strict=True)]
    while sum(widths) > room and max(widths) > _CELL_MIN:
        widths[widths.index(max(widths))] -= 1
    return widths


def _rule(left: str, middle: str, right: str, widths: Sequence[int]) -> Content:
    return Content.styled(left + middle.join("─" * (width + 2) for width in widths) + right, "$foreground 20%")
