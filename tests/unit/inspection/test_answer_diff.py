"""The difference of two answers, also while they grow."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmtui.inspection.answer_diff import DifferingSpan, answer_diff, differing_spans, words_of

WORDS = st.sampled_from(["a", "red", "blue", "circle", "square", "is", "the", ",", "."])
PAIRS = [
    ("", ""),
    ("A red circle.", "A red circle."),
    ("A red circle.", "A blue circle."),
    ("A red  circle\n", "A red circle"),
    ("", "A cat"),
    ("日本語の猫", "日本語の犬"),
    ("\x1b[31m[b]\u202e", "\x1b[32m[b]\u2066"),
    ("नमस्ते दुनिया", "नमस्ते दोस्त"),
    ("abc日本", "abc日x"),
]


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_nothing_is_lost(left: str, right: str) -> None:
    diff = answer_diff(left, right)
    assert "".join(span.left for span in diff.spans) == left
    assert "".join(span.right for span in diff.spans) == right
    assert "".join(words_of(left)) == left
    assert diff.identical == (left == right) == (diff.first_difference is None)
    if diff.first_difference is not None:
        assert left[: diff.first_difference] == right[: diff.first_difference]


def test_words_are_the_unit() -> None:
    diff = answer_diff("A red circle.", "A reddish circle.")
    assert [(span.operation, span.left, span.right) for span in diff.spans] == [
        ("equal", "A ", "A "),
        ("changed", "red", "reddish"),
        ("equal", " circle.", " circle."),
    ]
    assert diff.first_difference == 2


def test_white_space_counts() -> None:
    diff = answer_diff("a b", "a\nb")
    assert not diff.identical
    assert [(span.left, span.right) for span in diff.spans if span.operation == "changed"] == [(" ", "\n")]


def test_chinese_and_japanese_are_compared_by_characters() -> None:
    assert answer_diff("日本語の猫", "日本語の犬").first_difference == 4
    assert words_of("abc日本") == ["abc", "日", "本"]


@pytest.mark.parametrize(
    ("left", "right", "index"),
    [
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 2, 3), (1, 5, 3), 1),
        ((1, 2), (1, 2, 3), 2),
        ((), (1,), 0),
        (None, (1,), None),
    ],
)
def test_the_first_differing_token(
    left: tuple[int, ...] | None, right: tuple[int, ...] | None, index: int | None
) -> None:
    assert answer_diff("x", "x", left, right).first_divergence == index


def test_the_same_text_may_be_other_tokens() -> None:
    diff = answer_diff("ab", "ab", (1, 2), (3,))
    assert (diff.identical, diff.first_divergence) == (True, 0)


def parts(text: str, spans: tuple[DifferingSpan, ...]) -> list[str]:
    return [text[span.start : span.end] for span in spans]


def test_words_that_differ_are_found_on_both_sides() -> None:
    left, right = "A red circle in the center.", "A blue circle in the corner."
    one, other = differing_spans(left, right, left_grows=False, right_grows=False)
    assert parts(left, one) == ["red", "center"]
    assert parts(right, other) == ["blue", "corner"]


def test_unfinished_words_and_missing_text_are_no_differences() -> None:
    left, right = "A red circle in the center.", "A re"
    assert differing_spans(left, right, left_grows=False, right_grows=True) == ((), ())
    right = "A red circle"
    assert differing_spans(left, right, left_grows=False, right_grows=True) == ((), ())
    one, other = differing_spans(left, right, left_grows=False, right_grows=False)
    assert (parts(left, one), parts(right, other)) == ([" in the center."], [])


@given(st.lists(WORDS, max_size=200), st.lists(WORDS, max_size=200))
def test_unmarked_text_is_equal_on_both_sides(one: list[str], other: list[str]) -> None:
    left, right = " ".join(one), " ".join(other)
    marked = differing_spans(left, right, left_grows=False, right_grows=False)
    kept = []
    for text, spans in zip((left, right), marked, strict=True):
        assert all(a.end <= b.start for a, b in pairwise(spans))
        ends = [0, *(span.end for span in spans)]
        starts = [*(span.start for span in spans), len(text)]
        kept.append("".join(text[a:b] for a, b in zip(ends, starts, strict=True)))
    assert kept[0] == kept[1]
