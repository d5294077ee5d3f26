"""What is shown of a long answer until it is complete."""

from __future__ import annotations

import pytest

from vlmtui.ui.compare.growing_text import GROWING_MAX, growing


def test_a_short_text_is_shown_as_it_is() -> None:
    text = "word " * (GROWING_MAX // 5)
    assert growing("") == "" and growing(text) == text


@pytest.mark.parametrize("text", ["word " * 20_000, "x" * 100_000, "line\n" * 20_000])
def test_of_a_long_text_the_end_is_shown_and_how_much_is_above(text: str) -> None:
    first, _, rest = growing(text).partition("\n")
    assert text.endswith(rest) and GROWING_MAX - 200 <= len(rest) <= GROWING_MAX
    assert f" {len(text) - len(rest):,} characters above" in first
