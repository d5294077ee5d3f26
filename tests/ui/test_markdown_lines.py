"""Markdown laid out as lines."""

from __future__ import annotations

import pytest

from vlmtui.ui.widgets.markdown_lines import MarkdownLines, markdown_lines


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
    ],
)
def test_no_line_is_too_wide(source: str, width: int) -> None:
    assert max(line.cell_length for line in markdown_lines(source, width)) <= width


@pytest.mark.parametrize("source", ["", "```", "|", "- ", "<", "**", "[x](", "1. \n2. ", "> ", "| a |\n|-|"])
def test_what_is_unfinished_is_no_error(source: str) -> None:
    markdown_lines(source, 20)


GROWING = (
    "# T\n\npara "
    + "word " * 30
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
