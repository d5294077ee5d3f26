"""The mouse: clicks act on what is clicked, and dragging selects text."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.widgets import Tabs

from tests.support.scripted_engine import Hold
from tests.support.toy_prompts import use_chat_template
from tests.ui.conftest import Chat, StartChat, picture
from vlmtui.ui.chat.blocks import Part
from vlmtui.ui.chat.frame import SidePane
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.chat.transcript import MessageCursor, Transcript
from vlmtui.ui.compare.fan_out import FanOutScreen, KindList
from vlmtui.ui.compare.raw_prompt import RawEditor
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.conversations import ConversationsScreen
from vlmtui.ui.inspector.prompt_lines import TokenTable
from vlmtui.ui.inspector.screen import InspectorScreen
from vlmtui.ui.seeing.room import ImageRoom
from vlmtui.ui.widgets.attachment_view import AttachmentView

WIDE = (120, 40)


def place_of(app: App[Any], text: str) -> Offset:
    """Return the place of a text on the screen."""
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        if (at := strip.text.find(text)) >= 0:
            return Offset(at, y)
    raise AssertionError(f"{text!r} is not on the screen")


def screen_text(app: App[Any]) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


async def click(pilot: Pilot[Any], text: str, *, right: int = 0) -> None:
    """Click on a visible text."""
    await pilot.click(offset=place_of(pilot.app, text) + Offset(right, 0))
    await pilot.pause()


async def with_cat(chat: Chat, folder: Path) -> None:
    await chat.paste(str(picture(folder)))
    await chat.until(lambda: bool(chat.screen.query(AttachmentView)))


async def viewed(chat: Chat) -> ImageRoom:
    await chat.until(lambda: isinstance(chat.app.screen, ImageRoom))
    assert isinstance(chat.app.screen, ImageRoom)
    return chat.app.screen


async def test_an_attachment_opens_in_full_size(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["A cat."], size=WIDE) as chat:
        await with_cat(chat, tmp_path)
        await click(chat.pilot, "cat.png")
        await viewed(chat)
        await chat.until(lambda: "cat.png" in screen_text(chat.app))
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.say("What is it?")
        view = chat.screen.query_one(Transcript)
        row = next(y for y in range(view.size.height) if "▣ 1 cat.png" in view.render_line(y).text)
        await chat.pilot.click(view, offset=(6, row))
        await viewed(chat)


async def test_a_message_and_an_answer_are_selected(chatting: StartChat) -> None:
    async with chatting(["It is red."], ["It is round."]) as chat:
        await chat.say("Colour?")
        await chat.say("Form?")
        await click(chat.pilot, "It is red.")
        await chat.until(lambda: isinstance(chat.app.focused, MessageCursor))
        marked = chat.screen.marked
        assert marked is not None and (marked.part, marked.text) == (Part.ANSWER, "It is red.")
        await click(chat.pilot, "Form?")
        await chat.until(lambda: chat.screen.marked is not None and chat.screen.marked.text == "Form?")
        await chat.pilot.click(chat.composer)
        await chat.until(lambda: chat.screen.marked is None and chat.app.focused is chat.composer)


async def test_the_arrows_of_a_branch_lead_to_it(chatting: StartChat) -> None:
    async with chatting(["One."], ["Two."], ["Three."]) as chat:
        await chat.say("first")
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: "‹ answer 2/2 ›" in chat.screen_text() and not chat.last.is_running)
        await click(chat.pilot, "‹ answer 2/2 ›")
        await chat.until(lambda: "‹ answer 1/2 ›" in chat.screen_text() and "One." in chat.screen_text())
        await click(chat.pilot, "1/2 ›", right=4)
        await chat.until(lambda: "‹ answer 2/2 ›" in chat.screen_text() and "Two." in chat.screen_text())
        await chat.pilot.press("escape")
        await chat.send("/edit 1")
        await chat.until(lambda: chat.composer.text == "first")
        await chat.send(" of all")
        await chat.until(lambda: "‹ message 2/2 ›" in chat.screen_text() and not chat.last.is_running)
        await click(chat.pilot, "‹ message 2/2 ›")
        await chat.until(lambda: "‹ message 1/2 › · ‹ answer 2/2 ›" in chat.screen_text())


async def test_dragging_selects_text_and_nothing_else(chatting: StartChat) -> None:
    async with chatting(["It is red."]) as chat:
        await chat.say("Which colour?")
        row = next(y for y, line in enumerate(chat.screen_text().splitlines()) if "Which colour?" in line)
        left = chat.screen_text().splitlines()[row].index("Which")
        await chat.pilot.mouse_down(offset=(left, row))
        await chat.pilot.hover(offset=(left + 3, row))
        await chat.pilot.mouse_up(offset=(left + 5, row))
        await chat.pilot.pause()
        assert chat.screen.get_selected_text() == "Which"
        assert chat.screen.marked is None


async def test_ctrl_c_copies_the_selection_then_stops_the_answer(chatting: StartChat) -> None:
    async with chatting(["It ", Hold(asyncio.Event())]) as chat:
        await chat.send("Which colour?")
        await chat.until(lambda: "It" in chat.screen_text())
        row = next(y for y, line in enumerate(chat.screen_text().splitlines()) if "Which colour?" in line)
        left = chat.screen_text().splitlines()[row].index("Which")
        await chat.pilot.mouse_down(offset=(left, row))
        await chat.pilot.hover(offset=(left + 3, row))
        await chat.pilot.mouse_up(offset=(left + 5, row))
        await chat.pilot.press("ctrl+c")
        await chat.until(lambda: chat.app.clipboard == "Which")
        assert chat.last.is_running
        await chat.pilot.press("ctrl+c")
        await chat.until(lambda: not chat.last.is_running)


@pytest.mark.parametrize("panel", ["context-panel", "answer-panel"])
async def test_a_panel_of_facts_opens_the_inspector_and_its_tabs_can_be_clicked(
    chatting: StartChat, panel: str
) -> None:
    async with chatting(["It is red."], size=WIDE) as chat:
        await chat.say("Which colour?")
        await chat.until(lambda: bool(chat.screen.query_one(SidePane).query_one(f"#{panel}").region))
        # On its border, where the title is.
        await chat.pilot.click(f"#{panel}", offset=(3, 0))
        await chat.until(lambda: isinstance(chat.app.screen, InspectorScreen))
        screen = chat.app.screen
        assert isinstance(screen, InspectorScreen)
        await chat.until(lambda: screen.taken is not None)
        await chat.pilot.click("#tokens")
        await chat.until(lambda: screen.part == "tokens" and isinstance(chat.app.focused, TokenTable))
        assert screen.query_one(Tabs).active == "tokens"


async def test_the_title_of_the_chat_opens_the_list_of_conversations(chatting: StartChat) -> None:
    async with chatting(["It is red."], size=WIDE) as chat:
        await chat.say("Which colour?")
        await chat.until(lambda: "─ Which colour?" in chat.screen_text())
        await chat.pilot.click("#conversation", offset=(5, 0))
        await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))


async def test_a_click_on_more_below_goes_to_the_end(chatting: StartChat) -> None:
    async with chatting(["\n\n".join(f"Line {number}." for number in range(60))], size=(80, 24)) as chat:
        await chat.say("Count.")
        chat.screen.query_one(Transcript).scroll_home(animate=False)
        await chat.until(lambda: "more below" in chat.screen_text())
        await click(chat.pilot, "more below")
        await chat.until(lambda: "Line 59." in chat.screen_text() and "more below" not in chat.screen_text())


@pytest.mark.parametrize(
    ("size", "tabs"), [((80, 24), ("Raw", "Difference", "Chat")), (WIDE, ("Difference", "Chat and raw"))]
)
async def test_the_tabs_and_headings_of_a_comparison(
    chatting: StartChat, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], tabs: tuple[str, ...]
) -> None:
    use_chat_template(monkeypatch)
    async with chatting(["Red."], ["Red, too."], size=size) as chat:
        await chat.write("Which colour?")
        chat.app.run_action_id("compare")
        await chat.until(lambda: isinstance(chat.app.screen, CompareScreen))
        screen = chat.app.screen
        assert isinstance(screen, CompareScreen)
        await chat.until(lambda: any(editor.text for editor in screen.query(RawEditor)))
        seen = []
        for title in tabs:
            await click(chat.pilot, f" {title} ", right=1)
            seen.append(screen.view)
        assert seen == [title.split()[0].lower() for title in tabs]
        if size == WIDE:
            await chat.pilot.click("#raw-head")
            await chat.until(lambda: chat.app.focused is screen.query_one(RawEditor))
            await chat.pilot.click("#chat-head")
            await chat.until(lambda: chat.app.focused is screen.query_one("#chat-prompt"))


async def test_a_click_selects_a_kind_of_answer(chatting: StartChat) -> None:
    async with chatting(["Red."], ["Red."], ["Blue."], size=WIDE) as chat:
        await chat.say("Which colour?")
        chat.app.run_action_id("fan_out", "temperature=0,1")
        await chat.until(lambda: isinstance(chat.app.screen, FanOutScreen) and chat.app.screen.differences is not None)
        screen = chat.app.screen
        assert isinstance(screen, FanOutScreen)
        for row in (1, 0):
            await chat.pilot.click(KindList, offset=(3, row))
            await chat.until(lambda row=row: screen.current == row)  # type: ignore[misc]
