"""Ctrl+C, with nothing to copy or stop, shows how to quit, on screens and in dialogs; a second one quits."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.command import CommandPalette

from tests.support.toy_prompts import use_chat_template
from tests.ui.conftest import Chat, StartChat, picture
from vlmtui.ui.attachments.browser import BrowserScreen
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.conversations import ConversationsScreen
from vlmtui.ui.help import HelpScreen, LeaderScreen
from vlmtui.ui.inspector.screen import InspectorScreen
from vlmtui.ui.models.log import LogScreen
from vlmtui.ui.models.screen import ModelsScreen
from vlmtui.ui.seeing.room import ImageRoom
from vlmtui.ui.services import Delays
from vlmtui.ui.widgets.dialogs import ChoiceScreen, NameScreen

SAID = "Press Ctrl+C again to quit."


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
        (["ctrl+x"], [LeaderScreen]),
        (["f10"], [CompareScreen]),
        (["f10", "ctrl+x", "P"], [CompareScreen, LeaderScreen, ChoiceScreen]),
        (["f10", "ctrl+s"], [CompareScreen, NameScreen]),
    ],
    ids=lambda given: given[-1].__name__ if given and isinstance(given[-1], type) else "",
)
async def test_the_hint_says_that_a_second_ctrl_c_quits(
    chatting: StartChat, monkeypatch: pytest.MonkeyPatch, keys: list[str], screens: list[type]
) -> None:
    use_chat_template(monkeypatch)
    async with chatting(["One."], delays=Delays(quit_again=60)) as chat:
        await chat.say("Count")
        for key, screen in zip(keys, screens, strict=True):
            await chat.pilot.press(key)
            await chat.until(lambda screen=screen: isinstance(chat.app.screen, screen) and chat.app.screen.is_mounted)  # type: ignore[misc]
        await quits(chat)


async def quits(chat: Chat) -> None:
    """Press Ctrl+C twice: the first shows how to quit, the second quits."""
    shown = chat.app.screen
    await chat.pilot.press("ctrl+c")
    await chat.until(lambda: SAID in chat.notes)
    assert chat.app.screen is shown and chat.app.return_value is None
    await chat.pilot.press("ctrl+c")
    await chat.until(lambda: chat.app.return_value is not None)


@pytest.mark.parametrize("screen", [ChoiceScreen, ImageRoom])
async def test_other_dialogs_say_it_too(chatting: StartChat, tmp_path: Path, screen: type) -> None:
    async with chatting(delays=Delays(quit_again=60)) as chat:
        await opened(chat, screen, tmp_path)
        await chat.until(lambda: isinstance(chat.app.screen, screen) and chat.app.screen.is_mounted)
        await quits(chat)


async def opened(chat: Chat, screen: type, folder: Path) -> None:
    if screen is ChoiceScreen:
        chat.app.push_screen(ChoiceScreen("Really?", ["Yes"]))
    else:
        chat.screen.sources.attach_files([picture(folder)])
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.pilot.press("f9")
