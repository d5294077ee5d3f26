"""Tables of OCR models' answers."""

from __future__ import annotations

import pytest

from vlmtui.ui.document.tables import read_html_table, read_otsl_table, without_tags


def test_spanned_cells_of_html_are_empty() -> None:
    text = (
        "<table><tr><th>A</th><th colspan=2>B</th></tr><tr><td rowspan='2'>1</td><td>2<br>3</td></tr><tr><td>x</table>"
    )
    assert read_html_table(text) == [["A", "B", ""], ["1", "2\n3", ""], ["", "x", ""]]


def test_entities_stay_as_written() -> None:
    assert read_html_table("<table><tr><td>a &amp; &#60;b</td></tr></table>") == [["a &amp; &#60;b"]]


def test_otsl_has_full_empty_and_spanned_cells() -> None:
    # An example in the form of docling-core's documentation
    text = "<otsl><ched>Year<ched>Sum<lcel><nl><fcel>2024<fcel>1<ecel><nl><ucel><fcel>2<fcel>3<nl></otsl>"
    assert read_otsl_table(text) == [["Year", "Sum", ""], ["2024", "1", ""], ["", "2", "3"]]


@pytest.mark.parametrize("read", [read_html_table, read_otsl_table])
@pytest.mark.parametrize("text", ["", "<table>", "<nl><nl>", "<table><tr></tr></table>", "<table><td", "</td></tr>a"])
def test_tags_without_cells_are_no_table(read: object, text: str) -> None:
    assert callable(read)
    assert read(text) is None


def test_every_beginning_can_be_read() -> None:
    text = "<table><tr><td rowspan=99999999 colspan=9>a</td><td>b</td></tr><tr><td>c</td></tr></table>"
    for end in range(len(text)):
        read_html_table(text[:end])
        read_otsl_table(text[:end])


def test_more_columns_than_a_screen_shows_are_not_read() -> None:
    assert read_html_table("<table><tr>" + "<td>a</td>" * 61 + "</tr></table>") is None
    assert read_html_table("<table><tr>" + "<td colspan=60>a</td>" * 3 + "</tr></table>") is None


def test_tags_are_distinguished_from_text() -> None:
    assert without_tags("<td>1 < 2</td><t").split() == ["1", "<", "2"]
