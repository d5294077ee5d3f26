"""The look of the screens of the model's view, drawn in half cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from textual.pilot import Pilot

from tests.support.waiting import until
from tests.ui import test_model_view, test_occlusion_screen, test_places
from vlmtui.media.stage import stage
from vlmtui.registry.loader import Registry
from vlmtui.session.answer_places import places_of
from vlmtui.session.prompt_report import PromptReport

SnapCompare = Callable[..., bool]
SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])


@SIZES
def test_where_an_answer_points(snap_compare: SnapCompare, tmp_path: Path, size: tuple[int, int]) -> None:
    street = Image.new("RGB", (400, 200), "#dddddd")
    ImageDraw.Draw(street).rectangle((100, 50, 300, 150), fill="#8899bb")
    street.save(tmp_path / "street.png")
    image = stage(tmp_path / "street.png", tmp_path / "media")
    report = PromptReport(title="1", answer=test_places.BOXES, attachments=(image,))
    places = places_of(report, Registry.bundled()["qwen3_vl"])

    host = test_places.host(places, tmp_path)
    assert snap_compare(host, terminal_size=size, run_before=host.drawn)


@SIZES
def test_the_heat_map_screen(snap_compare: SnapCompare, tmp_path: Path, size: tuple[int, int]) -> None:
    host = test_occlusion_screen.host(tmp_path)

    async def before(pilot: Pilot[None]) -> None:
        await host.drawn(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: host.seen.map is not None)
        await host.drawn(pilot)

    assert snap_compare(host, terminal_size=size, run_before=before)


@SIZES
def test_the_view_of_the_model_screen(snap_compare: SnapCompare, tmp_path: Path, size: tuple[int, int]) -> None:
    host = test_model_view.host(test_model_view.view_of(tmp_path))

    async def before(pilot: Pilot[None]) -> None:
        await host.drawn(pilot, "What the model sees")
        await pilot.press("2", "down")
        await host.drawn(pilot, "What was sent")

    assert snap_compare(host, terminal_size=size, run_before=before)
