"""The log screen."""

from __future__ import annotations

import pytest
from textual.widgets import Static

from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import MakeApp, PlainChat
from vlmtui.log_ring import LogRing
from vlmtui.ui.models.log import LogScreen
from vlmtui.ui.models.log_tail import LogTail, log_line, wrap_line
from vlmtui.ui.models.screen import ModelsScreen

pytestmark = pytest.mark.usefixtures("plain_chat")


async def test_the_log_is_live_follows_its_end_and_holds_still_when_scrolled(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, PlainChat))
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        lines = app.screen.query_one(LogTail)
        for number in range(100):
            host.engine.add_log(f"line {number}")
        await until(pilot, lambda: lines.line_count == 102 and lines.is_vertical_scroll_end)
        assert "102 lines" in str(app.screen.query_one("#count", Static).content)
        await pilot.press("g")
        await until(pilot, lambda: lines.scroll_y == 0)
        host.engine.add_log("one more")
        await until(pilot, lambda: lines.line_count == 103)
        await pilot.pause()
        assert lines.scroll_y == 0
        await pilot.press("G")
        await until(pilot, lambda: lines.is_vertical_scroll_end)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, PlainChat))


async def test_a_line_wider_than_the_screen_is_wrapped_and_the_log_can_be_copied(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, PlainChat))
        host.engine.add_log("x" * 200)
        await until(pilot, lambda: app.engine_controller.log.total == 3)
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        lines = app.screen.query_one(LogTail)
        await until(pilot, lambda: lines.line_count == 5)
        assert sum(line.count("x") for line in lines.lines) == 200
        await pilot.press("y")
        await until(pilot, lambda: app.clipboard.endswith("x" * 200))


async def test_without_an_engine_it_says_so(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        assert app.screen.query_one("#empty").display


def test_colours_go_and_every_other_control_character_is_visible() -> None:
    assert log_line("\x1b[1;31mred\x1b[0m\x1b[2J\r\u202e") == "red␛[2J␍<U+202E>"


def test_wrapping_counts_cells() -> None:
    assert wrap_line("漢" * 10, 8) == ["漢" * 4, "    漢漢", "    漢漢", "    漢漢"]
    assert wrap_line("loading the weights", 12) == ["loading the ", "    weights"]
    assert wrap_line("short", 12) == ["short"]


def test_the_log_keeps_the_newest_lines() -> None:
    log = LogRing(capacity=3)
    for number in range(5):
        log.append(str(number))
    assert log.since(0) == ["2", "3", "4"]
    assert log.since(4) == ["4"]
    assert log.since(5) == []
    log.clear()
    assert (log.total, log.generation, log.since(0)) == (0, 1, [])
