"""The files that are offered after an `@`."""

from __future__ import annotations

from pathlib import Path

from textual.app import App, ComposeResult

from vlmtui.ui.chat.suggestions import PathCompletion, SuggestionMenu, complete
from vlmtui.ui.terminal.themes import DARK, VARIABLES


class Host(App[None]):
    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name

    def compose(self) -> ComposeResult:
        yield SuggestionMenu()

    @property
    def menu(self) -> SuggestionMenu:
        return self.query_one(SuggestionMenu)

    def is_open(self) -> bool:
        return self.menu.display

    def text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips())


def candidates(folder: Path) -> list[PathCompletion]:
    (folder / "sub").mkdir()
    for name in ("a.png", "b [red].png", "c\x1b[2J.png"):
        (folder / name).write_bytes(b"x" * 2000)
    return complete("", folder)


async def test_the_menu_offers_paths_and_closes_without_any(tmp_path: Path) -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        assert not app.is_open() and app.menu.chosen is None
        app.menu.show_paths(candidates(tmp_path))
        await pilot.pause()
        assert app.is_open()
        assert "sub/" in app.text() and "a.png" in app.text() and "2 kB" in app.text()
        assert "b [red].png" in app.text(), "a name is no markup"
        assert "\x1b" not in app.text() and "␛[2J.png" in app.text()
        app.menu.show_paths([])
        await pilot.pause()
        assert not app.is_open() and app.menu.chosen is None


async def test_the_arrow_actions_choose_and_the_focus_is_never_taken(tmp_path: Path) -> None:
    found = candidates(tmp_path)
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        app.menu.show_paths(found)
        await pilot.pause()
        assert app.menu.chosen == found[0]
        app.menu.action_cursor_down()
        assert app.menu.chosen == found[1]
        app.menu.action_cursor_up()
        app.menu.action_cursor_up()
        assert app.menu.chosen == found[-1]
        assert app.focused is None
        app.menu.show_paths(found[1:])
        assert app.menu.chosen == found[1]


async def test_the_menu_limits_its_height_and_width(tmp_path: Path) -> None:
    many = [PathCompletion(tmp_path / f"{n}.png", False, f"{'long' * 30}{n}.png", 10) for n in range(50)]
    app = Host()
    async with app.run_test(size=(40, 24)) as pilot:
        app.menu.show_paths(many)
        await pilot.pause()
        assert app.menu.size.height == 8
        app.menu.action_cursor_up()
        await pilot.pause()
        assert app.menu.chosen == many[-1]
        assert all(len(line) <= 40 for line in app.text().splitlines())
