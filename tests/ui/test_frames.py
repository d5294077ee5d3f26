"""Choosing the frames of a video."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import msgspec
import numpy as np
import pytest
from PIL import Image
from textual.app import App
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import Input, RadioButton, RadioSet, Static

from tests.support.videos import write_video
from tests.support.waiting import until
from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.media import contact_sheet, frames
from vlmtui.media.contact_sheet import Room, Sheet, make_sheet
from vlmtui.media.describe import clock
from vlmtui.media.frames import Frames, sample_frames
from vlmtui.media.sampling import parse_time, read_fields, time_text
from vlmtui.media.stage import stage
from vlmtui.ui.attachments.frames import FramesChoice, FramesScreen
from vlmtui.ui.terminal.graphics import Graphics, GraphicsMode
from vlmtui.ui.terminal.themes import DARK, VARIABLES

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])


class Host(App[None]):
    result: FramesChoice | None = None
    is_open = True

    def __init__(
        self,
        film: Attachment,
        *,
        mode: GraphicsMode = "halfcell",
        takes_video: bool = True,
        most_images: int = 99,
        settle_s: float = 0.02,
    ) -> None:
        super().__init__()
        self.film = film
        self.settle_s = settle_s
        self.graphics = Graphics(mode)
        self.takes_video = takes_video
        self.most_images = most_images

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name
        screen = FramesScreen(
            self.film,
            takes_video=self.takes_video,
            most_images=self.most_images,
            settle_s=self.settle_s,
        )
        self.push_screen(screen, self._done)

    def _done(self, result: FramesChoice | None) -> None:
        self.result, self.is_open = result, False

    @property
    def dialog(self) -> FramesScreen:
        assert isinstance(self.screen, FramesScreen)
        return self.screen

    def enter(self, **values: str) -> None:
        for name, value in values.items():
            self.dialog.query_one(f"#{name}", Input).value = value

    def said(self, where: str) -> str:
        return str(self.dialog.query_one(where, Static).render())

    def times(self) -> list[str]:
        """Return the times on the contact sheet."""
        lines = self.dialog.query("#sheet .times, #sheet .list").results(Static)
        return "  ".join(str(line.render()) for line in lines).replace(" s", "s").split()


def screen_text(app: Host) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


async def sheet_of(pilot: Pilot[None], app: Host, sampling: VideoSampling) -> Sheet:
    """Wait for the contact sheet of a sampling, and return it."""
    await until(pilot, lambda: app.dialog.sheet is not None and app.dialog._wanted is not None
                and app.dialog._wanted[0] == sampling)  # fmt: skip
    await pilot.pause()
    assert app.dialog.sheet is not None
    return app.dialog.sheet


def colour(number: int) -> tuple[int, int, int]:
    return (number * 40 % 256, number * 90 % 256, 255 - number * 3 % 256)


def make_film(folder: Path, count: int, *, size: tuple[int, int] = (96, 64), name: str = "film.mp4") -> Attachment:
    """Return a video with four frames a second, each of another colour."""
    write_video(folder / name, [np.asarray(Image.new("RGB", size, colour(number))) for number in range(count)])
    return stage(folder / name, folder / "store")


@pytest.fixture
def film(tmp_path: Path) -> Attachment:
    return make_film(tmp_path, 40)


@SIZES
@pytest.mark.parametrize("mode", ["halfcell", "off"])
async def test_the_sheet_shows_the_frames_that_are_sent(
    film: Attachment, size: tuple[int, int], mode: GraphicsMode
) -> None:
    app = Host(film, mode=mode)
    async with app.run_test(size=size) as pilot:
        for sampling in (VideoSampling(), VideoSampling(num_frames=5, start_s=2.0, end_s=4.0)):
            if sampling.end_s:
                app.enter(frames="5", start="2", end="0:04")
            sheet = await sheet_of(pilot, app, sampling)
            sent = sample_frames(film.path, sampling)
            assert sheet.times_s == sent.times_s
            read = [time.replace(" ", "") for time in map(clock, sent.times_s)]
            numbers = [str(number) for number in range(1, len(read) + 1)]
            if mode == "off":
                assert app.times() == [part for pair in zip(numbers, read, strict=True) for part in pair]
                continue
            assert app.times() == read
            assert len(app.dialog.query(".picture")) == len(sheet.rows) == sheet.lines
            for number, pixels in enumerate(sent.frames):
                row, place = divmod(number, sheet.grid.per_row)
                at = (place * sheet.grid.column + 3, 4)
                assert np.allclose(np.asarray(sheet.rows[row])[at[::-1]], pixels[32, 48], atol=2)


@pytest.mark.parametrize("mode", ["kitty", "sixel"])
async def test_the_terminals_own_graphics(film: Attachment, mode: GraphicsMode) -> None:
    app = Host(film, mode=mode)
    async with app.run_test(size=(80, 24)) as pilot:
        sheet = await sheet_of(pilot, app, VideoSampling())
        wide, high = sheet.grid.per_row * sheet.grid.column, sheet.grid.high
        assert sheet.rows[0].size == (wide * 10, high * 20)
        assert app.dialog.query(".picture").first().size == (wide, high)


async def test_the_shown_frames_are_returned(film: Attachment) -> None:
    app = Host(film)
    async with app.run_test(size=(80, 24)) as pilot:
        app.enter(frames="6", start="1.5", end="0:09")
        sampling = VideoSampling(num_frames=6, start_s=1.5, end_s=9.0)
        await sheet_of(pilot, app, sampling)
        await pilot.press("enter")
        assert app.result == FramesChoice(sampling, as_images=False)


async def test_frames_a_second_wins_over_the_count(film: Attachment) -> None:
    app = Host(film)
    async with app.run_test(size=(80, 24)) as pilot:
        app.enter(fps="2", frames="nonsense")
        sampling = VideoSampling(fps=2.0)
        sheet = await sheet_of(pilot, app, sampling)
        assert sheet.times_s == sample_frames(film.path, sampling).times_s
        assert app.dialog.query_one("#frames").has_class("-unused")
        await pilot.press("ctrl+s")
        assert app.result == FramesChoice(sampling, as_images=False)


async def test_it_opens_with_the_current_settings(film: Attachment) -> None:
    sampling = VideoSampling(num_frames=3, fps=0.5, start_s=1.25, end_s=7.0)
    app = Host(msgspec.structs.replace(film, sampling=sampling))
    async with app.run_test(size=(80, 24)) as pilot:
        await sheet_of(pilot, app, sampling)
        await pilot.press("ctrl+s")
        assert app.result == FramesChoice(sampling, as_images=False)


async def test_escape_changes_nothing(film: Attachment) -> None:
    app = Host(film)
    async with app.run_test(size=(80, 24)) as pilot:
        app.enter(frames="3")
        await pilot.press("escape")
        await until(pilot, lambda: not app.is_open)
        assert app.result is None


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("frames", "0", "1 to 4,096"),
        ("frames", "", "1 to 4,096"),
        ("frames", "²", "1 to 4,096"),
        ("frames", "9" * 5000, "1 to 4,096"),
        ("fps", "-1", "above 0"),
        ("fps", "nan", "above 0"),
        ("fps", "9e9", "more than 4,096"),
        ("start", "1:99", "a time"),
        ("start", "10", "the video ends at 10.00 s"),
        ("end", "0", "must come after"),
        ("end", "x", "a time"),
    ],
)
async def test_an_error_is_shown_below_its_field(film: Attachment, field: str, value: str, problem: str) -> None:
    app = Host(film)
    async with app.run_test(size=(80, 24)) as pilot:
        await sheet_of(pilot, app, VideoSampling())
        app.enter(**{field: value})
        await pilot.pause()
        told, entered = app.dialog.query_one(f"#problem-{field}"), app.dialog.query_one(f"#{field}")
        assert problem in app.said(f"#problem-{field}")
        assert problem in screen_text(app), "it is not cut off"
        assert told.region.y == entered.region.bottom
        assert [note for note in app.dialog.query(".problem") if note.display] == [told]
        await pilot.press("enter")
        assert app.is_open
        assert entered.has_focus
        app.enter(**{field: "8" if field == "frames" else ""})
        await sheet_of(pilot, app, VideoSampling())
        assert not told.display
        assert not app.dialog.query_one("#sheet").has_class("-stale")


async def test_as_images(film: Attachment) -> None:
    app = Host(film, most_images=6)
    async with app.run_test(size=(80, 24)) as pilot:
        await sheet_of(pilot, app, VideoSampling())
        choice = app.dialog.query_one("#as", RadioSet)
        assert str(app.dialog.query(RadioButton).last().label) == "8 images"
        choice.focus()
        await pilot.press("right", "space")
        await until(pilot, lambda: "limit is 6 images" in screen_text(app))
        await pilot.press("enter")
        assert app.is_open
        assert app.dialog.query_one("#frames").has_focus
        app.enter(frames="6")
        await sheet_of(pilot, app, VideoSampling(num_frames=6))
        assert "6 images" in screen_text(app)
        await pilot.press("enter")
        assert app.result == FramesChoice(VideoSampling(num_frames=6), as_images=True)


async def test_frames_are_images_if_the_model_accepts_no_video(film: Attachment) -> None:
    app = Host(film, takes_video=False)
    async with app.run_test(size=(80, 24)) as pilot:
        await sheet_of(pilot, app, VideoSampling())
        assert "8 images: the model does not accept videos" in screen_text(app)
        assert not app.dialog.query(RadioSet)
        await pilot.press("enter")
        assert app.result == FramesChoice(VideoSampling(), as_images=True)


async def test_a_video_with_fewer_frames_has_a_note(tmp_path: Path) -> None:
    app = Host(make_film(tmp_path, 5), most_images=5, takes_video=False)
    async with app.run_test(size=(80, 24)) as pilot:
        sheet = await sheet_of(pilot, app, VideoSampling())
        assert len(sheet.times_s) == 5
        assert "all frames of the video" in app.said("#state")
        await pilot.press("enter")
        assert app.result == FramesChoice(VideoSampling(), as_images=True), "five are not too many"


@SIZES
async def test_many_frames_can_be_scrolled(tmp_path: Path, size: tuple[int, int]) -> None:
    app = Host(make_film(tmp_path, 80))
    async with app.run_test(size=size) as pilot:
        app.enter(frames="64")
        sheet = await sheet_of(pilot, app, VideoSampling(num_frames=64))
        assert len(sheet.times_s) == len(app.times()) == 64
        place = app.dialog.query_one("#sheet")
        last = place.children[-1]
        assert not place.region.contains_region(last.region)
        await pilot.press(*["pagedown"] * 12)
        await until(pilot, lambda: place.region.contains_region(last.region))
        assert clock(sheet.times_s[-1]) in screen_text(app)
        for picture in app.dialog.query(".picture"):
            assert picture.region.width <= place.size.width
        await pilot.press("pageup")
        assert app.dialog.query_one("#frames").has_focus


@SIZES
async def test_everything_fits_with_problems_everywhere(film: Attachment, size: tuple[int, int]) -> None:
    app = Host(film, most_images=1)
    async with app.run_test(size=size) as pilot:
        await sheet_of(pilot, app, VideoSampling())
        app.enter(fps="x", start="x", end="x")
        await pilot.pause()
        for widget in app.dialog.query("#panel > *, .row *, #send *"):
            assert not widget.display or app.dialog.query_one("#panel").region.contains_region(widget.region), widget
        assert app.dialog.query_one("#sheet").size.height >= 6


async def test_late_results_of_earlier_edits_are_dropped(film: Attachment, monkeypatch: pytest.MonkeyPatch) -> None:
    go, asked = Event(), []

    def slow(path: str, sampling: VideoSampling) -> Frames:
        asked.append(sampling.num_frames)
        if sampling.num_frames == 8:
            assert go.wait(20)
        return sample_frames(path, sampling)

    monkeypatch.setattr(frames, "sample_frames", slow)
    app = Host(film, settle_s=1.5)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: asked == [8])
        assert "Reading" in app.said("#state")
        await pilot.press("end", "backspace", "1", "2")
        assert app.dialog.query_one("#frames", Input).value == "12", "keys are answered meanwhile"
        sheet = await sheet_of(pilot, app, VideoSampling(num_frames=12))
        assert asked == [8, 12], "1 was only on the way to 12"
        go.set()
        await pilot.pause(0.1)
        assert app.dialog.sheet is sheet
        assert len(app.times()) == 12


async def test_a_missing_stored_file_is_reported(film: Attachment) -> None:
    Path(film.path).unlink()
    app = Host(film)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.dialog.query_one("#state").has_class("-failed"))
        assert "is missing or damaged" in app.said("#state")
        assert not app.dialog.query(".picture")
        await pilot.press("enter")
        assert app.is_open


async def test_a_hostile_name_is_shown_as_text(film: Attachment) -> None:
    app = Host(msgspec.structs.replace(film, name="[red]a\x1b]0;t\x07\u202eb[/x].mp4"))
    async with app.run_test(size=(80, 24)) as pilot:
        await sheet_of(pilot, app, VideoSampling())
        shown = screen_text(app)
        assert "[red]a␛]0;t" in shown
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)


async def test_another_size_of_the_terminal(film: Attachment) -> None:
    app = Host(film)
    async with app.run_test(size=(120, 40)) as pilot:
        wide = await sheet_of(pilot, app, VideoSampling())
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: app.dialog.sheet is not None and app.dialog.sheet is not wide)
        assert app.dialog.sheet is not None
        assert app.dialog.sheet.grid.column < wide.grid.column


@pytest.mark.parametrize(("count", "seen"), [(1, True), (8, True), (20, True), (64, False)])
def test_frames_are_as_large_as_possible_with_all_in_view(tmp_path: Path, count: int, seen: bool) -> None:
    room = Room(100, 28, (10, 20), (1, 2))
    sheet = make_sheet(make_film(tmp_path, 64), VideoSampling(num_frames=count), room, (0, 0, 0))
    assert (sheet.lines * (sheet.grid.high + 1) <= room.rows) == seen
    assert sheet.grid.high > 5 or count == 64


def test_frames_that_do_not_fit_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contact_sheet, "DRAWN_MAX", 10)
    sheet = make_sheet(make_film(tmp_path, 40), VideoSampling(num_frames=33), Room(60, 12, (10, 20), (1, 2)), (0, 0, 0))
    assert len(sheet.rows) < sheet.lines
    told = " ".join(sheet.times_of(row) for row in range(sheet.lines)).replace(" s", "s").split()
    assert told == [clock(time).replace(" ", "") for time in sheet.times_s]


@pytest.mark.parametrize("size", [(640, 64), (64, 640), (96, 64)])
def test_frames_of_any_shape_have_their_place(tmp_path: Path, size: tuple[int, int]) -> None:
    room = Room(70, 12, (10, 20), (10, 20))
    sheet = make_sheet(make_film(tmp_path, 8, size=size), VideoSampling(), room, (1, 2, 3))
    assert sheet.grid.per_row * sheet.grid.column <= room.columns
    assert sheet.grid.column >= len("1:00:05.00") + 1
    assert all(row.size == (sheet.grid.per_row * sheet.grid.column * 10, sheet.grid.high * 20) for row in sheet.rows)
    assert sheet.rows[0].getpixel((sheet.grid.column * 10 - 1, 50)) == (1, 2, 3)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("12.5", 12.5),
        (".5", 0.5),
        ("90", 90.0),
        ("1:02", 62.0),
        ("1:02:03", 3723.0),
        ("1:02:03.25", 3723.25),
        ("100:00", 6000.0),
        ("", None),
        ("1:60", None),
        ("1:60:00", None),
        ("-1", None),
        ("1e3", None),
        ("inf", None),
        ("١", 1.0),
        ("1:2:3:4", None),
        ("9" * 5000, None),
    ],
)
def test_times_as_they_are_typed(text: str, seconds: float | None) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("seconds", [0.0, 0.04, 59.999, 62.5, 3723.123456, 100000.0])
def test_a_time_comes_back_as_it_was_typed(seconds: float) -> None:
    assert parse_time(time_text(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "told"), [(1.25, "1.25 s"), (59.999, "1:00.00"), (62.5, "1:02.50"), (3605.0, "1:00:05.00")]
)
def test_times_as_they_are_read(seconds: float, told: str) -> None:
    assert clock(seconds) == told


def test_a_video_of_unknown_length_can_be_sampled() -> None:
    entered = read_fields({"frames": "", "fps": "2", "start": "5", "end": ""}, None)
    assert entered.sampling == VideoSampling(fps=2.0, start_s=5.0)


async def test_every_key_is_explained() -> None:
    assert all(binding.tooltip and binding.id for binding in FramesScreen.BINDINGS if isinstance(binding, Binding))
