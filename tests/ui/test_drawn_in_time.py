"""What the frame layer is told is what the screen is, whatever comes between a layout and its drawing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import RenderableType
from textual._compositor import ReflowResult
from textual.app import App, ComposeResult
from textual.content import Content
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from vlmtui.ui.chat.anchored_scroll import AnchoredScroll
from vlmtui.ui.terminal.compositor import FrontCompositor
from vlmtui.ui.terminal.frame_layer import FrameLayer
from vlmtui.ui.terminal.front_screen import FrontScreen
from vlmtui.ui.terminal.updates import ScreenUpdates
from vlmtui.ui.widgets.line_widget import LineWidget

SIZE = (40, 12)


class LayerDriver(HeadlessDriver):
    """A driver without a terminal that has a frame layer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cells = FrameLayer()

    @property
    def is_headless(self) -> bool:
        return False

    @property
    def layer(self) -> FrameLayer | None:
        return self._cells if not self._app._batch_count and self._cells.knows(self._app.size) else None

    def show(self, screen: Screen[Any], update: Any) -> bool:
        if not self._cells.knows(self._app.size):
            update = screen._compositor.render_full_update()
        return self._cells.take(update)

    def send_soon(self) -> None:
        """Nothing is sent."""


class Text(LineWidget):
    """A growing text."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def lines_of(self, width: int) -> list[Content]:
        return [Content(line) for line in self.lines]

    def take(self, lines: list[str]) -> None:
        self.lines = lines
        self.lines_changed()


class View(AnchoredScroll):
    """A view that follows its end, as a transcript does."""

    def on_mount(self) -> None:
        self.anchor()


class DrawnScreen(FrontScreen[None]):
    CSS = "#box { height: auto; } Static { height: auto; }"

    def compose(self) -> ComposeResult:
        with View():
            yield Static("above", id="above")
            yield Text()
            yield Static("facts", id="facts")
        yield Static("below", id="box")


class DrawnApp(App[None]):
    """A bare app that shows its updates as ours does."""

    def __init__(self) -> None:
        super().__init__()
        self._updates = ScreenUpdates(self)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if not self._updates.show(screen, renderable):
            super()._display(screen, renderable)

    def _end_batch(self) -> None:
        super()._end_batch()
        self._updates.batch_ended()

    def on_mount(self) -> None:
        self.push_screen(DrawnScreen())


@asynccontextmanager
async def drawn(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimpleNamespace]:
    monkeypatch.setattr("textual.drivers.headless_driver.HeadlessDriver", LayerDriver)
    app = DrawnApp()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        screen = app.screen
        facts = screen.query_one("#facts", Static)
        facts.display = False
        await asyncio.sleep(0.1)
        yield SimpleNamespace(
            app=app, screen=screen, text=screen.query_one(Text), facts=facts, view=screen.query_one(View), pilot=pilot
        )


def shown(parts: SimpleNamespace) -> list[str]:
    return ["".join(row.chars).rstrip() for row in parts.app._driver._cells._wanted]


async def assert_drawn(parts: SimpleNamespace) -> None:
    """Hold what the terminal was told against all of the screen drawn anew. Whatever waits for a layout has one."""
    told, layer = shown(parts), FrameLayer()
    parts.screen._compositor.ahead.settle()
    await settled()
    assert layer.take(parts.screen._compositor.render_full_update())
    assert told == ["".join(row.chars).rstrip() for row in layer._wanted]


async def settled() -> None:
    for _ in range(12):  # turns of the loop: where others have the processor, a length of time may hold too few
        await asyncio.sleep(0.01)


async def test_what_is_mounted_in_a_batch_is_drawn_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with drawn(monkeypatch) as parts:
        with parts.app.batch_update():
            await parts.view.mount(Static("mounted"))
            await settled()  # the screen has heard of it, and has nothing else to do
        await settled()
        assert "mounted" in "\n".join(shown(parts))
        await assert_drawn(parts)


async def test_an_update_that_is_rendered_in_a_batch_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async with drawn(monkeypatch) as parts:
        with parts.app.batch_update():
            parts.screen.query_one("#box", Static).update("changed")
            parts.screen._compositor.update_widgets({parts.screen.query_one("#box")})
            await asyncio.sleep(0)
            parts.screen._compositor_refresh()
            parts.screen._dirty_widgets.clear()
        await settled()
        assert "changed" in "\n".join(shown(parts))
        await assert_drawn(parts)


async def test_a_place_that_is_asked_for_before_the_layout_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with drawn(monkeypatch) as parts:
        parts.text.take(["1 2 3"])
        await settled()
        parts.facts.display = True
        await asyncio.sleep(0)
        parts.screen._compositor._full_map_invalidated = True
        assert parts.facts.region.height == 1
        await settled()
        assert shown(parts)[-3:] == ["1 2 3", "facts", "below"]
        await assert_drawn(parts)


async def test_what_moved_ahead_and_is_moved_back_by_the_layout_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with drawn(monkeypatch) as parts:
        parts.text.take(["1", "2"])
        await settled()
        parts.text.take(["1", "2", "3"])
        assert parts.screen._compositor.ahead, "it was laid out at once"
        parts.screen.query_one("#above").display = False
        await settled()
        assert shown(parts)[-4:] == ["1", "2", "3", "below"]
        await assert_drawn(parts)


async def test_a_frame_that_is_wanted_in_a_batch_is_drawn_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with drawn(monkeypatch) as parts:
        with parts.app.batch_update():
            parts.screen.query_one("#above", Static).update("above\nit")
            parts.screen.show_frame()
            await settled()
        await settled()
        assert "it" in shown(parts)
        await assert_drawn(parts)


async def test_a_change_that_was_told_is_in_a_frame_that_is_wanted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with drawn(monkeypatch) as parts:
        for selector, text in (("#box", "changed"), ("#above", "above\nit")):
            parts.screen.query_one(selector, Static).update(text)
            parts.screen.query_one(selector, Static)._check_refresh()  # as its own loop does, before the screen's
        parts.screen.show_frame()
        assert {"changed", "it"} <= set(shown(parts))
        await settled()
        await assert_drawn(parts)


async def test_what_grows_is_laid_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layouts: list[Size] = []
    reflow = FrontCompositor.reflow

    def count(self: FrontCompositor, parent: Widget, size: Size) -> ReflowResult:
        layouts.append(size)
        return reflow(self, parent, size)

    async with drawn(monkeypatch) as parts:
        monkeypatch.setattr(FrontCompositor, "reflow", count)
        parts.screen.query_one("#above", Static).update("above\nit")
        await settled()
        assert len(layouts) == 1
        assert {"above", "it"} <= set(shown(parts))
        await assert_drawn(parts)


@pytest.mark.parametrize("seed", range(6))
async def test_random_changes_are_drawn(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    async with drawn(monkeypatch) as parts:
        count = 0
        for _ in range(30):
            for _ in range(random.randint(1, 4)):
                count += 1
                match random.randrange(10):
                    case 0 | 1 | 2:
                        parts.text.take([*parts.text.lines, *(f"{count} {i}" for i in range(random.randint(0, 3)))])
                    case 3:
                        parts.text.take(parts.text.lines[: random.randint(0, 6)])
                    case 4:
                        parts.facts.display = not parts.facts.display
                    case 5:
                        above = parts.screen.query_one("#above", Static)
                        above.update("\n".join(f"above {count}" for _ in range(random.randint(1, 3))))
                    case 6:
                        parts.screen.query_one("#box", Static).update("\n".join(["below"] * random.randint(1, 3)))
                    case 7:
                        parts.screen._compositor._full_map_invalidated = True
                        _ = parts.facts.region, parts.text.region
                    case 8:
                        with parts.app.batch_update():
                            parts.screen.query_one("#above").display = not parts.screen.query_one("#above").display
                            await asyncio.sleep(random.choice([0, 0.02]))
                    case 9:
                        parts.screen.show_frame()
                if random.random() < 0.5:
                    await asyncio.sleep(random.choice([0, 0.01, 0.03]))
            await settled()
            await assert_drawn(parts)
