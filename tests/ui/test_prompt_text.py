"""Long text is broken where the width ends, but not inside a token or an image."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content

from vlmtui.ui.document.blocks import row_lengths


def rows(width: int, *stretches: tuple[str, bool]) -> list[str]:
    """The text in rows; the stretches with True have a style."""
    line = Content.assemble(*((text, "bold") if styled else text for text, styled in stretches))
    at, found = 0, []
    for part in row_lengths(line, width):
        found.append(line.plain[at : at + part])
        at += part
    assert at == len(line.plain)
    return found


def test_a_special_token_goes_into_the_next_row_whole() -> None:
    assert rows(12, ("What is ", False), ("<|im_end|>", True), ("\u23ce", False)) == ["What is ", "<|im_end|>\u23ce"]


def test_one_that_fits_nowhere_is_broken() -> None:
    assert rows(8, ("ab", False), ("<|im_start|>", True)) == ["ab<|im_s", "tart|>"]


def test_spaces_are_kept_where_the_width_ends() -> None:
    assert rows(8, ("a    b    c", False)) == ["a    b  ", "  c"]


@given(st.lists(st.tuples(st.text("ab é漢 🙂", max_size=14), st.booleans()), max_size=6), st.integers(8, 20))
def test_nothing_is_lost_torn_or_too_wide(stretches: list[tuple[str, bool]], width: int) -> None:
    found = rows(width, *stretches)
    assert all(cell_len(row) <= width for row in found)
    assert len(found) == 1 or all(found)
    ends, position = [len("".join(found[:number])) for number in range(1, len(found))], 0
    for text, styled in stretches:
        assert not (styled and cell_len(text) <= width and any(position < end < position + len(text) for end in ends))
        position += len(text)
