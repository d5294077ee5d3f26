"""The differing words of two answers while they grow."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from vlmtui.inspection.answer_diff import DifferingSpan, differing_spans

WORDS = st.sampled_from(["a", "red", "blue", "circle", "square", "is", "the", ",", "."])


def parts(text: str, spans: tuple[DifferingSpan, ...]) -> list[str]:
    return [text[span.start : span.end] for span in spans]


def test_words_that_differ_are_found_on_both_sides() -> None:
    left, right = "A red circle in the center.", "A blue circle in the corner."
    one, other = differing_spans(left, right, left_grows=False, right_grows=False)
    assert parts(left, one) == ["red", "center"]
    assert parts(right, other) == ["blue", "corner"]


def test_a_word_that_is_not_whole_yet_and_what_the_other_side_has_not_come_to_are_no_differences() -> None:
    left, right = "A red circle in the center.", "A re"
    assert differing_spans(left, right, left_grows=False, right_grows=True) == ((), ())
    right = "A red circle"
    assert differing_spans(left, right, left_grows=False, right_grows=True) == ((), ())
    one, other = differing_spans(left, right, left_grows=False, right_grows=False)
    assert (parts(left, one), parts(right, other)) == ([" in the center."], [])


@given(st.lists(WORDS, max_size=200), st.lists(WORDS, max_size=200))
def test_what_is_not_marked_is_the_same_on_both_sides(one: list[str], other: list[str]) -> None:
    left, right = " ".join(one), " ".join(other)
    marked = differing_spans(left, right, left_grows=False, right_grows=False)
    kept = []
    for text, spans in zip((left, right), marked, strict=True):
        assert all(a.end <= b.start for a, b in pairwise(spans))
        ends = [0, *(span.end for span in spans)]
        starts = [*(span.start for span in spans), len(text)]
        kept.append("".join(text[a:b] for a, b in zip(ends, starts, strict=True)))
    assert kept[0] == kept[1]
