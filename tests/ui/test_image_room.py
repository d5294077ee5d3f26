"""The image room: its modes, patches, zoom, list, and files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image, ImageDraw
from textual.app import App
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from tests.support.documents import written
from tests.support.scripted_engine import Say, scripted_info
from tests.support.videos import write_video
from tests.support.waiting import until
from tests.ui.conftest import StartChat, picture
from tests.unit.test_seen_pixels import drawing
from vlmtui.domain.conversation import Attachment, ChatPrompt, VideoSampling, attachments_of, user_turn
from vlmtui.domain.generation import (
    Delta,
    EngineEvent,
    Failed,
    Failure,
    Finished,
    GenerateRequest,
    MediaSpan,
    PromptReady,
    Request,
    ScoreRequest,
    SeenMedium,
    SeenPicture,
    Timings,
    Token,
    TokenLogprob,
    Usage,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind
from vlmtui.media.frames import sample_frames
from vlmtui.media.images import open_prepared
from vlmtui.media.stage import stage
from vlmtui.media.thumbnails import StoredPixels, open_pixels
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import model_of
from vlmtui.session.engines import AppEngines
from vlmtui.session.opened_view import crop_region
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.seeing import ModelView, RoomImage, RoomMode
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.seeing import modes
from vlmtui.ui.seeing.modes import BlindMode, BoxesMode, HeatMode, SeenMode
from vlmtui.ui.seeing.room import ImageRoom
from vlmtui.ui.terminal.graphics import Graphics, GraphicsMode, Picture
from vlmtui.ui.terminal.themes import DARK, VARIABLES

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])
HOSTILE = "[red]a\x1b]0;t\x07\u202eb[.jpg"
BOXES = (
    '[{"bbox_2d": [250, 250, 750, 750], "label": "[red]cat\\u001b]0;t\\u0007"},'
    ' {"point_2d": [900, 2000], "label": "dog"}, {"bbox_2d": [1, 2, NaN, 4]}]'
)
IDS, TEXTS = (1, 2, 3), ("a", " red\x1b]0;t\x07", " one")


class Looks:
    """The second token is unlikely where the middle of the last two columns is grey, or without an image. Waits until
    `may_go`."""

    def __init__(self) -> None:
        self.info = scripted_info()
        self.spec = self.info.spec
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.fails = False

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        await self.may_go.wait()
        if self.fails:
            failure = Failure(kind=ErrorKind.INTERNAL, message="It broke.")
            yield Failed(request_id=request.request_id, failure=failure)
            return
        assert isinstance(request, ScoreRequest)
        pixels = [open_prepared(image.path).getpixel((330, 70)) for image in attachments_of(request.prompt)]
        is_seen = bool(pixels) and pixels[0] != (128, 128, 128)
        scores = tuple(
            TokenLogprob(token_id=token, logprob=-0.1 if is_seen or at != 1 else -2.4)
            for at, token in enumerate(request.tokens)
        )
        yield Delta(request_id=request.request_id, text="", tokens=len(scores), logprobs=scores)
        usage, timings = Usage(), Timings()
        yield Finished(request_id=request.request_id, finish_reason="length", usage=usage, timings=timings)


class Host(App[None]):
    """Opens the image room."""

    def __init__(
        self,
        attachments: Sequence[Attachment],
        at: int = 0,
        mode: RoomMode = "sent",
        *,
        answer: PromptReport | None = None,
        engine: Any = None,
        family: str = "qwen3_vl",
        graphics: GraphicsMode = "halfcell",
        settle_s: float = 0.0,
    ) -> None:
        super().__init__()
        self.graphics = Graphics(graphics)
        folder = Path(attachments[0].path).parents[2]

        async def report() -> PromptReport:
            assert answer is not None
            return answer

        images = [RoomImage(item, at, report if answer else None) for at, item in enumerate(attachments, 1)]
        self.room = ImageRoom(
            images,
            at,
            mode,
            engine=lambda: engine,
            family=lambda _: Registry.bundled()[family],
            store=folder / "seen",
            folder=folder,
            settle_s=settle_s,
        )

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name
        self.push_screen(self.room)

    @property
    def is_closed(self) -> bool:
        return self.screen is not self.room

    @property
    def rows(self) -> OptionList:
        return self.room.query_one(OptionList)

    def said(self, where: str) -> str:
        return str(self.room.query_one(where, Static).render())

    def text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips())

    def pixels(self) -> Image.Image:
        """The image as it is drawn."""
        assert self.room._drawn is not None
        return self.room._drawn.image

    async def drawn(self, pilot: Pilot[None], said: str = "") -> None:
        """Wait until the room shows its image, and the text."""
        room = self.room
        await until(pilot, lambda: self.screen is room and room.is_current)
        await until(pilot, lambda: room.shown is not None and room.shown == room.wanted)
        await pilot.pause()
        await until(pilot, lambda: said in self.text())


def scene(size: tuple[int, int]) -> Image.Image:
    """Four quarters of different colours with a circle in the middle."""
    width, height = size
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 0, width // 2, height // 2), fill="red")
    pen.rectangle((width // 2, 0, width, height // 2), fill="lime")
    pen.rectangle((0, height // 2, width // 2, height), fill="blue")
    pen.ellipse((width // 3, height // 3, width * 2 // 3, height * 2 // 3), fill="orange")
    return image


@pytest.fixture
def three(tmp_path: Path) -> list[Attachment]:
    """A photo with a hostile name, a film of 12 frames, a small picture."""
    films = [np.asarray(Image.new("RGB", (96, 64), (20 * number, 0, 255 - 20 * number))) for number in range(12)]
    write_video(tmp_path / "film.mp4", films)
    scene((24, 24)).save(tmp_path / "icon.png")
    store = tmp_path / "store"
    source = tmp_path / HOSTILE
    scene((640, 480)).save(source)
    staged = msgspec.structs.replace(stage(source, store), source=str(source))
    return [staged, stage(tmp_path / "film.mp4", store), stage(tmp_path / "icon.png", store)]


def white(folder: Path) -> Attachment:
    Image.new("RGB", (400, 200), "white").save(folder / "street.png")
    return stage(folder / "street.png", folder / "media")


def answered(image: Attachment, answer: str = "", **facts: Any) -> PromptReport:
    """A report of an answer about this image: 2 × 4 patches, tokens 5 to 12 of the prompt."""
    prompt = ChatPrompt(turns=(user_turn("What is it?", [image]),))
    span = MediaSpan(modality="image", index=0, offset=5, length=8, tokens=8, resized=(448, 224), grid=(1, 4, 8))
    return PromptReport(
        title="1",
        answer=answer,
        attachments=(image,),
        prompt=PromptReady(request_id="1", prompt="", token_ids=tuple(range(20)), media=(span,)),
        request=GenerateRequest(request_id="1", prompt=prompt, sampling=Sampling()),
        answer_ids=IDS,
        vocabulary={**{id: Token(text=text) for id, text in zip(IDS, TEXTS, strict=True)}, 7: Token(text="<pad>")},
        **facts,
    )


def scored(folder: Path, engine: Looks | None = None, mode: RoomMode = "heat") -> Host:
    image = white(folder)
    return Host([image], mode=mode, answer=answered(image), engine=engine or Looks())


# -- an image as sent


@SIZES
async def test_an_image_is_as_large_as_fits(three: list[Attachment], size: tuple[int, int]) -> None:
    for at in (0, 2):
        app = Host(three, at)
        async with app.run_test(size=size) as pilot:
            await pilot.press("i")
            await app.drawn(pilot)
            shown = app.room.query_one(".picture")
            assert shown.size.height == app.room.query_one("#stage").size.height == size[1] - 4
            assert app.room.region.contains_region(shown.region)


async def test_next_and_previous_go_around(three: list[Attachment]) -> None:
    app = Host(three, 1)
    async with app.run_test(size=(80, 24)) as pilot:
        for key, name in (("n", "icon"), ("n", "red"), ("N", "icon"), ("N", "film"), ("N", "red")):
            await pilot.press(key)
            assert name in app.said("#title")
            await app.drawn(pilot)
        assert "1 of 3" in app.said("#place")
        assert app.pixels().getpixel((2, 2))[0] > 200  # type: ignore[index]
        await pilot.press("q")
        await until(pilot, lambda: app.is_closed)


@pytest.mark.slow
@SIZES
async def test_zoom_pan_and_reset(three: list[Attachment], size: tuple[int, int]) -> None:
    app = Host(three)
    async with app.run_test(size=size) as pilot:
        await app.drawn(pilot)
        whole = app.pixels().tobytes()
        await pilot.press("shift+right", "shift+up")
        assert app.room.view.x == 0.5, "the whole image cannot be moved"
        await pilot.press("+", "plus", "equals_sign")
        await app.drawn(pilot)
        assert app.room.view.zoom == pytest.approx(1.5**3)
        assert "zoom 3.4×" in app.said("#place")
        assert app.pixels().tobytes() != whole
        assert app.room.query_one(".picture").size == app.room.query_one("#stage").size, "it fills the stage now"
        for keys, corner in (
            (["shift+left"] * 10 + ["shift+up"] * 10, (255, 0, 0)),
            (["shift+right"] * 10, (0, 255, 0)),
            (["shift+down"] * 10, (255, 255, 255)),
        ):
            await pilot.press(*keys)
            await app.drawn(pilot)
            seen = np.asarray(app.pixels())
            x = 1 if corner == (255, 0, 0) else -2
            assert np.allclose(seen[1 if min(corner) == 0 else -2, x], corner, atol=12)
        await pilot.press("0")
        await app.drawn(pilot)
        assert app.pixels().tobytes() == whole
        await pilot.press("minus")
        assert app.room.view.zoom == 1.0
        for _ in range(30):
            app.room.action_zoom(1)
        await app.drawn(pilot)
        assert app.room.view.zoom == pytest.approx(1.5**10)


async def test_the_sent_frames_of_a_video_are_shown(three: list[Attachment]) -> None:
    film = msgspec.structs.replace(three[1], sampling=VideoSampling(num_frames=4, start_s=0.5))
    sampled = sample_frames(film.path, film.sampling)
    app = Host([film])
    async with app.run_test(size=(120, 40)) as pilot:
        await app.drawn(pilot)
        for number, time in enumerate(sampled.times_s):
            await app.drawn(pilot, f"frame {number + 1} of 4 · {time:.2f} s")
            middle = app.pixels().height // 2, app.pixels().width // 2
            assert np.allclose(np.asarray(app.pixels())[middle], sampled.frames[number][32, 48], atol=2)
            await pilot.press("full_stop")
        await pilot.press("plus", "comma")
        await app.drawn(pilot, "frame 3 of 4")
        assert app.room.view.zoom == 1.5


async def test_facts_are_beside_the_image_and_hidden_by_a_key(three: list[Attachment]) -> None:
    first = msgspec.structs.replace(three[0], notes=("turned upright by EXIF",))
    app = Host([first, three[1]])
    async with app.run_test(size=(80, 24)) as pilot:
        await app.drawn(pilot)
        text = written(app.room.query_one("#facts", DocumentView))
        joined = "".join(text.split())
        for fact in ("640 × 480", "JPEG", f"{first.size_bytes:,} bytes", first.sha256[:16], "turned upright by EXIF"):
            assert "".join(fact.split()) in joined, fact
        shown = app.text()
        assert "[red]a␛]0;t" in shown
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
        wide = app.pixels().width
        await pilot.press("i")
        await until(pilot, lambda: app.pixels().width > wide)


async def test_a_missing_file_is_reported(three: list[Attachment]) -> None:
    Path(three[2].path).unlink()
    app = Host(three, 2)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "missing or damaged" in app.said("#reason"))
        assert not app.room.query(".picture")
        await pilot.press("plus", "l", "full_stop", "0", "n")
        await app.drawn(pilot)
        assert not app.room.query_one("#reason").display


async def test_with_images_off_the_facts_are_shown(three: list[Attachment]) -> None:
    app = Host(three, 1, graphics="off")
    async with app.run_test(size=(80, 24)) as pilot:
        await app.drawn(pilot, "frame 1 of 8")
        assert app.room.query_one("#side").size.width >= 76
        assert "SHA-256" in app.text()
        await pilot.press("full_stop", "plus", "i")
        await app.drawn(pilot, "frame 2 of 8")
        assert not app.room.query(".picture")


@pytest.mark.parametrize("mode", ["kitty", "sixel"])
async def test_the_terminals_own_graphics(three: list[Attachment], mode: GraphicsMode) -> None:
    app = Host(three, graphics=mode)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.drawn(pilot)
        await pilot.press("plus", "g", "n")
        await app.drawn(pilot)


async def test_a_terminal_that_grows_draws_a_larger_image(three: list[Attachment]) -> None:
    app = Host(three)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.drawn(pilot)
        small = app.room.query_one(".picture").size
        await pilot.resize_terminal(200, 60)
        await until(pilot, lambda: any(one.size.height > 2 * small.height for one in app.room.query(".picture")))
        await app.drawn(pilot)


async def test_keys_are_answered_while_an_image_is_opened(
    three: list[Attachment], monkeypatch: pytest.MonkeyPatch
) -> None:
    go, opening = Event(), []

    def slow(attachment: Attachment) -> StoredPixels:
        opening.append(attachment)
        if attachment == three[0]:
            assert go.wait(20)
        return open_pixels(attachment)

    monkeypatch.setattr(modes, "open_pixels", slow)
    app = Host(three, settle_s=1.5)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: bool(opening))
        await pilot.press("i", "plus", "n", "n")
        await app.drawn(pilot, "3 of 3")
        assert opening == [three[0], three[2]], "an image that a key passes is not opened"
        go.set()
        await pilot.pause(0.05)
        await app.drawn(pilot, "3 of 3")


# -- modes


async def test_digits_choose_the_mode_and_its_names_are_visible(three: list[Attachment]) -> None:
    app = Host(three[:1])
    async with app.run_test(size=(80, 24)) as pilot:
        await app.drawn(pilot, "1 File  2 Sent  3 Seen  4 Heat  5 Boxes  6 Blind")
        await pilot.press("1")
        await app.drawn(pilot, "The file as it was attached")
        Path(three[0].source).unlink()
        for key in "3456":
            await pilot.press(key)
            await until(pilot, lambda: "was not sent yet" in app.said("#reason"))
        await pilot.press("2")
        await app.drawn(pilot, "Sent unchanged")
        await pilot.press("1")
        await app.drawn(pilot, "The file as it was attached")
        titles = app.room.query_one("#modes")
        await pilot.click("#modes", offset=(titles.size.width and 10, 0))
        await app.drawn(pilot, "Sent unchanged")


@SIZES
async def test_a_patch_shows_its_token_of_the_prompt(tmp_path: Path, size: tuple[int, int]) -> None:
    image = white(tmp_path)
    app = Host([image], answer=answered(image))
    async with app.run_test(size=size) as pilot:
        await app.drawn(pilot, "→ 448×224 · 4×2 patches · 8 tokens")
        await pilot.press("h", "k", "k")
        await app.drawn(pilot)
        assert "row 1 of 2, column 3 of 4: token 7 of 20 “<pad>”" in " ".join(app.said("#told").split())
        await pilot.press("l")
        await app.drawn(pilot)
        assert "token 8 of 20" in " ".join(app.said("#told").split())
        await pilot.press("5", "2")
        await app.drawn(pilot)
        assert app.room.patch is None, "boxes have no patches"
        await pilot.press("k", "k", "l")
        await app.drawn(pilot)
        before = app.pixels().tobytes()
        await pilot.press("t")
        await app.drawn(pilot)
        assert not app.said("#told")
        assert app.pixels().tobytes() != before
        width = app.room.query_one(".picture").size.width
        await pilot.click(".picture", offset=(width - 1, 0))
        await app.drawn(pilot)
        assert app.room.patch == (0, 3)


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


def seen(view: ModelView, monkeypatch: pytest.MonkeyPatch) -> Host:
    async def views(*_: object) -> list[ModelView]:
        return [view]

    monkeypatch.setattr(modes, "ask_model_view", views)
    return Host([view.attachment], mode="seen", answer=answered(view.attachment))


@SIZES
async def test_the_tiles_that_the_model_sees(
    tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = seen(view_of(tmp_path), monkeypatch)
    async with app.run_test(size=size) as pilot:
        await app.drawn(pilot, "The processor made 3 tiles in pixel_values_flat")
        assert "1 224 × 224 · tokens 5 to 20" in app.text()
        assert "3 224 × 224 · tokens 37 to 52" in app.text()
        await pilot.press("down", "h")
        await app.drawn(pilot)
        assert "row 3 of 4, column 3 of 4: token 31 of 20" in " ".join(app.said("#told").split())
        await pilot.press("d")
        await app.drawn(pilot, "levels apart")
        await pilot.press("escape")
        await until(pilot, lambda: app.is_closed)


async def test_a_difference_that_is_unknown_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_of(tmp_path)
    Image.new("RGB", (224, 224), "black").save(tmp_path / "tile-1.png")
    app = seen(view, monkeypatch)
    async with app.run_test(size=(120, 30)) as pilot:
        await app.drawn(pilot, "The processor made 3 tiles")
        await pilot.press("d", "down")
        await app.drawn(pilot, "the part of the image that this shows was not found")
        assert not app.room.query(".picture")


async def test_an_unreadable_layout_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    medium = SeenMedium(modality="image", index=0, tensor="x")
    app = seen(ModelView(attachment=view_of(tmp_path).attachment, medium=medium), monkeypatch)
    async with app.run_test(size=(120, 30)) as pilot:
        await app.drawn(pilot, "in a layout that cannot be read")
        assert isinstance(app.room.mode, SeenMode)


# -- boxes


def boxes(folder: Path, answer: str = BOXES, graphics: GraphicsMode = "halfcell") -> Host:
    image = white(folder)
    return Host([image], mode="boxes", answer=answered(image, answer), graphics=graphics)


def places_mode(app: Host) -> BoxesMode:
    assert isinstance(app.room.mode, BoxesMode)
    return app.room.mode


@SIZES
async def test_marks_are_numbered_listed_and_shown_in_the_answer(tmp_path: Path, size: tuple[int, int]) -> None:
    app = boxes(tmp_path)
    async with app.run_test(size=size) as pilot:
        await app.drawn(pilot)
        text = app.text()
        assert "street.png" in text
        assert "read as 0 to 1000, x first" in text
        assert "1 of 2 inside · 1 unreadable" in text
        assert "[red]cat" in text
        assert "100,50,300,150" in text
        assert "360,200 cut" in text
        assert "\x1b" not in text
        assert "\x07" not in text
        picture = app.room.query_one(Picture)
        numbers = {one.text for y in range(picture.size.height) for one in picture.render_line(y)}
        assert {"1", "2"} <= numbers


async def test_swapped_corners_are_named(tmp_path: Path) -> None:
    app = boxes(tmp_path, '{"bbox_2d": [900, 0, 700, 285], "label": "square"} {"bbox_2d": [1, 2, 3, 4]}')
    async with app.run_test(size=(120, 30)) as pilot:
        await app.drawn(pilot, "2 of 2 inside · 1 with swapped corners")
        assert "square 280,0,360,57 corners swapped" in app.text()


async def test_the_convention_is_cycled_and_the_files_are_written(tmp_path: Path) -> None:
    app = boxes(tmp_path)
    async with app.run_test(size=(120, 30)) as pilot:
        await app.drawn(pilot)
        await pilot.press("down", "m")
        assert places_mode(app).places.grounding.scale == "pixels"
        assert app.room.chosen == 1
        await pilot.press("a")
        await app.drawn(pilot)
        assert "pixels of the image, y first (the record says 0 to 1000, x first)" in app.text()
        await pilot.press("a", "w")
        await until(pilot, lambda: (tmp_path / "vlmtui-boxes.json").is_file())
        wrote = msgspec.json.decode((tmp_path / "vlmtui-boxes.json").read_bytes())
        assert [one["bbox"] for one in wrote["annotations"]] == [[250, 200, 150, 0], [400, 200, 0, 0]]
        with Image.open(tmp_path / "vlmtui-boxes.png") as image:
            assert image.size == (400, 200)


async def test_a_click_highlights_a_mark(tmp_path: Path) -> None:
    answer = '[{"bbox_2d": [0, 0, 1000, 1000], "label": "all"}, {"bbox_2d": [500, 500, 750, 900], "label": "cat"},'
    app = boxes(tmp_path, answer + ' {"point_2d": [100, 100], "label": "dot"}]')
    async with app.run_test(size=(120, 40)) as pilot:
        await app.drawn(pilot)
        width, height = app.room.query_one(".picture").size
        chosen = []
        for across, down in ((0.6, 0.7), (0.9, 0.2), (0.1, 0.1)):
            await pilot.click(".picture", offset=(int(across * width), int(down * height)))
            await app.drawn(pilot)
            chosen.append(app.room.chosen)
        assert chosen == [1, 0, 2]


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=["80x24", "200x60"])
async def test_the_frame_of_a_time_is_shown(tmp_path: Path, size: tuple[int, int]) -> None:
    grey = [np.full((96, 128, 3), level, np.uint8) for level in (0, 80, 160, 240)]
    write_video(tmp_path / "clip.mp4", grey, fps=2)
    video = stage(tmp_path / "clip.mp4", tmp_path / "media")
    answer = (
        '<points coords="0.5 1 500 500;1.5 1 250 500">the [b]cat</points> {"start": "00:01.00", "end": "9:00.00", '
        '"label": "late\\u001b]0;t\\u0007"} {"start": 700, "end": 800}'
    )
    report = PromptReport(title="1", answer=answer, attachments=(video,))
    app = Host([video], mode="boxes", answer=report, family="molmo2")
    async with app.run_test(size=size) as pilot:

        async def shows(level: int, moment: str) -> None:
            await app.drawn(pilot, moment)
            base = app.room._base[1]
            assert base is not None
            pixel = base.getpixel((5, 5))
            assert isinstance(pixel, tuple) and abs(pixel[0] - level) < 12

        await shows(80, "2 of 2 inside · 2 time ranges")
        assert "64,48 at 0.50 s" in app.text()
        assert "1.00 s – 9:00.00 late" in app.text()
        assert "\x1b" not in app.text()
        await pilot.press("down")
        await shows(240, "at 1.50 s")
        await pilot.press("down")
        await shows(160, "at 1.00 s")
        await pilot.press("down")
        await until(pilot, lambda: "is only" in app.text())
        await pilot.press("up", "w")
        await until(pilot, lambda: (tmp_path / "vlmtui-boxes.json").is_file())


async def test_a_mark_on_another_image_shows_that_image(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Image.new("RGB", (400, 200), "white" if name == "a" else "grey").save(tmp_path / f"{name}.png")
    images = [stage(tmp_path / f"{name}.png", tmp_path / "media") for name in "ab"]
    answer = '<points coords="1 1 500 500;2 1 250 500">cats</points>'
    report = PromptReport(title="1", answer=answer, attachments=tuple(images))
    app = Host(images, 1, "boxes", answer=report, family="molmo2")
    async with app.run_test(size=(120, 30)) as pilot:
        await app.drawn(pilot, "on ▣ 1")
        assert app.room.chosen == 1, "the mark on the image that was opened"
        await pilot.press("up")
        await app.drawn(pilot, "1 of 2")
        await pilot.press("n")
        await app.drawn(pilot, "2 of 2")
        assert app.room.chosen == 1


async def test_without_images_the_list_of_marks_stays(tmp_path: Path) -> None:
    app = boxes(tmp_path, graphics="off")
    async with app.run_test(size=(80, 24)) as pilot:
        await app.drawn(pilot, "100,50,300,150")
        assert not app.room.query(".picture")


async def test_a_thousand_marks_stay_fast(tmp_path: Path) -> None:
    app = boxes(tmp_path, "".join(f'{{"bbox_2d": [{at % 900}, {at % 700}, 990, 990]}}' for at in range(5000)))
    async with app.run_test(size=(80, 24)) as pilot:
        await app.drawn(pilot)
        assert app.rows.option_count == 1000


# -- the heat map and the blind test


@SIZES
async def test_the_cost_is_shown_before_the_map(tmp_path: Path, size: tuple[int, int]) -> None:
    app = scored(tmp_path)
    async with app.run_test(size=size) as pilot:
        await app.drawn(pilot)
        assert "scores 11 prompts of 23 tokens" in app.text()
        assert "\x1b" not in app.text()
        await pilot.press("Z", "enter")
        await until(pilot, lambda: isinstance(app.room.mode, HeatMode) and app.room.mode.found is not None)
        await app.drawn(pilot)
        assert "−" in app.said("#about") and "nats: less likely" in app.said("#about")
        assert "10 times less likely (−2.3 nats) without the outlined part" in " ".join(app.said("#told").split())
        await pilot.press("right")
        await app.drawn(pilot)
        assert "“a” is not less likely" in " ".join(app.said("#told").split())
        assert "less likely" in app.said("#about"), "the legend stays"
        await pilot.press("w")
        await until(pilot, lambda: (tmp_path / "vlmtui-heat.json").is_file())


async def test_a_patch_shows_how_much_each_word_depends_on_it(tmp_path: Path) -> None:
    app = scored(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.drawn(pilot)
        await pilot.press("Z", "r")
        await until(pilot, lambda: isinstance(app.room.mode, HeatMode) and app.room.mode.found is not None)
        await app.drawn(pilot)
        await pilot.click(".picture", offset=(2, 2))
        await app.drawn(pilot)
        assert "token 5 of 20" in app.said("#told").replace("\n", " ")
        assert "is about as likely (0 nats) without" in " ".join(app.said("#told").split())
        await pilot.click(".picture", offset=(app.room.query_one(".picture").size.width - 2, 2))
        await app.drawn(pilot)
        assert "token 8 of 20" in app.said("#told").replace("\n", " ")
        assert [str(option.prompt).split() for option in app.rows.options][2][:2] == ["−2.30", "▇"]


async def test_escape_stops_measuring_and_then_closes(tmp_path: Path) -> None:
    engine = Looks()
    app = scored(tmp_path, engine)
    async with app.run_test(size=(120, 30)) as pilot:
        await app.drawn(pilot)
        engine.may_go.clear()
        await pilot.press("r")
        await until(pilot, lambda: "0 scored" in app.text())
        await pilot.press("escape")
        await until(pilot, lambda: "scores 11 prompts" in app.text())
        engine.may_go.set()
        engine.fails = True
        await pilot.press("r")
        await until(pilot, lambda: "It broke." in "".join(note.message for note in app._notifications))
        await pilot.press("escape")
        await until(pilot, lambda: app.is_closed)


@SIZES
async def test_the_blind_test_scores_the_answer_without_the_image(tmp_path: Path, size: tuple[int, int]) -> None:
    app = scored(tmp_path, mode="blind")
    async with app.run_test(size=size) as pilot:
        await app.drawn(pilot, "scores 4 prompts")
        assert "1 File  2 Sent  3 Seen  4 Heat  5 Boxes  6 Blind" in app.text()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.room.mode, BlindMode) and app.room.mode.found is not None)
        await app.drawn(pilot)
        assert "It looks. Without the image, this answer is 10 times less likely (−2.3 nats)" in " ".join(
            app.said("#told").split()
        )
        assert [str(option.prompt).split()[0] for option in app.rows.options] == ["0.00", "−2.30", "−2.30", "0.00"]
        await pilot.press("right", "down")
        await app.drawn(pilot)
        assert app.said("#about").endswith(": a")
        assert [str(option.prompt).split()[0] for option in app.rows.options] == ["0.00"] * 4
        assert app.pixels().getpixel((3, 3)) == (0, 0, 0), "no image"
        await pilot.press("w")
        await until(pilot, lambda: (tmp_path / "vlmtui-blind.json").is_file())


async def test_only_the_model_that_answered_is_measured(tmp_path: Path) -> None:
    image = white(tmp_path)
    engine = Looks()
    report = answered(
        image, info=msgspec.structs.replace(engine.info, spec=msgspec.structs.replace(engine.spec, model="b"))
    )
    app = Host([image], mode="heat", answer=report, engine=engine)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: "is loaded" in app.said("#reason"))


# -- from the chat


@pytest.fixture
def without_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no record say how the model writes places, as that of the bundled model does."""
    monkeypatch.setattr("vlmtui.session.prompt_report.family_of", lambda *_: None)


