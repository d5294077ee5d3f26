"""The places of an answer: marks on the picture, their list, the conventions, the export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image
from textual.app import App
from textual.widgets import OptionList

from tests.support.scripted_engine import Say
from tests.support.videos import write_video
from tests.support.waiting import until
from tests.ui.conftest import StartChat, picture
from tests.ui.seeing_host import Host
from vlmtui.media.stage import stage
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import model_of
from vlmtui.session.answer_places import AnswerPlaces, places_of
from vlmtui.session.engines import AppEngines
from vlmtui.session.prompt_report import PromptReport
from vlmtui.ui.chat import inspections
from vlmtui.ui.seeing.places_screen import PlacesScreen
from vlmtui.ui.terminal.graphics import GraphicsMode
from vlmtui.ui.widgets.thumbnails import NumberedPicture

BOXES = (
    '[{"bbox_2d": [250, 250, 750, 750], "label": "[red]cat\\u001b]0;t\\u0007"},'
    ' {"point_2d": [900, 2000], "label": "dog"}, {"bbox_2d": [1, 2, NaN, 4]}]'
)


def host(places: AnswerPlaces, folder: Path, mode: GraphicsMode = "halfcell") -> Host[PlacesScreen]:
    return Host(PlacesScreen(places, range(1, len(places.media) + 1), folder=folder), mode)


def found(folder: Path, answer: str = BOXES) -> AnswerPlaces:
    Image.new("RGB", (400, 200), "white").save(folder / "street.png")
    image = stage(folder / "street.png", folder / "media")
    return places_of(PromptReport(title="1", answer=answer, attachments=(image,)), Registry.bundled()["qwen3_vl"])


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])
async def test_marks_are_numbered_listed_and_shown_in_the_answer(tmp_path: Path, size: tuple[int, int]) -> None:
    app = host(found(tmp_path), tmp_path)
    async with app.run_test(size=size) as pilot:
        await app.drawn(pilot)
        text = app.text()
        assert "street.png" in text
        assert "Read as 0 to 1000, x first" in text
        assert "1 of 2 inside · 1 unreadable" in text
        assert "[red]cat" in text
        assert "100,50,300,150" in text
        assert "360,200 cut" in text
        assert "\x1b" not in text
        assert "\x07" not in text
        numbers = {one.text for strip in app.seen.query_one(NumberedPicture)._strips for one in strip}
        assert {"1", "2"} <= numbers


async def test_the_convention_is_cycled_and_the_files_are_written(tmp_path: Path) -> None:
    app = host(found(tmp_path), tmp_path)
    async with app.run_test(size=(120, 30)) as pilot:
        await app.drawn(pilot)
        await pilot.press("down", "m")
        assert app.seen.places.grounding.scale == "pixels"
        assert app.seen.chosen == 1
        await pilot.press("a")
        await app.drawn(pilot)
        assert "pixels of the picture, y first (the record says 0 to 1000, x first)" in app.text()
        await pilot.press("a", "w")
        await until(pilot, lambda: (tmp_path / "vlmtui-places.json").is_file())
        wrote = msgspec.json.decode((tmp_path / "vlmtui-places.json").read_bytes())
        assert [one["bbox"] for one in wrote["annotations"]] == [[250, 200, 150, 0], [400, 200, 0, 0]]
        with Image.open(tmp_path / "vlmtui-places.png") as image:
            assert image.size == (400, 200)
        await pilot.press("escape")
        await until(pilot, lambda: app.is_closed)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])
async def test_the_frame_of_a_time_is_shown(tmp_path: Path, size: tuple[int, int]) -> None:
    grey = [np.full((96, 128, 3), level, np.uint8) for level in (0, 80, 160, 240)]
    write_video(tmp_path / "clip.mp4", grey, fps=2)
    video = stage(tmp_path / "clip.mp4", tmp_path / "media")
    answer = (
        '<points coords="0.5 1 500 500;1.5 1 250 500">the [b]cat</points> {"start": "00:01.00", "end": "9:00.00", '
        '"label": "late\\u001b]0;t\\u0007"} {"start": 700, "end": 800}'
    )
    found = places_of(PromptReport(title="1", answer=answer, attachments=(video,)), Registry.bundled()["molmo2"])
    app = host(found, tmp_path)
    async with app.run_test(size=size) as pilot:
        await app.drawn(pilot)

        async def shows(level: int, title: str) -> None:
            await until(pilot, lambda: app.seen.opened is not None and title in app.text())
            assert app.seen.opened is not None
            pixel = app.seen.opened.getpixel((5, 5))
            assert isinstance(pixel, tuple) and abs(pixel[0] - level) < 12

        await shows(80, "clip.mp4 at 0.50 s")
        assert "2 of 2 inside · 2 time ranges" in app.text()
        assert "64,48 at 0.50 s" in app.text()
        assert "1.00 s – 9:00.00 late" in app.text()
        assert "\x1b" not in app.text()
        await pilot.press("down")
        await shows(240, "clip.mp4 at 1.50 s")
        await pilot.press("down")
        await shows(160, "clip.mp4 at 1.00 s")
        await pilot.press("down")
        await until(pilot, lambda: "is only" in app.text())
        await pilot.press("up", "w")
        await until(pilot, lambda: (tmp_path / "vlmtui-places.json").is_file())


async def test_without_pictures_the_list_stays(tmp_path: Path) -> None:
    app = host(found(tmp_path), tmp_path, "off")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.screen is app.seen and app.seen.is_current)
        await until(pilot, lambda: "100,50,300,150" in app.text())
        assert not app.seen.query(".picture")


async def test_a_thousand_marks_stay_fast(tmp_path: Path) -> None:
    many = "".join(f'{{"bbox_2d": [{at % 900}, {at % 700}, 990, 990]}}' for at in range(5000))
    app = host(found(tmp_path, many), tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.drawn(pilot)
        assert app.seen.query_one(OptionList).option_count == 1000


@pytest.fixture
def without_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no record say how the model writes places, as that of the bundled model does."""
    monkeypatch.setattr(inspections, "family_of", lambda *_: None)


