"""The help screen and the command palette, which come from the action table."""

from __future__ import annotations

from typing import cast

import pytest
from textual.command import CommandPalette, DiscoveryHit

from tests.support.documents import written
from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import MakeApp, PlainChat, open_models
from vlmtui.ui.actions import ACTIONS, SCOPES
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.help import ActionCommands, HelpScreen
from vlmtui.ui.models.screen import ModelsScreen

pytestmark = pytest.mark.usefixtures("plain_chat")


async def test_every_action_is_in_the_help_with_its_key_and_command(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await open_models(pilot)
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        # Lines may break at hyphens.
        text = "".join(written(app.screen.query_one("#text", DocumentView)).split())
        for action in ACTIONS.values():
            assert "".join(action.help.split()) in text
            assert action.slash in text
        assert all(scope.title.replace(" ", "") in text for scope in SCOPES.values())
        sheet = app.screen.query_one("#sheet")
        assert sheet.region.width <= 80
        await pilot.press("end")
        last = list(SCOPES.values())[-1]
        await until(pilot, lambda: last.fixed[-1].help in str(app.export_screenshot()).replace("&#160;", " "))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))


async def test_explanations_use_a_wide_screen(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await open_models(pilot)
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        shown = [strip.text for strip in app.screen._compositor.render_strips()]
        assert any("/engine NAME    Use another engine: one of config.toml, an address" in line for line in shown)
        assert any("  Ctrl+Q            /quit  " in line for line in shown), "the column is as wide as its keys"


async def test_the_palette_offers_the_actions_of_the_screen(make_app: MakeApp) -> None:
    app = make_app(ScriptedHost(load=[]), initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, PlainChat))
        hits = [cast(DiscoveryHit, hit) async for hit in ActionCommands(app.screen).discover()]
        titles = [str(hit.display) for hit in hits]
        assert {"Stop", "Attach", "Help", "Quit", "Light theme"} <= set(titles)
        assert "New chat" not in titles, "the screen has no such action"
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*"light")
        await pilot.press("enter")
        await until(pilot, lambda: app.theme == "vlmtui-light")


async def test_palette_and_slash_commands_go_to_the_screen_first_then_to_the_app(make_app: MakeApp) -> None:
    app = make_app(ScriptedHost(load=[]), initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, PlainChat))
        chat = cast(PlainChat, app.screen)
        app.run_action_id("stop")
        await until(pilot, lambda: chat.stopped == 1)
        app.run_action_id("attach", "a picture.png")
        await until(pilot, lambda: chat.attached == "a picture.png")
        app.run_action_id("help")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
