"""Widgets that are removed before they were drawn: an answer that is fetched while its chat is left."""

from __future__ import annotations

from tests.ui.conftest import StartChat
from vlmtui.session.generation import Answer
from vlmtui.ui.chat.assistant_turn import AssistantTurn


async def test_an_answer_that_is_removed_as_it_comes_ends_nothing(chatting: StartChat) -> None:
    async with chatting() as chat:
        for _ in range(20):
            turn = AssistantTurn(Answer("r"))
            mounting = chat.app.screen.mount(turn)
            removing = turn.remove()
            await mounting
            await removing
        await chat.pilot.pause()
        assert not chat.app.screen.query(AssistantTurn)
