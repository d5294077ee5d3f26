"""The engine's metrics beside its log."""

from __future__ import annotations

import msgspec
import pytest
from textual.widgets import Sparkline, Static

from tests.support.scripted_engine import DEFAULT_SPEC, ScriptedHost, scripted_info
from tests.support.waiting import until
from tests.ui.conftest import AppPilot, MakeApp, PlainChat
from vlmtui.domain.capabilities import Capabilities
from vlmtui.domain.generation import Failure
from vlmtui.domain.metrics import EngineMetrics, MetricsSample, RankMetrics
from vlmtui.errors import ErrorKind
from vlmtui.session.engines import EngineMeter
from vlmtui.ui.models.log import LogScreen

pytestmark = pytest.mark.usefixtures("plain_chat")


def sample(at: float, generated: int, *, ranks: int = 1, running: int = 1) -> MetricsSample:
    """Each rank has generated as much."""
    found = tuple(
        RankMetrics(
            rank=str(number), running=running, waiting=0, kv_cache=0.25, preemptions=0, prompt_tokens=57,
            cached_tokens=40, generated_tokens=generated, first_token_s=(0.02, 0.09, 1.5),
        )
        for number in range(ranks)
    )  # fmt: skip
    times = (0.02, 0.09, 1.5)
    metrics = EngineMetrics(
        models=("m",), ranks=found, media_lookups=18, media_hits=7, first_token_s=times, between_tokens_s=times
    )
    return MetricsSample(at=at, metrics=metrics)


def text_of(screen: LogScreen, which: str) -> str:
    return str(screen.query_one(which, Static).content)


async def opened(pilot: AppPilot) -> LogScreen:
    app = pilot.app
    await until(pilot, lambda: isinstance(app.screen, PlainChat))
    await pilot.press("f4")
    await until(pilot, lambda: isinstance(app.screen, LogScreen))
    assert isinstance(app.screen, LogScreen)
    return app.screen


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
async def test_the_panel_is_live_and_shows_each_rank(make_app: MakeApp, size: tuple[int, int]) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=size) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: "Asking the engine" in text_of(screen, "#state"))
        host.engine.add_metrics(sample(100.0, 0))
        await until(pilot, lambda: "1 run, 0 wait" in text_of(screen, "#state"))
        assert not screen.query_one("#ranks").display
        host.engine.add_metrics(sample(102.0, 200, ranks=2, running=3))
        await until(pilot, lambda: "6 run, 0 wait" in text_of(screen, "#state"))
        shown = text_of(screen, "#state")
        for told in ("200 tok/s", "25.0% used", "80 of 114 (70%)", "7 of 18 (39%)", "20ms 90ms 1.5s"):
            assert told in shown
        assert text_of(screen, "#ranks").splitlines()[2].split() == ["1", "3", "0", "25%", "200", "20", "ms"]
        assert max(screen.query_one(Sparkline).data or ()) == 200.0
        assert screen.query_one("#metrics").region.right <= size[0]


async def test_a_failure_is_shown_until_the_next_sample(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        host.engine.add_metrics(Failure(kind=ErrorKind.NO_NETWORK, message="Nothing [/x] listens."))
        await until(pilot, lambda: text_of(screen, "#state") == "Nothing [/x] listens.")
        host.engine.add_metrics(sample(100.0, 0))
        await until(pilot, lambda: "1 run" in text_of(screen, "#state"))
        assert "listens" not in text_of(screen, "#state")
        await pilot.press("M")
        await until(pilot, lambda: not screen.query_one("#metrics").display)


async def test_an_engine_without_metrics_is_reported(make_app: MakeApp) -> None:

    info = msgspec.structs.replace(scripted_info(DEFAULT_SPEC), capabilities=Capabilities())
    app = make_app(ScriptedHost(load=[], info=info), initial_model="shapes")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: "doesn't report its requests" in text_of(screen, "#state"))
        assert not screen.query_one("#check").display


async def test_the_command_that_checks_a_server_can_be_copied(make_app: MakeApp) -> None:
    spec = msgspec.structs.replace(DEFAULT_SPEC, backend="remote", model="it's", name="it's at http://box:8000")
    app = make_app(ScriptedHost(load=[], info=scripted_info(spec)), initial_model="shapes")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: screen.query_one("#check").display)
        assert text_of(screen, "#check").endswith("vlmtui check --on 'http://box:8000 it'\"'\"'s'")


def test_the_graph_is_of_the_last_five_minutes_and_a_restart_is_no_speed() -> None:
    meter = EngineMeter()
    assert (meter.speed, meter.newest, meter.speeds(3)) == (None, None, [0.0, 0.0, 0.0])
    for at, generated in ((0.0, 0), (10.0, 1000), (400.0, 1000), (410.0, 1500), (600.0, 100)):
        meter.add(sample(at, generated))
    assert meter.speed is None, "fewer tokens than before: it began anew"
    assert meter.speeds(3) == [0.0, 50.0, 0.0], "what is older than five minutes is not shown"
    meter.clear()
    assert meter.newest is None
