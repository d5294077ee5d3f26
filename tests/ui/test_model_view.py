"""What the model sees, on the screen: four views, tiles with their tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import OptionList

from tests.support.waiting import until
from tests.unit.test_seen_pixels import drawing
from vlmtui.domain.generation import SeenMedium, SeenPicture
from vlmtui.media.stage import stage
from vlmtui.session.model_view import ModelView
from vlmtui.session.opened_view import crop_region
from vlmtui.ui.seeing.model_view_screen import ModelViewScreen
from vlmtui.ui.terminal.graphics import Graphics, GraphicsMode
from vlmtui.ui.terminal.themes import DARK, VARIABLES


class Host(App[None]):
    def __init__(self, views: list[ModelView], mode: GraphicsMode = "halfcell") -> None:
        super().__init__()
        self.graphics = Graphics(mode)
        self._views = views

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name
        self.push_screen(ModelViewScreen(self._views, range(1, len(self._views) + 1)))

    @property
    def view(self) -> ModelViewScreen:
        assert isinstance(self.screen, ModelViewScreen)
        return self.screen

    def text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips())


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


async def drawn(pilot: Pilot[None], said: str) -> Host:
    app = pilot.app
    assert isinstance(app, Host)
    await until(pilot, lambda: isinstance(app.screen, ModelViewScreen) and app.view.is_current)
    await until(pilot, lambda: app.view.shown is not None and app.view.shown == app.view._wanted)
    await until(pilot, lambda: said in app.text())
    return app


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])
async def test_one_key_flicks_between_the_views(tmp_path: Path, size: tuple[int, int]) -> None:
    async with Host([view_of(tmp_path)]).run_test(size=size) as pilot:
        app = await drawn(pilot, "What the model sees")
        assert "The processor made 3 tiles in pixel_values_flat" in app.text()
        assert "1 224 × 224 · tokens 5 to 20" in app.text()
        assert "3 224 × 224 · tokens 37 to 52" in app.text()
        await pilot.press("space")
        app = await drawn(pilot, "The difference")
        assert "levels apart" in app.text()
        await pilot.press("space")
        await drawn(pilot, "The original file")
        await pilot.press("2", "down")
        app = await drawn(pilot, "What was sent")
        assert app.view.query_one(".picture")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, ModelViewScreen))


async def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    view = view_of(tmp_path)
    (tmp_path / "street.png").unlink()
    Image.new("RGB", (224, 224), "black").save(tmp_path / "tile-1.png")
    async with Host([view]).run_test(size=(120, 30)) as pilot:
        app = await drawn(pilot, "What the model sees")
        await pilot.press("1")
        await drawn(pilot, "The original file is not there any more")
        await pilot.press("4", "down")
        await drawn(pilot, "Which part of the picture")
        assert not app.view.query(".picture")


async def test_a_layout_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    view = ModelView(attachment=view_of(tmp_path).attachment, medium=SeenMedium(modality="image", index=0, tensor="x"))
    async with Host([view, view_of(tmp_path)]).run_test(size=(120, 30)) as pilot:
        app = await drawn(pilot, "in a layout that cannot be read")
        await pilot.press("n")
        await drawn(pilot, "2 of 2")
        assert app.view.at == 1


async def test_a_click_goes_to_the_tile_or_to_the_next_view(tmp_path: Path) -> None:
    async with Host([view_of(tmp_path)]).run_test(size=(120, 40)) as pilot:
        app = await drawn(pilot, "What the model sees")
        await pilot.click(".picture", offset=(5, 5))
        await drawn(pilot, "The difference")
        await pilot.press("2")
        app = await drawn(pilot, "What was sent")
        wide = app.view.query_one(".picture").size.width
        await pilot.click(".picture", offset=(wide - 3, 5))
        await drawn(pilot, "What was sent")
        assert app.view.query_one(OptionList).highlighted == 2
        await pilot.click(".picture", offset=(wide // 2, 5))
        await until(pilot, lambda: app.view.query_one(OptionList).highlighted == 1)
