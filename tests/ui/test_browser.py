"""The file browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from textual.app import App
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import Static

from vlmtui.ui.controllers.folder import list_folder
from vlmtui.ui.graphics import Graphics
from vlmtui.ui.screens.browser import BrowserScreen
from vlmtui.ui.themes import DARK, VARIABLES
from vlmtui.ui.widgets.file_list import FileList


class Host(App[None]):
    result: list[Path] | str | None = "open"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.graphics = Graphics("halfcell")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name
        self.push_screen(BrowserScreen(self.folder, cache=self.folder / ".cache"), self._done)

    def _done(self, result: list[Path] | None) -> None:
        self.result = result

    @property
    def browser(self) -> BrowserScreen:
        assert isinstance(self.screen, BrowserScreen)
        return self.screen

    def names(self) -> list[str]:
        files = self.browser.query_one(FileList)
        return [files.text_of(index).split()[0] for index in range(len(files.entries))]


def screen_text(app: Host) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError("it never came to hold")


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


async def test_several_are_marked_across_folders(folder: Path) -> None:
    app = Host(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        await pilot.press("end", "down", "down", "down", "space")
        await pilot.press("s", "u", "b")
        await until(pilot, lambda: app.names() == ["sub/"])
        await pilot.press("enter")
        await until(pilot, lambda: app.names() == ["c.png"])
        assert "1 marked" in str(app.browser.query_one("#title", Static).render())
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
        assert app.result == "open"
        await pilot.press("escape")
        assert app.result is None


async def test_a_wide_terminal_previews_and_a_broken_file_says_why(folder: Path) -> None:
    app = Host(folder)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        await pilot.press("down")
        await until(pilot, lambda: "cannot be shown" in str(app.browser.query_one("#facts", Static).render()))
        await pilot.press("down")
        await until(pilot, lambda: "16 × 8" in str(app.browser.query_one("#facts", Static).render()))
        assert app.browser.query(".picture")


async def test_a_folder_that_cannot_be_read_is_told(folder: Path) -> None:
    app = Host(folder)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        app.browser._open(folder / "gone")
        await until(pilot, lambda: any("gone" in note.message for note in app._notifications))
        assert app.browser.folder == folder


async def test_a_listing_that_comes_late_is_dropped(folder: Path) -> None:
    app = Host(folder / "sub")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.names() == ["c.png"])
        await pilot.press("backspace")
        await until(pilot, lambda: "a.png" in app.names())
        app.browser.post_message(BrowserScreen.Listed(folder / "sub", list_folder(folder / "sub")))
        await pilot.pause()
        assert app.browser.folder == folder
        assert "a.png" in app.names()


async def test_what_is_wrong_with_a_file_is_told_in_full(folder: Path) -> None:
    (folder / "a.png").write_bytes((folder / "b.png").read_bytes()[:40])
    app = Host(folder)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.names()) == 4)
        await pilot.press("a", ".")
        await until(pilot, lambda: app.names() == ["a.png"])
        facts = app.browser.query_one("#facts", Static)
        await until(pilot, lambda: "cannot be shown" in str(facts.render()))
        assert len(str(facts.render()).splitlines()) > 1


@pytest.mark.parametrize("key", ["ctrl+t", "ctrl+space", "ctrl+@"])
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


async def test_only_lines_in_view_are_made_and_the_highlighted_one_is(folder: Path) -> None:
    many = folder / "many"
    many.mkdir()
    for number in range(300):
        (many / f"{number:03}.png").touch()
    app = Host(many)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.browser.query_one(FileList).entries) == 300)
        await pilot.press("up")
        await until(pilot, lambda: "299.png" in screen_text(app))
        assert "000.png" not in screen_text(app)
        await pilot.press("pageup", "down")
        await pilot.press("down")
        await until(pilot, lambda: "000.png" not in screen_text(app))
        await pilot.press("1", "5", "0")
        await until(pilot, lambda: "150.png" in screen_text(app) and "151.png" not in screen_text(app))


async def test_every_key_is_explained(folder: Path) -> None:
    assert all(binding.tooltip for binding in BrowserScreen.BINDINGS if isinstance(binding, Binding))
