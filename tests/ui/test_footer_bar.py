"""The footer shows the current keys, and is redrawn only when they change."""

from __future__ import annotations

import msgspec
from textual.app import App, ComposeResult
from textual.binding import Binding

from tests.support.waiting import until
from vlmtui.ui.widgets.footer_bar import FooterBar


class Small(App[None]):
    BINDINGS = [Binding("a", "first", "First"), Binding("b", "second", "Second")]
    has_second = True
    is_free = True

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def action_first(self) -> None:
        self.done.append("First")

    def action_second(self) -> None:
        self.done.append("Second")

    def compose(self) -> ComposeResult:
        yield FooterBar()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return (self.has_second if action == "second" else True) and (True if self.is_free else None)

    @property
    def bar(self) -> FooterBar:
        return self.screen.query_one(FooterBar)

    @property
    def said(self) -> list[str]:
        return [item.title + ("" if item.enabled else " (not now)") for item in self.bar.items]


async def test_the_footer_shows_the_current_keys() -> None:
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


async def test_the_footer_is_not_redrawn_without_a_change() -> None:
    app = Small()
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.said == ["First", "Second"])
        items = app.bar.items
        for _ in range(3):
            app.refresh_bindings()
            await pilot.pause()
            await pilot.pause(0.05)
        assert app.bar.items is items
        app.has_second = False
        app.refresh_bindings()
        await until(pilot, lambda: app.said == ["First"])


async def test_a_screen_that_is_left_meanwhile_does_no_harm() -> None:
    app = Small()
    async with app.run_test() as pilot:
        await until(pilot, lambda: bool(app.said))
        bar = app.bar
        app.has_second = False
        app.refresh_bindings()
        await bar.remove()
        await pilot.pause()


async def test_a_click_presses_the_key_and_hovering_explains_it() -> None:
    app = Small()
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.said == ["First", "Second"])
        (_, _), (item, place) = app.bar.placed()
        await pilot.hover(offset=place.offset)
        await until(pilot, lambda: app.bar.styles.pointer == "pointer")
        await pilot.click(offset=place.offset)
        await until(pilot, lambda: app.done == [item.title])
        app.is_free = False
        app.refresh_bindings()
        await until(pilot, lambda: app.said == ["First (not now)", "Second (not now)"])
        await pilot.click(offset=place.offset)
        await pilot.hover(offset=(place.right + 5, place.y))
        await until(pilot, lambda: app.bar.styles.pointer == "default")
        assert app.done == ["Second"]


async def test_items_of_a_wider_terminal_are_drawn_as_far_as_they_go() -> None:
    app = Small()
    async with app.run_test(size=(20, 5)) as pilot:
        await until(pilot, lambda: app.said == ["First", "Second"])
        first, second = app.bar.items
        app.bar.items = [first, first, first, msgspec.structs.replace(second, title="")]
        strip = app.bar.render_line(0)
        assert strip.cell_length == 20 and strip.text.startswith(" a First")
