"""The heat map in real vLLM: the bundled model's words depend on the part of the picture where their shape is."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_occlusion import Finding, points_at
from vlmtui.engine.local.client import WorkerClient
from vlmtui.registry.match import Model

pytestmark = pytest.mark.engine


@pytest.mark.timeout(600)
async def test_the_part_that_matters_most_is_where_the_shape_is(
    engine: WorkerClient, shapes: Model, tmp_path: Path
) -> None:
    """`make occlusion` measures a hundred drawings."""
    found: list[Finding] = [await points_at(engine, shapes, tmp_path, number) for number in range(4)]
    assert [one.where for one in found] == ["asked"] * 4
    assert min(one.with_asked for one in found) > 0.35
    assert max(one.with_other for one in found) < 0.1