def room_of(app: App[Any]) -> ImageRoom:
    assert isinstance(app.screen, ImageRoom)
    return app.screen


def chat_text(app: App[Any]) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


@pytest.mark.usefixtures("without_record")
async def test_the_chat_opens_it_for_the_last_answer(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting([Say(BOXES)], [Say("A cat.")]) as chat:
        await chat.paste(str(picture(tmp_path)))
        await chat.until(lambda: bool(chat.controller.draft.tokens))
        await chat.say("Where is the cat?")
        await chat.send("/boxes")
        await chat.until(lambda: isinstance(chat.app.screen, ImageRoom))
        await chat.until(lambda: "a guess: no record says it" in chat_text(chat.app))
        await chat.pilot.press("escape")
        await chat.until(lambda: not isinstance(chat.app.screen, ImageRoom))
        await chat.say("And now?")
        await chat.send("/boxes 1")
        await chat.until(lambda: "No boxes, polygons, points or times" in chat_text(chat.app))
        await chat.pilot.press("escape")
        await chat.until(lambda: not isinstance(chat.app.screen, ImageRoom))
        await chat.send("/image 7")
        await chat.until(lambda: "There is no image 7" in chat.notes)


async def test_p_on_a_selected_answer_opens_the_room_about_it(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting([Say("A cat.")], [Say("A dog.")], [Say("Both.")]) as chat:
        for name in ("one.png", "two.png"):
            await chat.paste(str(picture(tmp_path, name)))
            await chat.until(lambda: bool(chat.controller.draft.tokens))
            await chat.say("Look.")
        await chat.pilot.press("up", "up", "up", "p")
        await chat.until(lambda: isinstance(chat.app.screen, ImageRoom))
        room = room_of(chat.app)
        assert [one.attachment.name for one in room.images] == ["one.png", "two.png"]
        assert room.view.at == 0
        await chat.until(lambda: room.report is not None and room.report.answer == "A cat.")
        await chat.pilot.press("n")
        await chat.until(lambda: room.report is not None and room.report.answer == "A dog.")


async def test_locate_inserts_the_familys_own_prompt(chatting: StartChat, monkeypatch: pytest.MonkeyPatch) -> None:
    async with chatting() as chat:
        await chat.send("/locate the cat")
        await chat.until(lambda: chat.composer.text == "[Image #1]Locate the cat.")
        await chat.until(lambda: [item.name for item in chat.controller.draft.attachments] == ["circle.png"])
        assert "one shape an image" in chat.notes
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


async def test_every_key_is_explained() -> None:
    assert all(binding.tooltip and binding.id for binding in ImageRoom.BINDINGS if isinstance(binding, Binding))
