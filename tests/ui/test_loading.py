"""The loading screen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual import events
from textual.widgets import Static

from tests.support.documents import written
from tests.support.scripted_engine import Hold, LoadStep, ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import AppPilot, MakeApp
from vlmtui.domain.engine import LoadFailed, LoadProgress, LoadStage
from vlmtui.domain.generation import Failure
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.engines import EngineState
from vlmtui.store.store import Store
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.models.loading import FailureView, LoadingScreen, StageList, clock_text
from vlmtui.ui.models.log import LogView
from vlmtui.ui.models.screen import ModelsScreen

pytestmark = pytest.mark.usefixtures("plain_chat")

OUT_OF_MEMORY = Failure(
    kind=ErrorKind.OUT_OF_MEMORY,
    message="The GPU does not have enough free memory [/x].",
    detail="torch.OutOfMemoryError: CUDA out of memory.",
    hint="Lower gpu_memory_utilization.",
)


def held_load(until: asyncio.Event, *then: LoadStep) -> list[LoadStep]:
    """A load that stops at 43 % of its weights."""
    return [
        LoadProgress(stage=LoadStage.ENVIRONMENT, elapsed_s=0.0),
        LoadProgress(stage=LoadStage.CONFIG, elapsed_s=1.5),
        LoadProgress(stage=LoadStage.WEIGHTS, elapsed_s=2.0, fraction=0.43, detail="2 of 5 shards"),
        Hold(until),
        *then,
    ]


async def loading(app: VlmtuiApp, pilot: AppPilot) -> LoadingScreen:
    """The loading screen, once the weights are being read."""

    def reading() -> bool:
        progress = app.engines.progress
        return isinstance(app.screen, LoadingScreen) and progress is not None and progress.fraction == 0.43

    await until(pilot, reading)
    await pilot.pause()
    assert isinstance(app.screen, LoadingScreen)
    return app.screen


def stage_text(screen: LoadingScreen) -> str:
    return str(screen.query_one(StageList).content)


async def test_stages_are_ticked_off_with_their_times_and_the_weights_have_a_bar(make_app: MakeApp) -> None:
    app = make_app(ScriptedHost(load=held_load(asyncio.Event())), initial_model="shapes")
    async with app.run_test() as pilot:
        screen = await loading(app, pilot)
        await until(pilot, lambda: "43%" in stage_text(screen))
        lines = stage_text(screen).splitlines()
        assert lines[0].split() == ["✓", "Environment", "1.5", "s"]
        assert lines[1].split() == ["✓", "Config,", "engine", "start", "0.5", "s"]
        assert "2 of 5 shards" in lines[2]
        assert [line[0] for line in lines[3:]] == ["○", "○", "○"]


async def test_the_log_tail_is_live_and_hostile_text_is_visible(make_app: MakeApp) -> None:
    host = ScriptedHost(load=held_load(asyncio.Event()))
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        screen = await loading(app, pilot)
        view = screen.query_one(LogView)
        host.engine.add_log("[/x] \x1b]0;title\x07 \x1b[31mred\x1b[0m")
        await until(pilot, lambda: view.render_line(2).text.strip() == "[/x] ␛]0;title␇ red")


async def test_abort_ends_the_engine_and_returns_to_the_picker(make_app: MakeApp) -> None:
    host = ScriptedHost(load=held_load(asyncio.Event()))
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await loading(app, pilot)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))
        assert host.engine.was_shut_down
        assert not host.engine.alive
        assert app.engines.state is EngineState.NONE


async def test_a_failed_load_has_a_remedy_and_can_be_retried(make_app: MakeApp) -> None:
    go = asyncio.Event()
    host = ScriptedHost(load=held_load(go, LoadFailed(OUT_OF_MEMORY)))
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        screen = await loading(app, pilot)
        go.set()
        await until(pilot, lambda: screen.query_one(FailureView).display)
        await pilot.pause()
        shown = " ".join(str(static.content) for static in screen.query_one(FailureView).query(Static))
        shown += written(screen.query_one("FailureView .detail", DocumentView))
        for part in (OUT_OF_MEMORY.message, OUT_OF_MEMORY.detail, OUT_OF_MEMORY.hint):
            assert part in shown
        assert "✗ Weights" in stage_text(screen)
        host.load_steps = held_load(asyncio.Event())
        await pilot.press("r")
        await until(pilot, lambda: len(host.engines) == 2 and app.engines.state is EngineState.LOADING)
        await until(pilot, lambda: not screen.query_one(FailureView).display)


async def test_a_failed_start_is_reported_and_back_leads_to_the_picker(make_app: MakeApp) -> None:
    host = ScriptedHost()
    host.refuse = VlmtuiError(ErrorKind.NO_ENGINE, "vLLM is not installed.", hint="pip install 'vlmtui[cpu]'")
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.engines.state is EngineState.DEAD)
        await until(pilot, lambda: app.screen.query_one(FailureView).display)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))


async def test_the_log_over_a_load_is_not_torn_away_when_the_engine_is_ready(make_app: MakeApp) -> None:
    go = asyncio.Event()
    app = make_app(ScriptedHost(load=held_load(go)), initial_model="shapes")
    async with app.run_test() as pilot:
        screen = await loading(app, pilot)
        await pilot.press("f4")
        await until(pilot, lambda: app.screen is not screen)
        log = app.screen
        go.set()
        await until(pilot, lambda: app.engines.state is EngineState.READY)
        await pilot.pause()
        assert app.screen is log


def test_the_clock() -> None:
    assert [clock_text(seconds) for seconds in (0, 7.9, 760, 3723)] == ["0:00", "0:07", "12:40", "1:02:03"]


async def test_text_typed_while_a_model_loads_is_shown(make_app: MakeApp) -> None:
    app = make_app(ScriptedHost(load=held_load(asyncio.Event())), initial_model="shapes")
    async with app.run_test() as pilot:
        screen = await loading(app, pilot)
        await pilot.press(*"zoo, or rax", "backspace", *"ce?", "enter", *"[/x]")
        app.post_message(events.Paste(" pasted"))
        shown = screen.query_one("#typed", Static)
        await until(pilot, lambda: "[/x] pasted▏" in str(shown.content))
        assert shown.display and "zoo, or race?" in str(shown.content)


async def test_letters_after_others_are_text_even_if_the_load_has_failed(make_app: MakeApp) -> None:
    host = ScriptedHost(load=held_load(asyncio.Event(), LoadFailed(OUT_OF_MEMORY)))
    host.refuse = VlmtuiError(ErrorKind.NO_ENGINE, "vLLM is not installed.")
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.engines.state is EngineState.DEAD)
        await until(pilot, lambda: app.screen.query_one(FailureView).display)
        await pilot.press(*"where")
        assert app.typed_ahead.text == "where" and app.engines.state is EngineState.DEAD


async def test_the_draft_survives_a_cancelled_load_and_the_app(make_app: MakeApp, tmp_path: Path) -> None:
    host = ScriptedHost(load=held_load(asyncio.Event()))
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await loading(app, pilot)
        await pilot.press(*"half", "escape")
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))
        await pilot.press("enter")
        screen = await loading(app, pilot)
        assert "half▏" in str(screen.query_one("#typed", Static).content)
        await pilot.press(*" a mess")
        app.action_help_quit()
        app.action_help_quit()
        await until(pilot, lambda: app.typed_ahead.text == "")
    store = Store.open(app.services.paths.data, app.services.paths.media)
    found = store.last()
    assert found is not None and store.draft(found).text == "half a mess"
    store.close()
