"""The difference of two answers, also while they grow."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from vlmtui.inspection.answer_diff import answer_diff, words_of

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
def test_joined_spans_are_both_answers(left: str, right: str) -> None:
    diff = answer_diff(left, right)
    assert "".join(span.left for span in diff.spans) == left
    assert "".join(span.right for span in diff.spans) == right
    assert "".join(words_of(left)) == left
    assert diff.identical == (left == right) == (diff.first_difference is None)
    if diff.first_difference is not None:
        assert left[: diff.first_difference] == right[: diff.first_difference]


def test_answers_are_compared_by_words() -> None:
    diff = answer_diff("A red circle.", "A reddish circle.")
    assert [(span.operation, span.left, span.right) for span in diff.spans] == [
        ("equal", "A ", "A "),
        ("changed", "red", "reddish"),
        ("equal", " circle.", " circle."),
    ]
    assert diff.first_difference == 2


def test_white_space_differences_are_found() -> None:
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
def test_the_first_differing_token_is_reported(
    left: tuple[int, ...] | None, right: tuple[int, ...] | None, index: int | None
) -> None:
    assert answer_diff("x", "x", left, right).first_divergence == index


def test_equal_texts_may_have_different_tokens() -> None:
    diff = answer_diff("ab", "ab", (1, 2), (3,))
    assert (diff.identical, diff.first_divergence) == (True, 0)
