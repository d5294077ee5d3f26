"""Tables in answers of OCR models, as rows of cells: HTML (`<table>`), and OTSL (`<fcel>…<nl>`), the table tokens of
docling's models and PaddleOCR-VL. Pure; what is unfinished is read as far as it goes."""

from __future__ import annotations

import re
from html.parser import HTMLParser

ROWS_MAX = 2_000
"""Tables of more rows are not read."""
COLUMNS_MAX = 60
"""Tables of more columns are not read."""

Rows = list[list[str]]

_OTSL = re.compile(r"<(fcel|ecel|lcel|ucel|xcel|ched|rhed|srow|nl)>")
_TAG = re.compile(r"<[^<>]*>|<[^<>]*$")


def read_html_table(text: str) -> Rows | None:
    """Return the rows of an HTML table, each as long as the longest; cells that another one spans are empty, and
    entities stay as written. None if there are no cells, or too many."""
    reader = _HtmlTable()
    reader.feed(text)
    reader.close()
    return _even(reader.rows)


def read_otsl_table(text: str) -> Rows | None:
    """Return the rows of an OTSL table, as `read_html_table` does. The tokens are those of docling-core's
    `TableToken`: a full, an empty, a spanned cell (left, up, both), three kinds of header, the end of a row."""
    rows: Rows = [[]]
    pieces = _OTSL.split(text)
    for token, content in zip(pieces[1::2], pieces[2::2], strict=True):
        if token == "nl":
            rows.append([])
        else:
            rows[-1].append(" ".join(_TAG.sub("", content).split()))
    return _even(rows)


def without_tags(text: str) -> str:
    """Return the text without tags, a last unfinished one included."""
    return _TAG.sub(" ", text)


def _even(rows: Rows) -> Rows | None:
    rows = [row for row in rows if row]
    width = max(map(len, rows), default=0)
    if not 0 < width <= COLUMNS_MAX or len(rows) > ROWS_MAX:
        return None
    return [[*row, *[""] * (width - len(row))] for row in rows]


class _HtmlTable(HTMLParser):
    """Collects cells. Those that a `rowspan` above covers are empty."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.rows: Rows = []
        self._spans: dict[int, int] = {}
        """Column → rows below that a cell still covers."""
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
