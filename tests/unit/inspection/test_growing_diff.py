"""The differing words of two answers while they grow."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from vlmtui.inspection.answer_diff import DifferingSpan, GrowingDiff

WORDS = st.sampled_from(["a", "red", "blue", "circle", "square", "is", "the", ",", "."])


def parts(text: str, spans: tuple[DifferingSpan, ...]) -> list[str]:
    return [text[span.start : span.end] for span in spans]


def test_words_that_differ_are_found_on_both_sides() -> None:
    left, right = "A red circle in the center.", "A blue circle in the corner."
    one, other = GrowingDiff().spans(left, right, left_grows=False, right_grows=False)
    assert parts(left, one) == ["red", "center"]
    assert parts(right, other) == ["blue", "corner"]


def test_a_word_that_is_not_whole_yet_and_what_the_other_side_has_not_come_to_are_no_differences() -> None:
    diff = GrowingDiff()
    left, right = "A red circle in the center.", "A re"
    assert diff.spans(left, right, left_grows=False, right_grows=True) == ((), ())
    right = "A red circle"
    assert diff.spans(left, right, left_grows=False, right_grows=True) == ((), ())
    one, other = diff.spans(left, right, left_grows=False, right_grows=False)
    assert (parts(left, one), parts(right, other)) == ([" in the center."], [])


@given(st.lists(WORDS, max_size=900), st.lists(WORDS, max_size=900), st.integers(1, 200))
def test_what_is_not_marked_is_the_same_on_both_sides(one: list[str], other: list[str], step: int) -> None:
    """However the answers came: without what is marked, both are the same text."""
    left, right = " ".join(one), " ".join(other)
    diff = GrowingDiff()
    for at in range(0, max(len(left), len(right)), step * 8):
        diff.spans(left[:at], right[:at], left_grows=at < len(left), right_grows=at < len(right))
    marked = diff.spans(left, right, left_grows=False, right_grows=False)
    kept = []
    for text, spans in zip((left, right), marked, strict=True):
        assert all(a.end <= b.start for a, b in pairwise(spans))
        ends = [0, *(span.end for span in spans)]
        starts = [*(span.start for span in spans), len(text)]
        kept.append("".join(text[a:b] for a, b in zip(ends, starts, strict=True)))
    assert kept[0] == kept[1]


def test_long_answers_are_settled_and_cost_what_is_new() -> None:
    """After thousands of equal words, a look compares hundreds and not all."""
    diff = GrowingDiff()
    text = " ".join(f"word{number}" for number in range(20_000))
    diff.spans(text, text, left_grows=True, right_grows=True)
    assert min(diff._at) > len(text) - 2_000
    one, other = diff.spans(f"{text} left", f"{text} right", left_grows=False, right_grows=False)
    assert parts(f"{text} left", one) == ["left"]
    assert parts(f"{text} right", other) == ["right"]