@pytest.mark.usefixtures("without_record")
async def test_the_chat_opens_it_for_the_last_answer(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting([Say(BOXES)], [Say("A cat.")]) as chat:
        await chat.paste(str(picture(tmp_path)))
        await chat.until(lambda: bool(chat.controller.draft.tokens))
        await chat.say("Where is the cat?")
        await chat.lead("p", "b")
        await chat.until(lambda: isinstance(chat.app.screen, PlacesScreen))
        await chat.until(lambda: "a guess: no record says it" in chat_text(chat.app))
        await chat.pilot.press("escape")
        await chat.until(lambda: not isinstance(chat.app.screen, PlacesScreen))
        await chat.say("And now?")
        await chat.lead("p", "b")
        await chat.until(lambda: "No boxes, polygons, points or times" in chat.notes)


def chat_text(app: App[Any]) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


async def test_locate_inserts_the_familys_own_prompt(chatting: StartChat, monkeypatch: pytest.MonkeyPatch) -> None:
    async with chatting() as chat:
        await chat.send("/locate the cat")
        await chat.until(lambda: chat.composer.text == "Locate the cat.")
        await chat.pilot.press("ctrl+u")
        monkeypatch.setattr(AppEngines, "model", model_of(Registry.bundled()["llava"]))
        await chat.send("/locate the cat")
        await chat.until(lambda: "no prompt for locating objects" in chat.notes)
        qwen = model_of(Registry.bundled()["qwen2_5_vl"])
        monkeypatch.setattr(AppEngines, "model", qwen)
        await chat.send("/locate the cat")
        wanted = "Outline the position of the cat and output all the coordinates in JSON format."
        await chat.until(lambda: chat.composer.text == wanted)


@pytest.mark.parametrize("family", [one for one, record in Registry.bundled().items() if record.grounding])
def test_a_prompt_for_a_place_names_the_object(family: str) -> None:
    grounding = Registry.bundled()[family].grounding
    assert grounding is not None
    assert not grounding.prompt or grounding.prompt.count("{what}") == 1
