"""The line of keys: always what the keys do now, and made anew only then."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets._footer import FooterKey

from tests.support.waiting import until
from vlmtui.ui.widgets.footer_bar import FooterBar


class Small(App[None]):
    BINDINGS = [Binding("a", "first", "First"), Binding("b", "second", "Second")]
    has_second = True
    is_free = True

    def compose(self) -> ComposeResult:
        yield FooterBar()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return (self.has_second if action == "second" else True) and (True if self.is_free else None)

    @property
    def keys(self) -> list[FooterKey]:
        return list(self.screen.query(FooterKey))

    @property
    def said(self) -> list[str]:
        return [key.description + (" (not now)" if key.has_class("-disabled") else "") for key in self.keys]


async def test_it_says_what_the_keys_do_now() -> None:
    app = Small()
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.said == ["First", "Second"])
        app.has_second = False
        app.refresh_bindings()
        await until(pilot, lambda: app.said == ["First"])
        app.is_free = False
        app.refresh_bindings()
        await until(pilot, lambda: app.said == ["First (not now)"])
        app.has_second = app.is_free = True
        app.refresh_bindings()
        await until(pilot, lambda: app.said == ["First", "Second"])


async def test_it_is_not_made_anew_for_nothing() -> None:
    app = Small()
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.said == ["First", "Second"])
        keys = app.keys
        for _ in range(3):
            app.refresh_bindings()
            await pilot.pause()
            await pilot.pause(0.05)
        assert app.keys == keys
        app.has_second = False
        app.refresh_bindings()
        await until(pilot, lambda: app.said == ["First"])


async def test_a_screen_that_is_left_meanwhile_does_no_harm() -> None:
    app = Small()
    async with app.run_test() as pilot:
        await until(pilot, lambda: bool(app.keys))
        bar = app.screen.query_one(FooterBar)
        app.has_second = False
        app.refresh_bindings()
        await bar.remove()
        await pilot.pause()
