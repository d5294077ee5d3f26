"""The settings panel."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.widgets import Input, Static, TextArea

from tests.support.waiting import until
from vlmtui.domain.sampling import Sampling
from vlmtui.session.settings import ChatSettings
from vlmtui.ui.settings.screen import SettingsScreen
from vlmtui.ui.terminal.themes import DARK, VARIABLES

CURRENT = ChatSettings("Be brief.", Sampling(temperature=0.5, max_tokens=100))


class Host(App[None]):
    result: ChatSettings | str | None = "open"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name
        self.push_screen(SettingsScreen(CURRENT), self._done)

    def _done(self, result: ChatSettings | None) -> None:
        self.result = result


async def test_what_is_changed_is_given_back() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        app.screen.query_one("#temperature", Input).value = ""
        app.screen.query_one("#seed", Input).value = "7"
        app.screen.query_one("#system", TextArea).text = "Be\nlong."
        await pilot.press("ctrl+s")
        assert app.result == ChatSettings("Be\nlong.", Sampling(temperature=None, max_tokens=100, seed=7))


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("temperature", "-1", "temperature"),
        ("top_p", "2", "top-p"),
        ("max_tokens", "x", "'x'"),
        ("seed", "1.5", "'1.5'"),
    ],
)
async def test_what_is_wrong_is_told_and_not_applied(field: str, value: str, problem: str) -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        app.screen.query_one(f"#{field}", Input).value = value
        await pilot.pause()
        told = app.screen.query_one(f"#problem-{field}", Static)
        assert problem in str(told.render())
        entered = app.screen.query_one(f"#{field}", Input)
        assert told.region.y == entered.region.bottom, "it stands below its field"
        assert [note for note in app.screen.query(".problem") if note.display] == [told]
        await pilot.press("enter")
        await pilot.press("ctrl+s")
        assert app.result == "open"
        assert entered.has_focus
        entered.value = ""
        await pilot.pause()
        assert not told.display


async def test_escape_changes_nothing() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        app.screen.query_one("#seed", Input).value = "7"
        await pilot.press("escape")
        assert app.result is None


async def test_it_fits_a_small_terminal_with_everything_wrong() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        for entered in app.screen.query(Input):
            entered.value = "x"
        await pilot.pause()
        assert all(note.display for note in app.screen.query(".problem"))
        for entered in app.screen.query(Input):
            entered.focus()
            told = app.screen.query_one(f"#problem-{entered.id}")
            seen = [entered, told]
            await until(pilot, lambda seen=seen: all(app.screen.region.contains_region(it.region) for it in seen))  # type: ignore[misc]


async def test_an_empty_field_says_what_holds_then() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)):
        hints = {name: app.screen.query_one(f"#{name}", Input).placeholder for name in ("seed", "top_p")}
        assert hints == {"seed": "random (same seed, same answer)", "top_p": "model default (0–1, probability mass)"}
