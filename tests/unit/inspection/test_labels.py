"""The probability of each label from one answer."""

from __future__ import annotations

import math

import pytest

from vlmtui.domain.generation import Candidate, Token, TokenLogprob
from vlmtui.inspection.labels import label_probabilities

TEXTS = ("red", " red", "re", "d", "al", "gr", "een", "<end>", "b")
VOCABULARY = {at: Token(text=text) for at, text in enumerate(TEXTS)}


def position(chosen: str, **chances: float) -> TokenLogprob:
    """A token of the answer; the likeliest tokens by their text, `_red` for ` red`, `end` for the end."""
    ids = {name: TEXTS.index({"end": "<end>"}.get(name, name.replace("_", " "))) for name in chances}
    top = tuple(Candidate(token_id=ids[name], logprob=math.log(chance)) for name, chance in chances.items())
    return TokenLogprob(token_id=ids[chosen], logprob=math.log(chances[chosen]), top=top)


def test_each_spelling_of_a_label_counts_and_others_do_not() -> None:
    answer = [position("red", red=0.4, _red=0.2, gr=0.2, al=0.1)]
    found = label_probabilities(["red", "green"], answer, VOCABULARY)
    assert found == {"red": pytest.approx(0.75), "green": pytest.approx(0.25)}


def test_labels_with_one_beginning_are_told_apart_by_the_answer() -> None:
    answer = [position("re", re=0.8, gr=0.2), position("d", d=0.75, al=0.25)]
    found = label_probabilities(["red", "real", "green"], answer, VOCABULARY)
    assert found == {"red": pytest.approx(0.6), "real": pytest.approx(0.2), "green": pytest.approx(0.2)}


def test_a_beginning_in_another_spelling_is_parted_alike() -> None:
    answer = [position("red", red=0.5, _red=0.3, gr=0.2), position("al", al=0.5, end=0.5)]
    found = label_probabilities(["redal", "redb", "green"], answer, VOCABULARY)
    assert found == {"redal": pytest.approx(0.8), "redb": 0.0, "green": pytest.approx(0.2)}


def test_a_label_that_another_begins_with_gets_the_rest() -> None:
    answer = [position("re", re=1.0), position("end", d=0.4, end=0.6)]
    found = label_probabilities(["re", "red"], answer, VOCABULARY)
    assert found == {"re": pytest.approx(0.6), "red": pytest.approx(0.4)}


def test_what_the_answer_does_not_tell_is_unknown() -> None:
    answer = [position("gr", re=0.3, gr=0.7)]
    assert label_probabilities(["red", "real", "green"], answer, VOCABULARY) == {
        "red": None, "real": None, "green": pytest.approx(1.0),
    }  # fmt: skip
    assert label_probabilities(["b", "x"], [position("red", red=1.0)], VOCABULARY) == {"b": 0.0, "x": 0.0}
    assert label_probabilities(["a"], [], VOCABULARY) == {"a": None}
