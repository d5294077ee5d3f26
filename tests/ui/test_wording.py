"""Sentences that were asked for by someone who read every screen: they are on the screen as asked."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.scripted_engine import Die, Hold
from tests.ui.conftest import StartChat
from vlmtui.ui.actions.table import ACTIONS


@pytest.mark.parametrize(
    ("id", "title", "help"),
    [
        ("leave_out_oldest", "Leave out attachments", "Stop sending the oldest attachments."),
        ("stop", "Stop", "Stop generating; keep the partial answer."),
        ("branch_before", "Previous branch", "Previous branch (at the last fork)."),
        ("edit", "Edit message", "Edit your last message, or message N; sending creates a branch."),
        ("leave_edit", "Cancel editing", "Cancel editing; the message stays as it is."),
        ("toggle_thinking", "Reasoning", "Show or hide the latest reasoning."),
    ],
)
def test_an_action_says_what_it_does(id: str, title: str, help: str) -> None:
    assert (ACTIONS[id].title, ACTIONS[id].help) == (title, help)


async def test_what_has_to_wait_for_an_answer_says_so_and_how_to_stop_it(chatting: StartChat) -> None:
    never = asyncio.Event()
    async with chatting(["One ", Hold(never)]) as chat:
        await chat.send("Count")
        await chat.until(lambda: chat.controller.running is not None)
        await chat.send("/edit")
        await chat.until(lambda: "Still answering. Esc stops it." in chat.notes)


async def test_an_edit_says_which_message_and_how_to_end_it(chatting: StartChat) -> None:
    async with chatting(["One."], ["Two."]) as chat:
        await chat.say("First")
        await chat.say("Second")
        await chat.send("/edit 2")
        await chat.until(lambda: "Editing message 2 · Enter send as branch · Esc cancel" in chat.screen_text())


async def test_a_turn_without_an_answer_says_that_it_is_left_out(chatting: StartChat) -> None:
    async with chatting([Die()]) as chat:
        await chat.say("Tell me")
        await chat.until(lambda: "No answer, so this turn is left out of later prompts." in chat.screen_text())
