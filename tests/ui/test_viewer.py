"""The attachments full screen."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import msgspec
import numpy as np
import pytest
from PIL import Image, ImageDraw
from textual.app import App
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import Static

from tests.support.documents import written
from tests.support.videos import write_video
from tests.support.waiting import until
from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.media.frames import sample_frames
from vlmtui.media.stage import stage
from vlmtui.media.thumbnails import StoredPixels, Viewport, draw, open_pixels
from vlmtui.ui.attachments.viewer import ViewerScreen
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.terminal.graphics import Graphics, GraphicsMode
from vlmtui.ui.terminal.themes import DARK, VARIABLES

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
HOSTILE = "[red]a\x1b]0;t\x07\u202eb[.jpg"


class Host(App[None]):
    closed = False

    def __init__(
        self, attachments: list[Attachment], at: int = 0, *, mode: GraphicsMode = "halfcell", settle_s: float = 0.02
    ) -> None:
        super().__init__()
        self.settle_s = settle_s
        self.attachments = attachments
        self.at = at
        self.graphics = Graphics(mode)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name
        cache = Path(self.attachments[0].path).parent / "thumbnails"
        self.push_screen(ViewerScreen(self.attachments, self.at, cache=cache, settle_s=self.settle_s), self._done)

    def _done(self, result: None) -> None:
        self.closed = True

    @property
    def viewer(self) -> ViewerScreen:
        assert isinstance(self.screen, ViewerScreen)
        return self.screen

    def said(self, where: str) -> str:
        return str(self.viewer.query_one(where, Static).render())

    def picture(self) -> Image.Image:
        found = self.viewer.query(".picture").only_one()
        image = getattr(found, "image")  # noqa: B009  (textual-image has no types)
        assert isinstance(image, Image.Image)
        return image


def screen_text(app: Host) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


async def drawn(pilot: Pilot[None], app: Host) -> None:
    """The view that is asked for is on the screen."""
    await pilot.pause()
    await until(pilot, lambda: app.viewer.shown == app.viewer.view)


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


@SIZES
async def test_an_image_is_as_large_as_fits(three: list[Attachment], size: tuple[int, int]) -> None:
    for at in (0, 2):
        app = Host(three, at)
        async with app.run_test(size=size) as pilot:
            await drawn(pilot, app)
            stage_size = app.viewer.query_one("#stage").size
            picture = app.viewer.query(".picture").only_one()
            assert picture.size.height == stage_size.height == size[1] - 2
            assert app.viewer.region.contains_region(picture.region)


async def test_next_and_previous_go_around(three: list[Attachment]) -> None:
    app = Host(three, 1)
    async with app.run_test(size=(80, 24)) as pilot:
        for key, name in (("right", "icon"), ("n", "red"), ("left", "icon"), ("p", "film"), ("p", "red")):
            await pilot.press(key)
            assert name in app.said("#name")
            await drawn(pilot, app)
        assert "1 of 3" in app.said("#where")
        assert app.picture().getpixel((2, 2))[0] > 200  # type: ignore[index]


@pytest.mark.parametrize("key", ["escape", "q"])
async def test_it_closes(three: list[Attachment], key: str) -> None:
    app = Host(three)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
        await until(pilot, lambda: app.closed)


@pytest.mark.slow
@SIZES
async def test_zoom_pan_and_reset(three: list[Attachment], size: tuple[int, int]) -> None:
    app = Host(three)
    async with app.run_test(size=size) as pilot:
        await drawn(pilot, app)
        whole = app.picture().tobytes()
        await pilot.press("h", "shift+right")
        assert app.viewer.view == Viewport(0), "the whole picture cannot be moved"
        await pilot.press("+", "plus", "equals_sign")
        await drawn(pilot, app)
        assert app.viewer.view.zoom == pytest.approx(1.5**3)
        assert "zoom 3.4×" in app.said("#where")
        middle = app.picture().tobytes()
        assert middle != whole
        stage_size = app.viewer.query_one("#stage").size
        assert app.viewer.query(".picture").only_one().size == stage_size, "it fills the screen now"
        for keys, corner in ((["h"] * 5 + ["k"] * 5, "red"), (["shift+right"] * 10, "lime"), (["shift+down"] * 10, "")):
            await pilot.press(*keys)
            await drawn(pilot, app)
            seen = app.picture()
            at = (seen.width - 3 if corner != "red" else 3, 3 if corner else seen.height - 3)
            expected = {"red": (255, 0, 0), "lime": (0, 255, 0), "": (255, 255, 255)}[corner]
            assert np.allclose(np.asarray(seen)[at[::-1]], expected, atol=12)
        await pilot.press("l", "j")
        assert (app.viewer.view.x, app.viewer.view.y) < (1.0, 1.0)
        await pilot.press("0")
        await drawn(pilot, app)
        assert app.picture().tobytes() == whole
        await pilot.press("minus")
        assert app.viewer.view.zoom == 1.0
        for _ in range(30):
            app.viewer.action_zoom(1)
        await drawn(pilot, app)
        assert app.viewer.view.zoom == pytest.approx(1.5**10)


async def test_zooming_out_returns_to_the_whole_image(three: list[Attachment]) -> None:
    app = Host(three)
    async with app.run_test(size=(80, 24)) as pilot:
        await drawn(pilot, app)
        await pilot.press(*["plus"] * 4, "l", "j", *["minus"] * 4)
        assert app.viewer.view == Viewport(0)


@SIZES
async def test_the_viewer_shows_the_sent_frames(three: list[Attachment], size: tuple[int, int]) -> None:
    film = msgspec.structs.replace(three[1], sampling=VideoSampling(num_frames=4, start_s=0.5))
    sampled = sample_frames(film.path, film.sampling)
    app = Host([film])
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.viewer._source is not None)
        for number, time in enumerate(sampled.times_s):
            await drawn(pilot, app)
            assert f"frame {number + 1} of 4 · {time:.2f} s" in app.said("#where")
            middle = app.picture().height // 2, app.picture().width // 2
            assert np.allclose(np.asarray(app.picture())[middle], sampled.frames[number][32, 48], atol=2)
            await pilot.press("full_stop")
        assert app.viewer.view.frame == 3, "there it ends"
        await pilot.press("plus", "comma")
        await drawn(pilot, app)
        assert app.viewer.view.frame == 2
        assert app.viewer.view.zoom == 1.5


@SIZES
async def test_the_viewer_shows_facts(three: list[Attachment], size: tuple[int, int]) -> None:
    first = msgspec.structs.replace(three[0], notes=("turned upright by EXIF",))
    app = Host([first, three[1]])
    async with app.run_test(size=size) as pilot:
        await drawn(pilot, app)
        assert not app.viewer.query_one("#side").display
        wide = app.picture().width
        await pilot.press("i")
        await until(pilot, lambda: bool(app.viewer.query(".picture")) and app.picture().width != wide)
        await until(pilot, lambda: app.viewer.shown == app.viewer.view)
        text = written(app.viewer.query_one("#side", DocumentView))
        joined = "".join(text.split())
        for fact in ("640 × 480", "JPEG", f"{first.size_bytes:,} bytes", first.sha256[:16], "turned upright by EXIF"):
            assert "".join(fact.split()) in joined, fact
        lines = [line.partition("│")[2] for line in screen_text(app).splitlines()[1:-1]]
        assert all(line[1:2] != " " or line.startswith(" " * 11) for line in lines), "what is wrapped is indented"
        assert "\x1b" not in text
        assert "xxxxx" * 30 not in joined
        await pilot.press("down", "up", "right")
        await drawn(pilot, app)
        assert "4 fps" in written(app.viewer.query_one("#side", DocumentView))
        await pilot.press("i")
        await pilot.pause()
        assert not app.viewer.query_one("#side").display


async def test_a_hostile_name_is_shown_as_text(three: list[Attachment]) -> None:
    app = Host(three)
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        await pilot.press("i")
        await pilot.pause()
        shown = screen_text(app)
        assert "[red]a␛]0;t" in shown
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)


async def test_a_missing_stored_file_is_reported(three: list[Attachment]) -> None:
    Path(three[2].path).unlink()
    app = Host(three, 2)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "missing or damaged" in app.said("#reason"))
        assert not app.viewer.query(".picture")
        await pilot.press("plus", "l", "full_stop", "0", "right")
        await drawn(pilot, app)
        assert not app.viewer.query_one("#reason").display


async def test_a_missing_file_is_reported_despite_a_cached_thumbnail(three: list[Attachment]) -> None:
    app = Host(three, 1)
    async with app.run_test(size=(80, 24)) as pilot:
        await drawn(pilot, app)
    Path(three[1].path).unlink()
    app = Host(three, 1)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.viewer.query_one("#reason").has_class("-failed"))
        await pilot.pause()
        assert not app.viewer.query(".picture")
        assert app.viewer.query_one("#reason").display


async def test_with_images_off_the_facts_are_shown(three: list[Attachment]) -> None:
    app = Host(three, 1, mode="off")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "frame 1 of 8" in app.said("#where"))
        assert app.viewer.query_one("#side").size.width >= 78
        assert "SHA-256" in screen_text(app)
        await pilot.press("full_stop", "plus", "i")
        assert "frame 2 of 8" in app.said("#where")
        assert not app.viewer.query(".picture")


@pytest.mark.parametrize("mode", ["kitty", "sixel"])
async def test_the_terminals_own_graphics(three: list[Attachment], mode: GraphicsMode) -> None:
    app = Host(three, mode=mode)
    async with app.run_test(size=(80, 24)) as pilot:
        await drawn(pilot, app)
        await pilot.press("plus", "right")
        await drawn(pilot, app)


async def test_late_pictures_are_dropped(three: list[Attachment]) -> None:
    app = Host(three, 2)
    async with app.run_test(size=(80, 24)) as pilot:
        await drawn(pilot, app)
        before = app.picture().tobytes()
        viewer = app.viewer
        late = Image.new("RGB", (50, 50), "black")
        viewer.post_message(ViewerScreen.Drawn(Viewport(0), viewer._room, late))
        viewer.post_message(ViewerScreen.Drawn(Viewport(2, zoom=1.5), viewer._room, late))
        viewer.post_message(ViewerScreen.Drawn(Viewport(2), (1, 1), late))
        viewer.post_message(ViewerScreen.PixelsRead(0, StoredPixels(late)))
        await pilot.pause()
        await drawn(pilot, app)
        assert app.picture().tobytes() == before
        assert "Brownie" not in written(app.viewer.query_one("#side", DocumentView))


async def test_another_size_of_the_terminal(three: list[Attachment]) -> None:
    app = Host(three)
    async with app.run_test(size=(120, 40)) as pilot:
        await drawn(pilot, app)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: any(picture.size.height == 22 for picture in app.viewer.query(".picture")))
        await drawn(pilot, app)


async def test_keys_are_answered_while_a_picture_is_opened(
    three: list[Attachment], monkeypatch: pytest.MonkeyPatch
) -> None:
    go, opening = Event(), []

    def slow(attachment: Attachment) -> StoredPixels:
        opening.append(attachment)
        if attachment == three[0]:
            assert go.wait(20)
        return open_pixels(attachment)

    monkeypatch.setattr("vlmtui.ui.attachments.viewer.open_pixels", slow)
    app = Host(three, settle_s=1.5)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: bool(opening))
        await pilot.press("i", "plus", "right", "right")
        await drawn(pilot, app)
        assert app.viewer.view == Viewport(2)
        assert opening == [three[0], three[2]], "what a key passes by is not opened"
        go.set()
        await pilot.pause(0.05)
        assert app.viewer.shown == Viewport(2)


def test_zooming_crops_the_full_size_image() -> None:
    image = Image.effect_noise((4000, 3000), 90).convert("RGB")
    view = Viewport(0, zoom=8.0, x=0.3, y=0.6).within(image.size, (800, 440))
    seen = draw(StoredPixels(image), view, (800, 440))
    assert seen.size == (800, 440)
    assert np.asarray(seen).std() > 40, "noise that was scaled down before would be grey"


async def test_every_key_is_explained() -> None:
    assert all(binding.tooltip and binding.id for binding in ViewerScreen.BINDINGS if isinstance(binding, Binding))
