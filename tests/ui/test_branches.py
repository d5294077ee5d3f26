"""Editing messages and going from branch to branch; refusals are reported."""

from __future__ import annotations

from tests.ui.conftest import StartChat


async def test_a_message_that_cannot_be_edited_is_reported(chatting: StartChat) -> None:
    async with chatting(["One."]) as chat:
        await chat.say("Hi")
        for command, told in (
            ("/edit x", "/edit takes the number of a message."),
            ("/branch x", "/branch takes a number."),
            ("/branch 2", "has no branches"),
        ):
            await chat.send(command)
            await chat.until(lambda told=told: told in chat.notes)  # type: ignore[misc]
        await chat.pilot.press("alt+left")
        await chat.until(lambda: "no other branch on that side" in chat.notes)
        assert chat.last.answer.text == "One."
