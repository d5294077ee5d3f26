"""The file browser."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from textual import events
from textual.app import App
from textual.binding import Binding
from textual.widget import AwaitMount, Widget
from textual.widgets import Static

from tests.support.videos import write_video
from tests.support.waiting import until
from vlmtui.media.folder import FolderEntry, FolderView, Sort, list_folder
from vlmtui.session.cost import EstimateTokens
from vlmtui.ui.actions import ACTIONS
from vlmtui.ui.attachments import browser
from vlmtui.ui.attachments.browser import BrowserScreen, FileList, FilePreview, FilterInput
from vlmtui.ui.help import show_leader
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.terminal.themes import DARK, VARIABLES


class Host(App[None]):
    BINDINGS = [ACTIONS["leader"].binding()]
    result: list[Path] | str | None = "open"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.graphics = Graphics("halfcell")
        self.look = FolderView()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name
        widths: EstimateTokens = lambda _modality, size, _frames: size[0]  # noqa: E731
        self.push_screen(BrowserScreen(self.folder, look=self.look, estimate=widths), self._done)

    def action_leader(self) -> None:
        show_leader(self)

    def _done(self, result: list[Path] | None) -> None:
        self.result = result

    @property
    def browser(self) -> BrowserScreen:
        assert isinstance(self.screen, BrowserScreen)
        return self.screen

    @property
    def preview(self) -> FilePreview:
        return self.browser.query_one(FilePreview)

    @property
    def facts(self) -> str:
        return str(self.preview.query_one(".facts", Static).render())

    def is_done(self) -> bool:
        return self.result != "open"

    def state(self) -> str:
        return str(self.browser.query_one("#state", Static).render())

    def typed(self) -> str:
        return self.browser.query_one(FilterInput).value

    def names(self) -> list[str]:
        files = self.browser.query_one(FileList)
        return [files.draw(index, 70)[0].plain.split()[0] for index in range(len(files.rows))]


def screen_text(app: Host) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("a.png", "b.png", "sub/c.png", ".hidden.png"):
        Image.new("RGB", (16, 8), "red").save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "[red]broken[.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return tmp_path


async def test_folders_first_then_media_and_enter_attaches(folder: Path) -> None:
    app = Host(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.names() == ["sub/", "[red]broken[.png", "a.png", "b.png"])
        await pilot.press("down", "down", "enter")
        assert app.result == [folder / "a.png"]


async def test_files_are_marked_across_folders(folder: Path) -> None:
    app = Host(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        await pilot.press("end", "space")
        await pilot.press("s", "u", "b")
        await until(pilot, lambda: app.names() == ["sub/"])
        await pilot.press("enter")
        await until(pilot, lambda: app.names() == ["c.png"])
        assert "1 marked" in app.state()
        await pilot.press("space", "enter")
        assert app.result == [folder / "b.png", folder / "sub" / "c.png"]


async def test_up_and_hidden_and_escape(folder: Path) -> None:
    app = Host(folder / "sub")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.names() == ["c.png"])
        await pilot.press("backspace")
        await until(pilot, lambda: "a.png" in app.names())
        assert app.browser.folder == folder
        await pilot.press("full_stop", "h")
        await until(pilot, lambda: app.names() == [".hidden.png"])
        await pilot.press("escape")
        assert not app.is_done()
        await pilot.press("escape")
        assert app.result is None


async def test_a_wide_terminal_previews_a_file_or_its_fault(folder: Path) -> None:
    app = Host(folder)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        await pilot.press("down")
        await until(pilot, lambda: "Can't read " in app.facts)
        assert not app.browser.query(".picture")
        await pilot.press("down")
        await until(pilot, lambda: "16 × 8" in app.facts)
        assert "~16 tokens" in app.facts
        assert app.browser.query(".picture")


async def test_an_unreadable_folder_is_reported(folder: Path) -> None:
    app = Host(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        app.browser._open(folder / "gone")
        await until(pilot, lambda: any("gone" in note.message for note in app._notifications))
        assert app.browser.folder == folder


async def test_a_listing_that_comes_late_is_dropped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_late = threading.Event()

    def late(path: Path) -> list[FolderEntry]:
        if path == folder / "sub":
            is_late.wait(10)
        return list_folder(path)

    app = Host(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "a.png" in app.names())
        monkeypatch.setattr(browser, "list_folder", late)
        app.browser._open(folder / "sub")
        app.browser._open(folder)
        is_late.set()
        await pilot.pause(0.2)
        assert app.browser.folder == folder
        assert "a.png" in app.names()


async def test_the_fault_of_a_file_is_shown_in_full(folder: Path) -> None:
    (folder / "a.png").write_bytes((folder / "b.png").read_bytes()[:40])
    app = Host(folder)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        await pilot.press("a", ".")
        await until(pilot, lambda: app.names() == ["a.png"])
        await until(pilot, lambda: "Can't read a.png: it begins like a PNG image" in app.facts)
        assert len(app.facts.splitlines()) > 1


@pytest.mark.parametrize("key", ["ctrl+space", "ctrl+@"])
async def test_a_mark_is_seen_and_counted_before_a_long_path(folder: Path, key: str) -> None:
    deep = folder / ("long" * 30)
    deep.mkdir()
    (folder / "a.png").rename(deep / "a.png")
    app = Host(deep)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.names() == ["a.png"])
        await pilot.press("a", key)
        assert app.browser.marked == [deep / "a.png"]
        await until(pilot, lambda: app.names() == ["●"])
        await until(pilot, lambda: "1 marked" in screen_text(app))
        assert "● a.png" in screen_text(app)


async def test_only_visible_lines_are_drawn_and_the_highlighted_line_is_visible(folder: Path) -> None:
    many = folder / "many"
    many.mkdir()
    for number in range(300):
        (many / f"{number:03}.png").touch()
    app = Host(many)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.browser.query_one(FileList).rows) == 300)
        await pilot.press("end")
        await until(pilot, lambda: "299.png" in screen_text(app) and "000.png" not in screen_text(app))
        await pilot.press("pageup", "down")
        await pilot.press("down")
        await until(pilot, lambda: "000.png" not in screen_text(app))
        await pilot.press("1", "5", "0")
        await until(pilot, lambda: "150.png" in screen_text(app) and "151.png" not in screen_text(app))


def make_pictures(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for age, name in enumerate(names):
        Image.new("RGB", (8 + 8 * age, 8)).save(folder / name, "BMP")
        os.utime(folder / name, (1_700_000_000 - age, 1_700_000_000 - age))


async def test_the_sort_order_cycles_and_is_remembered(tmp_path: Path) -> None:
    make_pictures(tmp_path / "pics", "b10.png", "b2.png", "A1.png", "b.png")
    app = Host(tmp_path / "pics")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.names() == ["A1.png", "b.png", "b2.png", "b10.png"])
        assert "by name" in app.state()
        await pilot.press("down", "ctrl+x", "O")
        assert app.names() == ["b10.png", "b2.png", "A1.png", "b.png"]
        assert "newest first" in app.state()
        current = app.browser.query_one(FileList).current
        assert current is not None and current.path.name == "b.png", "the highlight stays on its file"
        await pilot.press("ctrl+x", "O")
        assert app.names() == ["b.png", "A1.png", "b2.png", "b10.png"]
        assert "largest first" in app.state()
        assert app.look.sort is Sort.LARGEST


async def test_one_key_marks_or_unmarks_all_shown_files(folder: Path) -> None:
    app = Host(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        await pilot.press("p", "n", "g", "ctrl+x", "A")
        assert [path.name for path in app.browser.marked] == ["[red]broken[.png", "a.png", "b.png"]
        assert "3 marked" in app.state()
        await pilot.press("ctrl+x", "A")
        assert app.browser.marked == []
        await pilot.press("escape", "a", ".", "ctrl+x", "A")
        assert "1 marked" in app.state() and "1 of 3 files" in app.state()
        await pilot.press("enter")
        assert app.result == [folder / "a.png"]


async def test_space_is_text_while_typing_and_marks_after_an_arrow_key(tmp_path: Path) -> None:
    make_pictures(tmp_path / "pics", "my cat.png", "my dog.png")
    app = Host(tmp_path / "pics")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.browser.query_one(FileList).rows) == 2)
        await pilot.press("m", "y", "space")
        assert app.typed() == "my "
        await pilot.press("down", "space")
        assert app.typed() == "my "
        assert app.browser.marked == [tmp_path / "pics" / "my dog.png"]


async def test_a_key_shows_or_hides_hidden_files(folder: Path) -> None:
    app = Host(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        await pilot.press("ctrl+x", "H")
        assert ".hidden.png" in app.names() and "hidden too" in app.state()
        await pilot.press("ctrl+x", "H")
        assert ".hidden.png" not in app.names()


async def test_a_typed_path_opens_its_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder / "sub"))
    app = Host(folder)
    async with app.run_test(size=(100, 24)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        await pilot.press("~")
        await until(pilot, lambda: app.browser.folder == folder / "sub" and app.names() == ["c.png"])
        assert app.typed() == "~"
        await pilot.press("enter")
        assert app.typed() == "", "the folder is taken, nothing is attached"
        assert not app.is_done()
        app.browser.query_one(FilterInput).value = f"{folder}/su"
        await until(pilot, lambda: app.names() == ["sub/"])
        await pilot.press("tab")
        assert app.typed() == f"{folder}/sub/"
        await until(pilot, lambda: app.names() == ["c.png"])
        app.browser.query_one(FilterInput).value = f"{folder}/a.png"
        await until(pilot, lambda: app.names() == ["a.png"])
        await pilot.press("enter")
        assert app.result == [folder / "a.png"]


async def test_a_missing_typed_path_is_reported_and_not_attached(folder: Path) -> None:
    app = Host(folder)
    async with app.run_test(size=(100, 24)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        app.browser.query_one(FilterInput).value = "/gone/deep"
        await until(pilot, lambda: "gone: " in app.state())
        assert app.names() == []
        await pilot.press("enter")
        assert not app.is_done()
        await pilot.press("escape")
        await until(pilot, lambda: len(app.names()) == 4)
        assert app.browser.folder == folder


async def test_a_video_shows_its_first_frame_and_how_long_it_is(folder: Path) -> None:
    frames = [np.full((48, 64, 3), (250, 0, 0) if number == 0 else (0, 0, 250), np.uint8) for number in range(8)]
    write_video(folder / "sub" / "v.mp4", frames, fps=4)
    app = Host(folder / "sub")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.names() == ["c.png", "v.mp4"])
        await pilot.press("end")
        await until(pilot, lambda: "64 × 48" in app.facts)
        assert "2.0 s · 4 frames/s" in app.facts
        image = next(iter(reversed(app.preview._seen.values()))).image
        assert image is not None
        pixel = image.getpixel((30, 20))
        assert isinstance(pixel, tuple) and pixel[0] > 200 > 60 > pixel[2], "the first frame is red"


async def test_the_shown_size_is_the_upright_one(tmp_path: Path) -> None:
    (tmp_path / "pics").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (3000, 2000), "red").save(tmp_path / "pics" / "photo.jpg", exif=exif)
    app = Host(tmp_path / "pics")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "2000 × 3000" in app.facts)
        assert not app.browser.query(".picture"), "there is no room for it"
        assert "\n" not in app.facts
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: bool(app.browser.query(".picture")))
        await pilot.resize_terminal(80, 44)
        await until(pilot, lambda: app.preview.region.y > app.browser.query_one(FileList).region.y)
        await until(pilot, lambda: bool(app.browser.query(".picture")))


async def test_few_previews_are_kept(tmp_path: Path) -> None:
    make_pictures(tmp_path / "pics", *(f"{number}.png" for number in range(40)))
    app = Host(tmp_path / "pics")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "0.png" in app.facts)
        await pilot.press("down")
        await until(pilot, lambda: "1.png" in app.facts)
        for entry in app.browser.query_one(FileList).rows:
            await app.preview._look(entry).wait()
        assert 2 < len(app.preview._seen) < 40
        await until(pilot, lambda: "1.png" in app.facts and len(app.browser.query(".picture")) == 1)


async def test_a_preview_shows_one_image_after_many_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_pictures(tmp_path / "pics", "0.png", "1.png")
    app = Host(tmp_path / "pics")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "0.png" in app.facts)
        await pilot.press("down")
        await until(pilot, lambda: "1.png" in app.facts and len(app.preview.query(".picture")) == 1)
        mount, others = app.preview.mount, []

        def note(picture: Widget, *, before: int) -> AwaitMount:
            others.append(len(app.preview.query(".picture")))
            return mount(picture, before=before)

        monkeypatch.setattr(app.preview, "mount", note)
        for _ in range(5):
            for entry in app.browser.query_one(FileList).rows:
                app.preview.post_message(events.Resize(app.preview.size, app.preview.size))
                app.preview.show(entry)
        for node in (app.browser, app.preview):
            is_done = asyncio.Event()
            node.call_later(is_done.set)
            await is_done.wait()
        assert len(app.preview.query(".picture")) == 1 and "1.png" in app.facts
        assert len(others) >= 10 and set(others) == {0}


async def test_thousands_of_files(tmp_path: Path) -> None:
    for number in range(5000):
        (tmp_path / f"img{number}.png").touch()
    app = Host(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.browser.query_one(FileList).rows) == 5000)
        assert "5,000 files" in app.state()
        await pilot.press("4", "9", "9", "ctrl+x", "A", "ctrl+x", "O")
        assert "15 marked" in app.state() and "15 of 5,000 files" in app.state()
        await pilot.press("escape", "ctrl+x", "A", "end")
        await until(pilot, lambda: "5,000 marked" in app.state())


async def test_the_active_keys_are_shown(folder: Path) -> None:
    app = Host(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        await until(
            pilot, lambda: "Enter Open · Space Mark · ← Parent folder · ~ / Path · Esc Cancel" in screen_text(app)
        )
        assert "Ctrl+X… A Mark all · O Sort · H Hidden" in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 12)])
async def test_a_name_cannot_act_on_the_terminal(tmp_path: Path, size: tuple[int, int]) -> None:
    nasty = tmp_path / "\x1b]0;t\x07[red]\u202e"
    make_pictures(nasty, "\x1b[2Jx.png", os.fsdecode(b"\xff.png"))
    app = Host(nasty)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: len(app.browser.query_one(FileList).rows) == 2)
        await until(pilot, lambda: bool(app.facts))
        text = screen_text(app)
        assert not any(char in text for char in "\x1b\x07\u202e")
        text.encode()


async def test_every_key_is_explained(folder: Path) -> None:
    assert all(binding.tooltip for binding in BrowserScreen.BINDINGS if isinstance(binding, Binding))
