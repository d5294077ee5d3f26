"""The screen of the model's view: four views, tiles with their tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from textual.widgets import OptionList, Static

from tests.support.waiting import until
from tests.ui.seeing_host import Host
from tests.unit.test_seen_pixels import drawing
from vlmtui.domain.generation import SeenMedium, SeenPicture
from vlmtui.media.stage import stage
from vlmtui.session.opened_view import crop_region
from vlmtui.session.seeing import ModelView
from vlmtui.ui.seeing.model_view_screen import ModelViewScreen


def host(*views: ModelView) -> Host[ModelViewScreen]:
    return Host(ModelViewScreen(views, range(1, len(views) + 1)))


def view_of(folder: Path, tiles: int = 3) -> ModelView:
    image = drawing(600, 400)
    image.save(folder / "street.png")
    regions = [(x / tiles, 0.0, (x + 1) / tiles, 1.0) for x in range(tiles)]
    pictures = []
    for number, region in enumerate(regions):
        path = folder / f"tile-{number}.png"
        crop_region(image, region, (224, 224)).save(path)
        pictures.append(SeenPicture(path=str(path), width=224, height=224, offset=5 + 16 * number, length=16))
    medium = SeenMedium(modality="image", index=0, layout="tiles", tensor="pixel_values_flat", pictures=tuple(pictures))
    return ModelView(attachment=stage(folder / "street.png", folder / "media"), medium=medium)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])
async def test_one_key_switches_views(tmp_path: Path, size: tuple[int, int]) -> None:
    app = host(view_of(tmp_path))
    async with app.run_test(size=size) as pilot:
        await app.drawn(pilot, "What the model sees")
        assert "The processor made 3 tiles in pixel_values_flat" in app.text()
        assert "1 224 × 224 · tokens 5 to 20" in app.text()
        assert "3 224 × 224 · tokens 37 to 52" in app.text()
        await pilot.press("space")
        await app.drawn(pilot, "The difference")
        assert "levels apart" in app.text()
        await pilot.press("space")
        await app.drawn(pilot, "The original file")
        await pilot.press("2", "down")
        await app.drawn(pilot, "What was sent")
        assert app.seen.query_one(".picture")
        await pilot.press("escape")
        await until(pilot, lambda: app.is_closed)


async def test_missing_views_are_reported(tmp_path: Path) -> None:
    view = view_of(tmp_path)
    (tmp_path / "street.png").unlink()
    Image.new("RGB", (224, 224), "black").save(tmp_path / "tile-1.png")
    app = host(view)
    async with app.run_test(size=(120, 30)) as pilot:
        await app.drawn(pilot, "What the model sees")
        await pilot.press("1")
        await app.drawn(pilot, "The original file is not there any more")
        assert str(app.seen.query_one("#span", Static).render()) == "", "the line of the view before is gone"
        await pilot.press("4", "down")
        await app.drawn(pilot, "the part of the image that this shows")
        assert not app.seen.query(".picture")


async def test_an_unreadable_layout_is_reported(tmp_path: Path) -> None:
    view = ModelView(attachment=view_of(tmp_path).attachment, medium=SeenMedium(modality="image", index=0, tensor="x"))
    app = host(view, view_of(tmp_path))
    async with app.run_test(size=(120, 30)) as pilot:
        await app.drawn(pilot, "in a layout that cannot be read")
        await pilot.press("n")
        await app.drawn(pilot, "2 of 2")
        assert app.seen.at == 1


async def test_a_click_highlights_a_tile_or_shows_the_next_view(tmp_path: Path) -> None:
    app = host(view_of(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await app.drawn(pilot, "What the model sees")
        await pilot.click(".picture", offset=(5, 5))
        await app.drawn(pilot, "The difference")
        await pilot.press("2")
        await app.drawn(pilot, "What was sent")
        wide = app.seen.query_one(".picture").size.width
        await pilot.click(".picture", offset=(wide - 3, 5))
        await app.drawn(pilot, "What was sent")
        assert app.seen.query_one(OptionList).highlighted == 2
        await pilot.click(".picture", offset=(wide // 2, 5))
        await until(pilot, lambda: app.seen.query_one(OptionList).highlighted == 1)
