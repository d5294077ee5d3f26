"""Intervals and the paired test, against published values."""

from __future__ import annotations

import pytest

from vlmtui.inspection.statistics import interval, paired_p, share_text


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_intervals_are_those_of_newcombe_1998(right: int, total: int, low: float, high: float) -> None:
    assert interval(right, total) == pytest.approx((low, high), abs=1e-4)


def test_a_share_is_shown_with_its_interval() -> None:
    assert share_text(1, 2) == "50.0 % (9.5 to 90.5)"


@pytest.mark.parametrize(
    ("wins", "losses", "p"), [(0, 0, 1.0), (5, 5, 1.0), (0, 5, 0.0625), (6, 0, 0.03125), (12, 3, 0.03516)]
)
def test_the_paired_test_is_exact(wins: int, losses: int, p: float) -> None:
    assert paired_p(wins, losses) == pytest.approx(p, abs=1e-5)


def test_the_paired_test_takes_many_items() -> None:
    assert paired_p(5_000, 5_300) == pytest.approx(0.0032, abs=2e-4)
