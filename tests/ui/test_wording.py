"""Sentences that a reader of all screens asked for."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.scripted_engine import Die, Hold
from tests.ui.conftest import StartChat
from vlmtui.ui.actions import ACTIONS


@pytest.mark.parametrize(
    ("id", "title", "help"),
    [
        ("leave_out_oldest", "Leave out attachments", "Stop sending the oldest attachments."),
        ("stop", "Stop", "Stop generating, and keep the partial answer; or stop loading a model."),
        ("branch_before", "Previous branch", "Previous branch (at the last fork)."),
        ("edit", "Edit message", "Edit your last message, or message N; sending creates a branch."),
        ("leave_edit", "Cancel editing", "Cancel editing; the message stays as it is."),
        ("toggle_thinking", "Reasoning", "Show or hide the latest reasoning."),
    ],
)
def test_an_action_describes_its_effect(id: str, title: str, help: str) -> None:
    assert (ACTIONS[id].title, ACTIONS[id].help) == (title, help)


async def test_a_waiting_action_says_how_to_stop_the_answer(chatting: StartChat) -> None:
    never = asyncio.Event()
    async with chatting(["One ", Hold(never)]) as chat:
        await chat.send("Count")
        await chat.until(lambda: chat.controller.running is not None)
        await chat.send("/edit")
        await chat.until(lambda: "Still answering. Esc stops it." in chat.notes)


async def test_an_edit_names_the_message_and_the_key_to_cancel(chatting: StartChat) -> None:
    async with chatting(["One."], ["Two."]) as chat:
        await chat.say("First")
        await chat.say("Second")
        await chat.send("/edit 2")
        await chat.until(lambda: "Editing message 2 · Enter send as branch · Esc cancel" in chat.screen_text())


async def test_a_turn_without_an_answer_is_marked_as_excluded(chatting: StartChat) -> None:
    async with chatting([Die()]) as chat:
        await chat.say("Tell me")
        await chat.until(lambda: "No answer, so this turn is left out of later prompts." in chat.screen_text())
