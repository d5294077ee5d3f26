"""The log screen."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Static

from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import MakeApp, PlainChat, open_models
from vlmtui.log_ring import LogRing
from vlmtui.session.engines import LOG_LINES
from vlmtui.ui.document.lines import as_written, hanging
from vlmtui.ui.models.log import LogScreen, LogView, log_line
from vlmtui.ui.widgets.search_bar import SearchBar

pytestmark = pytest.mark.usefixtures("plain_chat")


def seen(view: LogView) -> list[str]:
    """Return the lines in view."""
    return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


async def test_the_log_is_live_follows_its_end_and_holds_still_when_scrolled(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, PlainChat) and bool(host.engines))
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        view = app.screen.query_one(LogView)
        for number in range(100):
            host.engine.add_log(f"line {number}")
        await until(pilot, lambda: seen(view)[-1] == "line 99")
        assert "102 lines" in str(app.screen.query_one("#count", Static).content)
        await pilot.press("g")
        await until(pilot, lambda: "line 0" in seen(view))
        before = seen(view)
        host.engine.add_log("one more")
        await until(pilot, lambda: "103 lines" in str(app.screen.query_one("#count", Static).content))
        await pilot.pause()
        assert seen(view) == before
        await pilot.press("G")
        await until(pilot, lambda: seen(view)[-1] == "one more")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, PlainChat) and bool(host.engines))


async def test_a_line_wider_than_the_screen_is_wrapped_and_the_log_can_be_copied(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, PlainChat) and bool(host.engines))
        host.engine.add_log("x" * 200)
        await until(pilot, lambda: app.engines.log.total == 3)
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        view = app.screen.query_one(LogView)
        await until(pilot, lambda: sum(line.count("x") for line in seen(view)) == 200)
        await pilot.press("y")
        await until(pilot, lambda: app.clipboard.endswith("x" * 200))


async def test_the_log_is_searched(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, PlainChat) and bool(host.engines))
        for number in range(100):
            host.engine.add_log(f"line {number}")
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        view, bar = app.screen.query_one(LogView), app.screen.query_one(SearchBar)
        await until(pilot, lambda: seen(view)[-1] == "line 99")

        def told() -> str:
            return str(bar.query_one(Static).content)

        await pilot.press("n")
        await until(pilot, lambda: bar.display)
        await pilot.press(*"line 5")
        await until(pilot, lambda: told() == "1 of 11" and "line 5" in seen(view))
        await pilot.press("down", "enter")
        await until(pilot, lambda: told() == "2 of 11" and not bar.display and view.has_focus)
        await pilot.press("n", "n", "N")
        await until(pilot, lambda: told() == "3 of 11" and "line 51" in seen(view))
        host.engine.add_log("line 500")
        await until(pilot, lambda: app.engines.log.total == 103)
        await pilot.pause()
        assert "line 51" in seen(view), "a found line stays in view while the log grows"
        await pilot.press("slash", "x")
        await until(pilot, lambda: told() == "not found")


async def test_without_an_engine_the_log_says_so(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await open_models(pilot)
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        assert app.screen.query_one("#empty").display


def test_colours_go_and_every_other_control_character_is_visible() -> None:
    assert log_line("\x1b[1;31mred\x1b[0m\x1b[2J\r\u202e") == "red␛[2J␍<U+202E>"


def test_wrapped_lines_are_indented_and_copied_as_written() -> None:
    def rows(text: str, width: int) -> list[str]:
        lines = hanging(text, width)
        assert as_written((line, 0, None) for line in lines) == text
        return [line.plain for line in lines]

    assert rows("漢" * 10, 8) == ["漢" * 4, "    漢漢", "    漢漢", "    漢漢"]
    assert rows("loading the weights", 12) == ["loading the ", "    weights"]
    assert rows("short", 12) == ["short"]


async def test_the_oldest_lines_of_a_long_log_go_while_others_stay_in_place() -> None:
    class Host(App[None]):
        def compose(self) -> ComposeResult:
            yield LogView()

    async with Host().run_test(size=(20, 4)) as pilot:
        log, view = LogRing(LOG_LINES), pilot.app.query_one(LogView)
        log.extend(f"line {number}" for number in range(LOG_LINES))
        view.show_log(log)
        await until(pilot, lambda: view.document.height == LOG_LINES)
        await pilot.pause()
        assert seen(view)[-1] == f"line {LOG_LINES - 1}"
        view.scroll_to(y=3000, animate=False)
        await pilot.pause()
        before = seen(view)
        assert before[0] == "line 3000"
        for start in range(LOG_LINES, LOG_LINES + 2000, 300):
            log.extend(f"line {number}" for number in range(start, start + 300))
            view.show_log(log)
            await pilot.pause()
        assert seen(view) == before
        assert LOG_LINES <= view.document.height < LOG_LINES + 1000
        log.clear()
        log.append("afresh")
        view.show_log(log)
        await pilot.pause()
        assert seen(view) == ["afresh", "", "", ""]


def test_the_log_keeps_the_newest_lines() -> None:
    log = LogRing(capacity=3)
    for number in range(5):
        log.append(str(number))
    assert log.since(0) == ["2", "3", "4"]
    assert log.since(4) == ["4"]
    assert log.since(5) == []
    log.clear()
    assert (log.total, log.generation, log.since(0)) == (0, 1, [])
