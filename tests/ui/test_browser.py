"""The file browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from vlmtui.ui.graphics import Graphics
from vlmtui.ui.screens.browser import BrowserScreen
from vlmtui.ui.themes import DARK, VARIABLES


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
        files = self.browser.query_one("#files", OptionList)
        return [str(files.get_option_at_index(index).prompt).split()[0] for index in range(files.option_count)]


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
        app.browser._list(folder / "gone")
        await until(pilot, lambda: any("gone" in note.message for note in app._notifications))
        assert app.browser.folder == folder
