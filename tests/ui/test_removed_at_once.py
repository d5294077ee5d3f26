"""Widgets and screens that are removed before they were drawn."""

from __future__ import annotations

import asyncio

import pytest
from textual.css.query import NoMatches
from textual.widgets import Static

from tests.ui.conftest import StartChat
from vlmtui.ui.chat.composer import Composer


async def test_leaving_a_chat_before_it_is_ready_ends_nothing(chatting: StartChat) -> None:
    async with chatting(["One."]) as chat:
        await chat.say("first")
        before = chat.screen
        for turns in range(6):
            chat.app.push_screen(chat.app.new_chat())
            for _ in range(turns):
                await asyncio.sleep(0)
            await chat.app.pop_screen()
        await chat.until(lambda: chat.app.screen is before)
        assert "One." in chat.screen_text()


async def test_a_call_that_comes_after_its_widget_was_removed_ends_nothing(chatting: StartChat) -> None:
    class Late(Static):
        def look(self) -> None:
            self.query_one(Composer)

    async with chatting() as chat:
        late = Late()
        await chat.app.screen.mount(late)
        await late.remove()
        chat.app.screen.call_after_refresh(late.look)
        await chat.pilot.pause()
        assert chat.app.is_running


async def test_a_widget_that_lacks_a_child_otherwise_ends_the_app_with_its_error(chatting: StartChat) -> None:
    class Lacking(Static):
        def on_mount(self) -> None:
            self.query_one(Composer)

    with pytest.raises(NoMatches):
        async with chatting() as chat:
            await chat.app.screen.mount(Lacking())
            await chat.pilot.pause()
