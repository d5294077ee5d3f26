"""The compositor that leaves out what is covered draws the same screens as Textual's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual._compositor import Compositor
from textual.screen import Screen
from textual.widget import Widget

from tests.ui.conftest import Chat, StartChat, picture, turns_of
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.terminal.compositor import FrontCompositor

ANSWER = (
    "# Title\n\nA **word**, `code` and a list:\n\n- one\n- two\n\n"
    "```python\nprint('a')\n```\n\n| a | b |\n| - | - |\n| c | d |\n\n"
)


def assert_same(screen: Screen[Any]) -> None:
    """Draw the whole screen, and single lines of it, in both ways."""
    compositor = screen._compositor
    assert isinstance(compositor, FrontCompositor)
    height = compositor.size.height
    for lines in (range(height), range(3), range(height // 2, height // 2 + 1), range(height - 4, height)):
        ours = compositor._render_chops(compositor.size.region, lines.__contains__)
        textuals = Compositor._render_chops(compositor, compositor.size.region, lines.__contains__)
        for y, (one, other) in enumerate(zip(ours, textuals, strict=True)):
            assert one.keys() == other.keys()
            for x in one:
                assert one[x] == other[x], f"line {y}, column {x}"


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_chat_is_drawn_the_same(chatting: StartChat, tmp_path: Path, size: tuple[int, int]) -> None:
    async with chatting([ANSWER * 3], ["<think>Hm.</think>", ANSWER * 2], size=size) as chat:
        assert_same(chat.screen)
        chat.app.run_action_id("attach", str(picture(tmp_path)))
        await chat.until(lambda: len(chat.controller.staged) == 1)
        await chat.say("What is this?")
        assert_same(chat.screen)
        await chat.say("And that?")
        assert_same(chat.screen)
        await scroll_and_mark(chat)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_comparison_is_drawn_the_same(chatting: StartChat, size: tuple[int, int]) -> None:
    async with chatting([ANSWER * 2], [ANSWER], size=size) as chat:
        chat.screen.query_one(Composer).text = "What is this?"
        await chat.pilot.press("f10")
        await chat.until(lambda: isinstance(chat.app.screen, CompareScreen))
        compare = chat.app.screen
        assert_same(compare)
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: isinstance(compare, CompareScreen) and compare.controller.is_over)
        await chat.pilot.pause()
        assert_same(compare)
        compare.notify("A message over it")
        await chat.pilot.pause()
        assert_same(compare)


async def scroll_and_mark(chat: Chat) -> None:
    await chat.pilot.press("pageup")
    await chat.pilot.pause()
    assert_same(chat.screen)
    await chat.pilot.press("up")
    await chat.pilot.pause()
    assert_same(chat.screen)
    chat.screen.notify("A message over it")
    await chat.pilot.pause()
    assert_same(chat.screen)


async def test_a_message_that_has_just_been_removed_is_left_out(chatting: StartChat) -> None:
    async with chatting([ANSWER]) as chat:
        await chat.say("What is this?")
        turn = turns_of(chat.screen)[-1]
        parent, compositor = turn.parent, chat.screen._compositor
        assert isinstance(parent, Widget)
        turn._detach()
        try:
            chops = compositor._render_chops(compositor.size.region, lambda y: True)
        finally:
            turn._attach(parent)
        assert "Title" not in "".join(strip.text for line in chops for strip in line.values() if strip is not None)
