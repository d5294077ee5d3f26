"""The tokens that the bundled model's record estimates are those that the real engine counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.support.pictures import Easel
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.media.stage import stage
from vlmtui.registry.estimate import estimated_tokens
from vlmtui.registry.match import Model
from vlmtui.session.generation import make_request, render

pytestmark = pytest.mark.engine
SIZES = [(1, 1), (37, 37), (168, 168), (640, 480), (300, 900), (2000, 40)]


async def test_the_engine_counts_the_tokens_that_the_record_estimates(
    engine: WorkerClient, shapes: Model, tmp_path: Path
) -> None:
    items = []
    for width, height in SIZES:
        path = tmp_path / f"{width} by {height}.png"
        Image.new("RGB", (width, height), "red").save(path)
        items.append(stage(path, tmp_path / "media"))
    items.append(Easel(tmp_path).clip("blue", "circle", "up").attachment)
    prompt = make_request(shapes.family, [user_turn("What?", items)], Sampling(), mode="chat").prompt
    ready = await render(engine, prompt)
    counted = [span.tokens for span in sorted(ready.media, key=lambda span: (span.modality, span.index))]
    assert [estimated_tokens(shapes.family, item) for item in items] == counted
