"""A short campaign; `python -m tests.batches` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.batches.campaign import BatchCampaign


@pytest.mark.process
def test_every_item_is_answered_once_after_every_fault(short_path: Path) -> None:
    campaign = BatchCampaign(short_path, items=60, seed=3)
    campaign.play(6)
    assert campaign.losses == []
    assert campaign.files >= 1
    assert sum(campaign.blows.values()) >= 6
