"""Snapshots of the screens in terminals of several sizes, dark and light. Clock and spinner stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import AppPilot, MakeApp, open_models
from tests.ui.test_loading import OUT_OF_MEMORY, held_load, loading
from vlmtui.config.settings import Settings
from vlmtui.domain.engine import LoadFailed
from vlmtui.registry.loader import Registry
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.frame import LoadCard
from vlmtui.ui.help import HelpScreen
from vlmtui.ui.models.screen import ModelsScreen

SnapCompare = Callable[..., bool]

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])


class Look(NamedTuple):
    """A terminal's size in columns and rows, and a theme."""

    size: tuple[int, int]
    theme: str = ""

    @property
    def settings(self) -> Settings:
        return Settings(graphics="off", theme=self.theme)

    @property
    def id(self) -> str:
        return "{}x{}".format(*self.size) + (f"-{self.theme}" if self.theme else "")


LOOKS = pytest.mark.parametrize(
    "look",
    [Look((60, 20)), Look((80, 24)), Look((120, 40)), Look((200, 60)), Look((120, 40), "light")],
    ids=lambda look: look.id,
)
"""For the main screens; the others only have snapshots in `SIZES`."""


def still(app: VlmtuiApp) -> VlmtuiApp:
    """Switch animations off."""
    app.animation_level = "none"
    return app


def of(pilot: AppPilot) -> VlmtuiApp:
    assert isinstance(pilot.app, VlmtuiApp)
    return pilot.app


async def stop_the_clock(app: VlmtuiApp, pilot: AppPilot) -> None:
    """Stop the clock twelve seconds after the load began."""
    card = await loading(app, pilot)
    card._clock = lambda: app.engines.started_at + 12
    card.show()


@LOOKS
def test_the_picker(snap_compare: SnapCompare, make_app: MakeApp, eighty_families: Registry, look: Look) -> None:
    async def before(pilot: AppPilot) -> None:
        app = of(pilot)
        await open_models(pilot)
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen) and app.screen.machine is not None)
        await pilot.press("down", "down", "down")
        await pilot.pause()

    app = make_app(registry=eighty_families, settings=look.settings)
    assert snap_compare(still(app), run_before=before, terminal_size=look.size)


@SIZES
def test_a_load(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    host = ScriptedHost(load=held_load(asyncio.Event()))

    async def before(pilot: AppPilot) -> None:
        await stop_the_clock(of(pilot), pilot)

    assert snap_compare(still(make_app(host, initial_model="shapes")), run_before=before, terminal_size=size)


@SIZES
def test_a_load_that_failed(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    go = asyncio.Event()
    host = ScriptedHost(load=held_load(go, LoadFailed(OUT_OF_MEMORY)))

    async def before(pilot: AppPilot) -> None:
        app = of(pilot)
        await stop_the_clock(app, pilot)
        go.set()
        await until(pilot, lambda: "Can't load" in str(app.screen.query_one(LoadCard).content))
        await pilot.pause()

    assert snap_compare(still(make_app(host, initial_model="shapes")), run_before=before, terminal_size=size)


@SIZES
def test_the_help_in_the_light_theme(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    async def before(pilot: AppPilot) -> None:
        app = of(pilot)
        await open_models(pilot)
        app.theme = "vlmtui-light"
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.pause()

    assert snap_compare(still(make_app()), run_before=before, terminal_size=size)
