"""Markdown laid out as lines."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from vlmtui.text import visible
from vlmtui.ui.document.markdown_lines import MarkdownLines, markdown_lines, markdown_parser, top_blocks


def plain(source: str, width: int = 40) -> list[str]:
    return [line.plain.rstrip() for line in markdown_lines(source, width)]


def test_blocks_are_one_empty_line_apart() -> None:
    assert plain("# Title\n\ntext\n\n- a\n- b\n\nend") == ["Title", "", "text", "", "• a", "• b", "", "end"]


def test_tags_and_line_breaks_stay() -> None:
    assert plain("<ref>cat</ref><box>(1,2)</box>\nnext") == ["<ref>cat</ref><box>(1,2)</box>", "next"]


def test_a_list_continues_below_its_text() -> None:
    assert plain("9. a long item that wraps\n10. b", 16) == ["  9. a long item", "     that wraps", " 10. b"]


def test_a_table_is_as_wide_as_its_cells() -> None:
    assert plain("| a | bb |\n|---|---|\n| c |  |") == [
        "┌───┬────┐",
        "│ a │ bb │",
        "├───┼────┤",
        "│ c │    │",
        "└───┴────┘",
    ]


def test_html_and_otsl_tables_are_drawn_as_tables() -> None:
    table = ["┌───┬────┐", "│ a │ bb │", "├───┼────┤", "│ c │    │", "└───┴────┘"]
    html = "<table><tr><td>a</td><td>bb</td></tr>\n<tr><td>c</td><td></td></tr></table>"
    assert plain(f"Read:\n{html}\nend") == ["Read:", "", *table, "", "end"]
    assert plain("<fcel>a<fcel>bb<nl><fcel>c<ecel><nl>") == table


def test_a_tag_in_a_sentence_and_text_between_cells_stay_as_written() -> None:
    assert plain("<table> is a tag") == ["<table> is a tag"]
    assert plain("<table><tr>stray<td>a</td></tr></table>") == ["<table><tr>stray<td>a</td></tr></table>"]


def test_bare_json_is_code_and_a_long_line_of_it_is_broken() -> None:
    source = '[{"bbox_2d": [1, 2, 3.50, 4], "label": "cat"}]'
    assert plain(f"Here:\n{source}", 80)[-2:] == [f"  {source}", ""]
    assert plain(source, 40)[1:-1] == [
        "  [", "    {", '      "bbox_2d": [1, 2, 3.50, 4],', '      "label": "cat"', "    }", "  ]",
    ]  # fmt: skip
    assert plain('{"a": 1,\n    "b": [', 30)[1:-1] == ['  {"a": 1,', '      "b": [']  # still being written


def test_opening_brackets_alone_are_searched_once() -> None:
    """A text of 80,000 took a minute to parse."""
    begun = time.process_time()
    assert len(top_blocks(markdown_parser(), r"\(a" * 80_000)) == 1
    assert time.process_time() - begun < 10
    assert plain(r"a \(x\) \(y", 80) == [r"a \(x\) \(y"]


@pytest.mark.parametrize("source", ["[1] A reference", "[Image]", "{brace} yourself", "[x](y) z"])
def test_text_that_begins_like_json_is_text(source: str) -> None:
    assert plain(source) == [source]


def test_long_json_is_folded_until_it_is_unfolded() -> None:
    source = "[\n" + ",\n".join(f'  "{number}"' for number in range(60)) + "\n]"
    folded = plain(source)
    assert len(folded) < 25
    assert folded[-1] == f"  … {len(markdown_lines(source, 40, folds=False)) - 20} more lines"
    assert [line.plain.strip() for line in markdown_lines(source, 40, folds=False)].count('"59"') == 1


def test_formulas_stay_as_written() -> None:
    line = "$x*y*z$ and \\(a_1*b*\\) cost $5 or $6."
    assert plain(line, 60) == [line]
    assert plain("so\n$$\na\n= b\n- c\n$$\nend") == ["so", "", "$$", "a", "= b", "- c", "$$", "", "end"]
    assert plain("\\[\n\\frac{1}{2}\n\\]") == ["\\[", "\\frac{1}{2}", "\\]"]
    assert plain("$$ is money\n\n- a") == ["$$ is money", "", "• a"]


@pytest.mark.parametrize("width", [20, 33, 80])
@pytest.mark.parametrize(
    "source",
    [
        "word " * 40,
        "x" * 200,
        "```\n" + "code " * 40 + "\n```",
        "> " + "quoted " * 40,
        "| a | b |\n|---|---|\n| " + "cell " * 30 + " | short |",
        "漢字" * 60,
        "<table><tr><td>" + "cell " * 30 + "</td><td>short</td></tr></table>",
        '[{"a": "' + "long " * 40 + '"}]',
        "$$" + "x+" * 60 + "$$",
    ],
)
def test_no_line_is_too_wide(source: str, width: int) -> None:
    assert max(line.content.cell_length for line in markdown_lines(source, width)) <= width


@pytest.mark.parametrize("source", ["", "```", "|", "- ", "<", "**", "[x](", "1. \n2. ", "> ", "| a |\n|-|"])
def test_unfinished_json_is_no_error(source: str) -> None:
    markdown_lines(source, 20)


GROWING = (
    "# T\n\npara "
    + "word " * 30
    + "\n\n<table><tr><td>a</td><td>b</td></tr></table>\n\n[1,\n 2]\n\n$$\nx\n$$"
    + "\n\n1. a\n\n2. b\n\ntext\n- x\n\n- y\n\n| a | b |\n|---|---|\n| c | d |\n\n[x]: y\n\n```\ncode"
)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 50])
def test_a_text_that_grew_looks_as_one_laid_out_at_once(step: int) -> None:
    growing = MarkdownLines()
    for end in [*range(0, len(GROWING), step), len(GROWING)]:
        grown = growing.lay_out(GROWING[:end], 40)
        assert [line.plain for line in grown] == [line.plain for line in markdown_lines(GROWING[:end], 40)]


def test_another_text_and_another_width_start_over() -> None:
    growing = MarkdownLines()
    growing.lay_out(GROWING, 40)
    assert growing.lay_out(GROWING, 20) == markdown_lines(GROWING, 20)
    assert growing.lay_out("other", 20) == markdown_lines("other", 20)


@pytest.mark.parametrize("source", ["&#x202e;evil", "http://a.de/%E2%80%AEx"])
def test_no_bidi_mark_comes_out_of_an_entity_or_an_address(source: str) -> None:
    assert plain(source) == [source]


HUGE = {
    "words without a line break": "word " * 60_000,
    "letters without a space": "abcdefghij" * 30_000,
    "lines of one word": "word\n" * 20_000,
    "code that never ends": "Look:\n\n```python\n" + "def area(shape):  # of *all* of it\n    return 1\n" * 4_000,
    "a line of code that never ends": "```json\n" + "[1, 2], " * 30_000,
    "a table of 500 columns": f"|{'one|' * 500}\n|{'---|' * 500}\n" + f"|{'x|' * 500}\n" * 20,
    "a list": "- one **item**\n" * 6_000,
    "emoji with joiners": "👨\u200d👩\u200d👧 " * 20_000,
    "right to left, and tabs": "שלום\tعليكم\t" * 12_000,
}
"""Blocks that are much longer than a piece of the layout."""


@pytest.mark.parametrize("what", HUGE)
def test_a_huge_block_is_laid_out_in_pieces_and_nothing_of_it_vanishes(what: str) -> None:
    text = visible(HUGE[what])
    lines = markdown_lines(text, 80)
    assert max(line.content.cell_length for line in lines) <= 80
    written = text.replace("```python", "python").replace("```json", "json").replace("- ", "").replace("**", "")
    shown = "".join(line.plain for line in lines).replace("• ", "")
    left_out = Counter("".join(written.split())) - Counter("".join(shown.split()))
    assert not left_out


@pytest.mark.parametrize("what", HUGE)
def test_a_huge_block_that_grows_is_laid_out_like_a_complete_one(what: str) -> None:
    text, growing = visible(HUGE[what])[:40_000], MarkdownLines()
    for end in range(2_900, len(text) + 2_900, 2_900):
        lines = growing.lay_out(text[:end], 80)
    assert [line.plain for line in lines] == [line.plain for line in markdown_lines(text, 80)]


def test_one_more_token_of_a_huge_block_reads_only_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text, growing = HUGE["code that never ends"], MarkdownLines()
    growing.lay_out(text, 80)
    read: list[int] = []

    def noted(parser: MarkdownIt, source: str) -> list[tuple[str, SyntaxTreeNode]]:
        read.append(len(source))
        return top_blocks(parser, source)

    monkeypatch.setattr("vlmtui.ui.document.markdown_lines.top_blocks", noted)
    growing.lay_out(text + "    more = 1\n", 80)
    assert read
    assert sum(read) < 40_000


def test_a_huge_code_block_is_code_to_its_end_and_not_beyond() -> None:
    text = HUGE["code that never ends"] + "```\n\nThe *end*.\n"
    lines = [line.plain for line in markdown_lines(text, 80)]
    assert lines[-1] == "The end."
    assert sum("# of *all* of it" in line for line in lines) == 4_000
    assert sum(not line.strip() for line in lines) == 3, "above the code, at its end and below it"


def test_a_long_list_is_laid_out_in_pieces_between_its_items() -> None:
    source = "".join(f"{number}. item {number}\n\n   ```\n   code {number}\n   ```\n\n" for number in range(1, 400))
    shown = [line.strip() for line in plain(source)]
    assert [line for line in shown if line.startswith("code")] == [f"code {number}" for number in range(1, 400)]
    assert [line for line in shown if "item" in line] == [f"{number}. item {number}" for number in range(1, 400)]
    assert sum("```" in line for line in shown) == 0


@pytest.mark.parametrize("filler", range(0, 120, 7))
def test_long_code_ends_where_its_fence_closes(filler: int) -> None:
    """The filler moves the end of the code across the end of a piece."""
    code = "".join(f"line {number}\n" for number in range(2_000))
    source = f"{'x' * filler}\n\n```python\n{code}```\n\nafter\n\n" + "more text\n\n" * 2_000
    shown = plain(source)
    assert sum("```" in line for line in shown) == 0
    assert sum(line.strip().startswith("line ") for line in shown) == 2_000
    assert shown.count("after") == 1 and shown.count("more text") == 2_000


def test_a_blank_line_follows_a_paragraph_that_is_laid_out_in_pieces() -> None:
    source = "word\n" * 3_000 + "\nnext\n\n" + "last\n\n" * 2_000
    shown = plain(source)
    assert shown[2_999:3_004] == ["word", "", "next", "", "last"]


@pytest.mark.parametrize("lines", range(2_000, 2_400, 40))
def test_long_code_that_closes_where_a_piece_begins_is_closed(lines: int) -> None:
    """A piece ends at the blank line before the fence, and the line after the fence is longer than a piece."""
    shown = plain("```\n" + "line\n" * lines + "\n```\n" + "more words " * 1_000)
    assert sum("```" in line for line in shown) == 0
    assert sum(line.strip() == "line" for line in shown) == lines
