"""The terminal shows the right screen, whatever happens between a layout and its drawing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import RenderableType
from textual.app import App, ComposeResult
from textual.drivers.headless_driver import HeadlessDriver
from textual.screen import Screen
from textual.widgets import Static

from vlmtui.ui.document.blocks import PlainBlock
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.terminal.frames import FrameLayer

SIZE = (40, 12)


class LayerDriver(HeadlessDriver):
    """A driver without a terminal that has a frame layer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cells = FrameLayer()

    @property
    def is_headless(self) -> bool:
        return False

    def show(self, screen: Screen[Any], update: Any) -> bool:
        if update is None:
            return True
        if not self.cells.knows(self._app.size):
            update = screen._compositor.render_full_update()
        return self.cells.take(update)


class DrawnApp(App[None]):
    """A minimal app that sends updates to the driver as ours does."""

    CSS = "DocumentView { height: 1fr; } #box { height: auto; } Static { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self.view, self.text = DocumentView(follows=True), PlainBlock()

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        assert isinstance(self._driver, LayerDriver)
        if not self._driver.show(screen, renderable):
            super()._display(screen, renderable)

    def compose(self) -> ComposeResult:
        yield Static("above", id="above")
        yield self.view
        yield Static("facts", id="facts")
        yield Static("below", id="box")

    def on_mount(self) -> None:
        self.view.add(self.text)


@asynccontextmanager
async def drawn(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimpleNamespace]:
    monkeypatch.setattr("textual.drivers.headless_driver.HeadlessDriver", LayerDriver)
    app = DrawnApp()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await settled()
        yield SimpleNamespace(app=app, screen=app.screen, pilot=pilot)


def shown(parts: SimpleNamespace) -> list[str]:
    return ["".join(row.chars).rstrip() for row in parts.app._driver.cells._wanted]


async def assert_drawn(parts: SimpleNamespace) -> None:
    """Compare the terminal with a full render of the screen."""
    told, layer = shown(parts), FrameLayer()
    assert layer.take(parts.screen._compositor.render_full_update())
    assert told == ["".join(row.chars).rstrip() for row in layer._wanted]


async def settled() -> None:
    for _ in range(12):  # turns of the loop: where others have the processor, a length of time may hold too few
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(6))
async def test_random_changes_are_drawn(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    async with drawn(monkeypatch) as parts:
        app, count = parts.app, 0
        for _ in range(30):
            for _ in range(random.randint(1, 4)):
                count += 1
                match random.randrange(9):
                    case 0 | 1 | 2:
                        app.text.show(
                            "\n".join([app.text.text, *(f"{count} {i}" for i in range(random.randint(0, 3)))])
                        )
                        app.view.changed(app.text)
                    case 3:
                        app.text.show("\n".join(app.text.text.split("\n")[: random.randint(0, 6)]))
                        app.view.changed(app.text)
                    case 4:
                        facts = app.query_one("#facts")
                        facts.display = not facts.display
                    case 5:
                        above = "\n".join(f"above {count}" for _ in range(random.randint(1, 3)))
                        app.query_one("#above", Static).update(above)
                    case 6:
                        app.query_one("#box", Static).update("\n".join(["below"] * random.randint(1, 3)))
                    case 7:
                        app.view.scroll_to(y=random.randint(0, 9), animate=False)
                    case 8:
                        with app.batch_update():
                            app.query_one("#above").display = not app.query_one("#above").display
                            await asyncio.sleep(random.choice([0, 0.02]))
                        app.screen.check_idle()
                if random.random() < 0.5:
                    await asyncio.sleep(random.choice([0, 0.01, 0.03]))
            await settled()
            await assert_drawn(parts)
