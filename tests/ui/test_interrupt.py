"""Ctrl+C with nothing to copy or to stop says how to quit, on screens and in dialogs; a second one quits."""

from __future__ import annotations

import pytest
from textual.command import CommandPalette

from tests.support.toy_prompts import use_chat_template
from tests.ui.conftest import StartChat
from vlmtui.ui.attachments.browser import BrowserScreen
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.conversations.screen import ConversationsScreen
from vlmtui.ui.help.leader_screen import LeaderScreen
from vlmtui.ui.help.screen import HelpScreen
from vlmtui.ui.inspector.screen import InspectorScreen
from vlmtui.ui.models.log import LogScreen
from vlmtui.ui.models.screen import ModelsScreen
from vlmtui.ui.services import Delays
from vlmtui.ui.widgets.dialogs import ChoiceScreen, NameScreen

SAID = "quits; so does pressing the same key again."


@pytest.mark.parametrize(
    ("keys", "screens"),
    [
        ([], []),
        (["f3"], [ModelsScreen]),
        (["ctrl+l"], [ConversationsScreen]),
        (["ctrl+o"], [BrowserScreen]),
        (["f1"], [HelpScreen]),
        (["f4"], [LogScreen]),
        (["ctrl+p"], [CommandPalette]),
        (["f12"], [InspectorScreen]),
        (["f10"], [CompareScreen]),
        (["f10", "ctrl+x", "P"], [CompareScreen, LeaderScreen, ChoiceScreen]),
        (["f10", "ctrl+s"], [CompareScreen, NameScreen]),
    ],
    ids=lambda given: given[-1].__name__ if given and isinstance(given[-1], type) else "",
)
async def test_it_says_that_a_second_one_quits(
    chatting: StartChat, monkeypatch: pytest.MonkeyPatch, keys: list[str], screens: list[type]
) -> None:
    use_chat_template(monkeypatch)
    async with chatting(["One."], delays=Delays(quit_again=60)) as chat:
        await chat.say("Count")
        for key, screen in zip(keys, screens, strict=True):
            await chat.pilot.press(key)
            await chat.until(lambda screen=screen: isinstance(chat.app.screen, screen) and chat.app.screen.is_mounted)  # type: ignore[misc]
        shown = chat.app.screen
        await chat.pilot.press("ctrl+c")
        await chat.until(lambda: SAID in chat.notes)
        assert chat.app.screen is shown and chat.app.return_value is None
        await chat.pilot.press("ctrl+c")
        await chat.until(lambda: chat.app.return_value is not None)
