"""The cases that share a test."""

from __future__ import annotations

import pytest

from tests.support.cases import in_one_test


def test_one_failure_hides_no_other() -> None:
    seen = []

    @in_one_test({"one": (1,), "two": (2,), "three": (3,)})
    def test_odd(number: int) -> None:
        seen.append(number)
        assert number == 2

    with pytest.raises(ExceptionGroup, match="2 of 3 cases failed") as caught:
        test_odd()
    assert seen == [1, 2, 3]
    assert [error.__notes__ for error in caught.value.exceptions] == [["The case was one."], ["The case was three."]]
