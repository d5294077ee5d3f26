"""The look of the chat, from a small terminal to a large one, dark and light."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, Static, TextArea

from tests.support.pictures import Easel
from tests.support.scripted_engine import Die, ScriptedHost
from tests.support.waiting import until, until_chat
from tests.ui.conftest import AppPilot, MakeApp, answers_of
from tests.ui.test_screens_look import LOOKS, Look, SnapCompare, of, still
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.frame import FactsLine
from vlmtui.ui.help import LeaderScreen
from vlmtui.ui.settings import SettingsScreen

MARKDOWN = "A **red** circle:\n\n- round\n- red\n\n```python\ndef area(r):\n    return 3.14 * r * r\n```\n"


@pytest.fixture(autouse=True)
def still_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    for widget in (Input, TextArea):
        monkeypatch.setattr(widget, "_restart_blink", lambda self: None)


def last_row(app: VlmtuiApp) -> str:
    return app.screen._compositor.render_strips()[-1].text


def status(app: VlmtuiApp) -> str:
    rows = app.screen._compositor.render_strips()
    return rows[-2].text if len(rows) > 1 else ""


@LOOKS
def test_a_conversation(snap_compare: SnapCompare, make_app: MakeApp, tmp_path: Path, look: Look) -> None:
    host = ScriptedHost(answers=[["<think>\nOne shape.\n</think>\n\n", MARKDOWN], ["Half ", Die()]])

    async def before(pilot: AppPilot) -> None:
        app = of(pilot)
        await until_chat(pilot)
        chat = app.conversation.chat
        assert chat is not None
        picture = Easel(tmp_path).picture(("red", "circle", "top left"))
        app.run_action_id("attach", str(picture.path))
        await until(pilot, lambda: len(chat.draft.attachments) == 1)
        for number, text in enumerate(("What is this?", "And now?"), 1):
            await pilot.press(*(char if char != " " else "space" for char in text), "enter")
            await until(pilot, lambda number=number: len(answers_of(app.screen)) == number)  # type: ignore[misc]
            last = answers_of(app.screen)[-1]
            await until(pilot, lambda last=last: last.answer.outcome is not None)  # type: ignore[misc]
        await until(pilot, lambda: any("sends it again" in row.text for row in app.screen._compositor.render_strips()))
        await until(pilot, lambda: "Stop" not in last_row(app) and "Compare" in last_row(app))
        await until(pilot, lambda: app.screen.query_one(FactsLine).has_class("-filled"))
        await pilot.pause()

    assert snap_compare(
        still(make_app(host, initial_model="shapes", settings=look.settings)),
        run_before=before,
        terminal_size=look.size,
    )


@LOOKS
def test_the_settings(snap_compare: SnapCompare, make_app: MakeApp, look: Look) -> None:
    async def before(pilot: AppPilot) -> None:
        app = of(pilot)
        await until_chat(pilot)
        await until(pilot, lambda: "ready" in status(app) and "context" in status(app))
        await pilot.press("f2")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        await pilot.pause()

    assert snap_compare(
        still(make_app(initial_model="shapes", settings=look.settings)), run_before=before, terminal_size=look.size
    )


@LOOKS
def test_the_keys_after_the_leader(snap_compare: SnapCompare, make_app: MakeApp, look: Look) -> None:
    async def before(pilot: AppPilot) -> None:
        app = of(pilot)
        await until_chat(pilot)
        await pilot.press("h", "i", "enter")
        await until(pilot, lambda: bool(answers := answers_of(app.screen)) and answers[-1].answer.outcome is not None)
        await until(pilot, lambda: "Compare" in last_row(app) and "context" in status(app))
        await until(pilot, lambda: bool(app.screen.query_one("#conversation").border_title))
        await until(pilot, lambda: app.screen.query_one(FactsLine).has_class("-filled"))
        await pilot.pause()
        await pilot.press("ctrl+x")
        await until(pilot, lambda: isinstance(app.screen, LeaderScreen))
        await until(pilot, lambda: "Help" in str(app.screen.query_one("#strip", Static).content))

    host = ScriptedHost(answers=[["It is a **red circle**."]])
    app = still(make_app(host, initial_model="shapes", settings=look.settings))
    assert snap_compare(app, run_before=before, terminal_size=look.size)
