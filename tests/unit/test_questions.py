"""The smoke test's questions about drawn images, and how answers are judged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from vlmtui.session.check.questions import Question, QuestionOutcome, QuestionResult, is_right, questions, sees


def test_pictures_are_the_same_each_time_and_others_with_another_seed(tmp_path: Path) -> None:
    def drawn(name: str, seed: int) -> list[str]:
        (folder := tmp_path / name).mkdir()
        cases = questions(folder, tmp_path / "media", seed)
        return [one.sha256 for case in cases for turn in case.turns for one in turn.attachments]

    assert drawn("a", 1) == drawn("b", 1) != drawn("c", 2)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("The second image is brighter than the first.", True),
        ("**Second.**", True),
        ("Image 1 is dark, image 2 is bright.", False),
        ("The first.", False),
        ("", False),
    ],
)
def test_a_comparison_is_judged_by_the_first_name(answer: str, right: bool) -> None:
    case = Question(skill="compare", turns=(), expected=(("second", "2"),), unwanted=("first", "1"))
    assert is_right(case, answer) is right


def test_colour_and_kind_have_to_be_named() -> None:
    case = Question(skill="what", turns=(), expected=(("red",), ("circle", "dot")))
    assert is_right(case, "A big RED dot!") and is_right(case, "circles, red ones")
    assert not is_right(case, "A bored circle.") and not is_right(case, "Red squares")


def test_two_of_three_lone_shapes_are_seeing() -> None:
    right, wrong = (
        QuestionResult(skill="what", asked="", seen="", expected="", outcome=outcome)
        for outcome in (QuestionOutcome.RIGHT, QuestionOutcome.WRONG)
    )
    assert sees([right, right, wrong]) is True and sees([right, wrong, wrong]) is False
    failed = msgspec.structs.replace(wrong, outcome=QuestionOutcome.FAILED)
    assert sees([right, failed, failed]) is None and sees([]) is None
