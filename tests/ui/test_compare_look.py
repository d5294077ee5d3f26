"""The look of the comparison, from a small terminal to a large one, dark and light."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, TextArea

from tests.support.documents import written
from tests.support.scripted_engine import ScriptedHost
from tests.support.toy_prompts import use_chat_template
from tests.support.waiting import until, until_chat
from tests.ui.conftest import AppPilot, MakeApp, picture
from tests.ui.test_screens_look import LOOKS, Look, SnapCompare, of, still
from vlmtui.domain.conversation import attachments_of
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.compare.answers import AnswerPane
from vlmtui.ui.compare.fan_out import FanOutScreen
from vlmtui.ui.compare.raw_prompt import FindingsList, RawEditor
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.document.view import DocumentView

LEFT = ["The", " picture", " shows", " a", " red", " circle", " at", " the", " left."]
RIGHT = ["The", " picture", " shows", " a", " blue", " circle", " at", " the", " top."]


@pytest.fixture(autouse=True)
def still_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    use_chat_template(monkeypatch)
    for widget in (Input, TextArea):
        monkeypatch.setattr(widget, "_restart_blink", lambda self: None)


async def asked(pilot: AppPilot, folder: Path) -> CompareScreen:
    """Both were asked, the raw prompt without a line break and an end of the turn."""
    app = of(pilot)
    await until_chat(pilot)
    chat = app.conversation.chat
    assert chat is not None
    app.run_action_id("attach", str(picture(folder)))
    await until(pilot, lambda: len(chat.draft.attachments) == 1)
    app.screen.query_one(Composer).insert("What is this?")
    await pilot.press("f10")
    await until(pilot, lambda: isinstance(app.screen, CompareScreen) and app.screen.is_mounted)
    screen = app.screen
    assert isinstance(screen, CompareScreen)
    editor = screen.query_one(RawEditor)
    await until(pilot, lambda: bool(editor.text))
    editor.fill(editor.text.replace("user\n", "user").replace("<|im_end|>", ""))
    await until(pilot, lambda: len(screen.query_one(FindingsList).findings) == 1)
    await pilot.press("ctrl+r")
    await until(pilot, lambda: screen.comparison.is_over and _marked(screen) and _stored(app) == 1)
    return screen


def _marked(screen: CompareScreen) -> bool:
    """Return True once the words in which the answers differ are marked."""
    return bool(screen.query_one("#raw-answer", AnswerPane).text._marks)


def _stored(app: VlmtuiApp) -> int:
    """Return the number of comparisons of the last message."""
    assert app.conversation.chat is not None and app.conversation.chat.last is not None
    turn = app.conversation.chat.last.user_id
    return 0 if turn is None else app.services.store.run_now(lambda store: len(store.comparisons(turn)))


@LOOKS
def test_two_sides(snap_compare: SnapCompare, make_app: MakeApp, tmp_path: Path, look: Look) -> None:
    async def before(pilot: AppPilot) -> None:
        screen = await asked(pilot, tmp_path)
        screen.turn_to("raw")
        await pilot.pause()

    app = make_app(ScriptedHost(answers=[list(LEFT), list(RIGHT)]), initial_model="shapes", settings=look.settings)
    assert snap_compare(still(app), run_before=before, terminal_size=look.size)


@LOOKS
def test_the_difference(snap_compare: SnapCompare, make_app: MakeApp, tmp_path: Path, look: Look) -> None:
    async def before(pilot: AppPilot) -> None:
        screen = await asked(pilot, tmp_path)
        screen.turn_to("difference")
        await until(pilot, lambda: "Answers: different" in written(screen.query_one("#difference", DocumentView)))
        await pilot.pause()

    app = make_app(ScriptedHost(answers=[list(LEFT), list(RIGHT)]), initial_model="shapes", settings=look.settings)
    assert snap_compare(still(app), run_before=before, terminal_size=look.size)


@LOOKS
def test_asking_without_the_picture(snap_compare: SnapCompare, make_app: MakeApp, tmp_path: Path, look: Look) -> None:
    async def before(pilot: AppPilot) -> None:
        app = of(pilot)
        await until_chat(pilot)
        chat = app.conversation.chat
        assert chat is not None
        app.run_action_id("attach", str(picture(tmp_path)))
        await until(pilot, lambda: len(chat.draft.attachments) == 1)
        app.screen.query_one(Composer).insert("What is this?")
        await pilot.press("enter")
        await until(pilot, lambda: bool(chat.exchanges) and not chat.exchanges[0].is_running)
        host.engine.score = lambda request: -0.1 if attachments_of(request.prompt) else -1.1
        app.run_action_id("fan_out", "image=sent,none,grey,blur")
        await until(pilot, lambda: isinstance(app.screen, FanOutScreen))
        screen = app.screen
        assert isinstance(screen, FanOutScreen)
        await until(pilot, lambda: screen.scores is not None and screen.differences is not None)
        await pilot.pause()

    host = ScriptedHost(answers=[list(LEFT), list(LEFT), ["Nothing."], list(RIGHT), list(LEFT)])
    app = make_app(host, initial_model="shapes", settings=look.settings)
    assert snap_compare(still(app), run_before=before, terminal_size=look.size)
