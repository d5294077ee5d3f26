"""A short campaign; `make torture` runs the long one."""

from __future__ import annotations

from pathlib import Path

from tests.torture.campaign import BLOWS, run


def test_nothing_is_lost_whatever_is_struck(short_path: Path) -> None:
    campaign = run(short_path, rounds=len(BLOWS), seed=7, kept_after_s=10)
    assert set(campaign.rounds) == set(BLOWS)
    assert campaign.losses.found == []
