"""The app from the list of models to the chat and back, and every way in which it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Never
from unittest.mock import Mock

import pytest
from textual.css.stylesheet import Stylesheet
from textual.widgets import OptionList

from tests.support.scripted_engine import Hold, ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import MakeApp, PlainChat, open_models
from vlmtui.config.settings import Settings
from vlmtui.domain.engine import LoadSpec
from vlmtui.registry.loader import Registry
from vlmtui.session.engines import EngineState
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.models.screen import ModelList, ModelsScreen
from vlmtui.ui.services import Delays, ExitReport
from vlmtui.ui.terminal.themes import LIGHT
from vlmtui.ui.widgets.dialogs import ChoiceScreen

pytestmark = pytest.mark.usefixtures("plain_chat")


def held() -> ScriptedHost:
    """Return a host whose engines never finish loading."""
    return ScriptedHost(load=[Hold(asyncio.Event())])


def screen_is(app: VlmtuiApp, kind: type) -> bool:
    return isinstance(app.screen, kind)


async def test_from_the_picker_to_the_chat(make_app: MakeApp) -> None:
    app = make_app(ScriptedHost(load=[]))
    async with app.run_test() as pilot:
        await open_models(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: screen_is(app, PlainChat) and app.engines.state is EngineState.READY)
        assert app.engines.state is EngineState.READY


async def test_a_named_model_is_loaded_at_once(make_app: MakeApp) -> None:
    app = make_app(held(), initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: screen_is(app, PlainChat) and app.engines.state is EngineState.LOADING)


async def test_an_unknown_model_is_reported_in_the_chat(make_app: MakeApp) -> None:
    app = make_app(initial_model="no[/x]such")
    async with app.run_test() as pilot:
        await until(pilot, lambda: any("no[/x]such" in toast.message for toast in app._notifications))
        assert screen_is(app, PlainChat)


async def test_the_loaded_model_leads_back_to_the_same_chat(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: screen_is(app, PlainChat) and app.engines.state is EngineState.READY)
        chat = app.screen
        app.run_action_id("models")
        await until(pilot, lambda: screen_is(app, ModelsScreen))
        await until(pilot, lambda: any(row.current for models in app.screen.query(ModelList) for row in models.choices))
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is chat)
        app.run_action_id("models")
        await until(pilot, lambda: screen_is(app, ModelsScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is chat)
    assert len(host.opened) == 1


async def test_a_model_that_does_not_fit_beside_the_loaded_one_ends_it_after_a_question(
    make_app: MakeApp, eighty_families: Registry
) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, registry=eighty_families, initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: screen_is(app, PlainChat) and app.engines.state is EngineState.READY)
        chat = app.screen
        app.run_action_id("models", "family3")
        await until(pilot, lambda: screen_is(app, ChoiceScreen) and bool(app.screen.query(OptionList)))
        assert host.engines[0].alive
        await pilot.press("down", "enter")
        await until(pilot, lambda: len(host.engines) == 2)
        await until(pilot, lambda: app.engines.state is EngineState.READY and app.screen is chat)
        assert host.engines[0].was_shut_down
        assert app.engines.model is not None
        assert app.engines.model.family.family == "family3"


async def test_enter_twice_loads_once(make_app: MakeApp) -> None:
    host = held()
    app = make_app(host)
    async with app.run_test() as pilot:
        await open_models(pilot)
        picker = app.screen
        assert isinstance(picker, ModelsScreen)
        picker.action_load()
        picker.action_load()
        await until(pilot, lambda: screen_is(app, PlainChat) and app.engines.engine is not None)
        await pilot.pause()
    assert len(host.opened) == 1


async def test_the_list_begins_at_the_model_that_loads(make_app: MakeApp, eighty_families: Registry) -> None:
    app = make_app(held(), registry=eighty_families)
    async with app.run_test() as pilot:
        await open_models(pilot)
        await pilot.press("down", "down", "down")
        row = app.screen.query_one(ModelList).chosen
        assert row is not None
        await pilot.press("enter")
        await until(pilot, lambda: screen_is(app, PlainChat) and app.engines.engine is not None)
        await pilot.press("f3")
        await until(
            pilot,
            lambda: any(
                models.chosen is not None and models.chosen.model == row.model for models in app.screen.query(ModelList)
            ),
        )


async def test_an_engine_that_died_is_restarted_once_then_on_request(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: screen_is(app, PlainChat) and app.engines.state is EngineState.READY)
        chat = app.screen
        host.engine.die()
        await until(pilot, lambda: len(host.engines) == 2 and app.engines.state is EngineState.READY)
        assert app.screen is chat
        host.engine.die()
        await until(pilot, lambda: app.engines.state is EngineState.DEAD)
        app.models.restart()
        await until(pilot, lambda: app.engines.state is EngineState.READY)
        assert app.screen is chat
        host.engine.die()
        await until(pilot, lambda: app.engines.state is EngineState.DEAD)


async def test_quit_leaves_a_ready_engine_and_reports_it(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: screen_is(app, PlainChat) and app.engines.state is EngineState.READY)
        await pilot.press("ctrl+q")
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == ExitReport("shapes", stays=True, keep_alive_s=300.0)
    assert not host.engine.was_shut_down


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_during_a_load_ends_the_engine(make_app: MakeApp, number: signal.Signals) -> None:
    host = held()
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: bool(host.engines))
        os.kill(os.getpid(), number)
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == ExitReport("shapes", stays=False, keep_alive_s=0.0)
    assert app.return_code == 128 + number
    assert host.engine.was_shut_down


async def test_quitting_while_the_engine_is_being_opened_leaves_nothing(make_app: MakeApp) -> None:
    host = SlowHost()
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, host.asked.is_set)
        await pilot.press("ctrl+q")
        await until(pilot, lambda: app.return_value is not None)
    assert host.cancelled
    assert not host.engines


async def test_ctrl_c_hints_once_and_quits_twice(make_app: MakeApp) -> None:
    app = make_app(delays=Delays(quit_again=60.0))
    async with app.run_test() as pilot:
        await open_models(pilot)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: any("again to quit" in toast.message for toast in app._notifications))
        assert [toast.message for toast in app._notifications] == ["Press Ctrl+C again to quit."]
        assert app.return_value is None
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.return_value is not None)


async def test_an_unexpected_error_is_one_sentence_and_a_logged_traceback(
    make_app: MakeApp, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app()

    def broken() -> None:
        raise KeyError("[/x]\x1b[31m")

    with pytest.raises(KeyError):
        async with app.run_test() as pilot:
            await until(pilot, lambda: screen_is(app, PlainChat))
            app.call_later(broken)
            await pilot.pause()
    assert app.return_code == 1
    assert caplog.records[-1].exc_info is not None
    told = capfd.readouterr().err
    assert "vlmtui stopped because of an internal error" in told
    assert "Traceback" not in told
    assert "\x1b[31m" not in told


async def test_an_error_in_a_worker_is_not_lost(make_app: MakeApp) -> None:
    host = ScriptedHost()
    app = make_app(host)

    async def broken(*args: object, **options: object) -> None:
        raise RuntimeError("broken")

    host.running = broken  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="broken"):
        async with app.run_test() as pilot:
            await open_models(pilot)
            await until(pilot, lambda: app._exception is not None)


@pytest.mark.parametrize(
    ("setting", "theme"), [("", "vlmtui-dark"), ("light", "vlmtui-light"), ("nosuch", "vlmtui-dark")]
)
def test_the_theme_of_the_settings(make_app: MakeApp, setting: str, theme: str) -> None:
    assert make_app(settings=Settings(theme=setting)).theme == theme


async def test_styles_are_parsed_once_with_the_theme_of_the_settings(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed_again = Mock()
    monkeypatch.setattr(Stylesheet, "reparse", parsed_again)
    app = make_app(settings=Settings(theme="light"))
    async with app.run_test() as pilot:
        await until(pilot, lambda: screen_is(app, PlainChat))
        await pilot.pause()
        assert app.screen.styles.background.hex.lower() == LIGHT.background
    parsed_again.assert_not_called()


class SlowHost(ScriptedHost):
    """A host whose `open` never returns. Records that it was cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.cancelled = False

    async def open(self, spec: LoadSpec, **others: object) -> Never:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        raise AssertionError("unreachable")
