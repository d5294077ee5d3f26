"""The leader key: its strip lists what the next key does, on every screen, also in text fields."""

from __future__ import annotations

import asyncio

import pytest
from textual.widgets import Static

from tests.support.scripted_engine import Hold, ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import Chat, MakeApp, StartChat, open_models
from vlmtui.config.settings import Settings
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.conversations import ConversationsScreen
from vlmtui.ui.help import LeaderScreen, available_actions
from vlmtui.ui.inspector.screen import InspectorScreen
from vlmtui.ui.models.log import LogScreen
from vlmtui.ui.settings import SettingsScreen
from vlmtui.ui.widgets.dialogs import ChoiceScreen
from vlmtui.ui.widgets.footer_bar import FooterBar


def strip(chat: Chat) -> str:
    """Return the strip's title and rows."""
    assert isinstance(chat.app.screen, LeaderScreen)
    shown = chat.app.screen.query_one("#strip", Static)
    return f"{shown.border_title}\n{shown.render()}"


def footer(chat: Chat) -> str:
    return " ".join(f"{item.shown} {item.title}".strip() for item in chat.screen.query_one(FooterBar).items)


async def test_it_shows_keys_in_four_rows_below_the_chat_and_escape_leaves(chatting: StartChat) -> None:
    async with chatting(["It is red."], size=(80, 24)) as chat:
        await chat.say("What is it?")
        await chat.write("half a sentence")
        before = chat.screen_text().split("\n")
        await chat.pilot.press("ctrl+x")
        await chat.until(lambda: isinstance(chat.app.screen, LeaderScreen))
        await chat.until(lambda: "c Compare" in strip(chat))
        for line in ("i Inspect", "f Fan out", "l Chats", "m Models", "r Answer again", "p Image…", "? Help"):
            assert line in strip(chat)
        shown = [strip.text.rstrip() for strip in chat.app.screen._compositor.render_strips()]
        assert shown[:20] == before[:20] and "It is red." in "".join(shown[:20]), "the chat stays visible"
        assert "Ctrl+X · Esc Close" in shown[20] and shown[23].strip()
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert chat.composer.text == "half a sentence" and chat.composer.has_focus


async def test_a_submenu_shows_its_keys_and_runs_an_action(chatting: StartChat) -> None:
    async with chatting(["It is red."]) as chat:
        await chat.say("What is it?")
        await chat.pilot.press("ctrl+x", "g")
        await chat.until(lambda: isinstance(chat.app.screen, LeaderScreen) and "l Metrics" in strip(chat))
        assert strip(chat).startswith("Ctrl+X g Engine · Esc Close") and "Compare" not in strip(chat)
        await chat.pilot.press("l")
        await chat.until(lambda: isinstance(chat.app.screen, LogScreen))


async def test_an_unbound_letter_is_reported_and_another_still_acts(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.pilot.press("ctrl+x")
        await chat.until(lambda: isinstance(chat.app.screen, LeaderScreen))
        await chat.pilot.press("ö")
        await chat.until(lambda: "ö (U+00F6) does nothing here." in strip(chat))
        await chat.pilot.press("comma")
        await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
        assert chat.app.screen_stack[-2].query_one("#composer").text == ""  # type: ignore[attr-defined]


async def test_a_letter_of_another_layout_is_the_latin_letter_of_its_key(chatting: StartChat) -> None:
    async with chatting(["It is red."]) as chat:
        await chat.say("What is it?")
        await chat.write("слово")
        await chat.pilot.press("ctrl+ч", "ш")  # Ctrl+X i
        await chat.until(lambda: isinstance(chat.app.screen, InspectorScreen))
        await chat.pilot.press("й")  # q
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert chat.composer.text == "слово"
        await chat.pilot.press("с", "ctrl+x", "λ")
        await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))
        assert chat.app.screen_stack[-2].query_one("#composer").text == "словос"  # type: ignore[attr-defined]


async def test_keys_that_come_at_once_act_in_their_order(chatting: StartChat) -> None:
    async with chatting(["It is red."]) as chat:
        await chat.say("What is it?")
        await chat.pilot.press("ctrl+x", "i")
        await chat.until(lambda: isinstance(chat.app.screen, InspectorScreen))
        await chat.pilot.press("ctrl+x", "g", "l")
        await chat.until(lambda: isinstance(chat.app.screen, LogScreen))
        await chat.pilot.press("f4")
        await chat.until(lambda: isinstance(chat.app.screen, InspectorScreen))
        await chat.pilot.press("escape", "ctrl+x", "l")
        await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))
        await chat.pilot.press("ctrl+x", "ctrl+x")
        await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))


async def test_a_dialog_shows_its_own_and_global_keys(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.pilot.press("f2")
        await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
        await chat.pilot.press("ctrl+x")
        await chat.until(lambda: isinstance(chat.app.screen, LeaderScreen))
        await chat.until(lambda: "s Apply" in strip(chat))
        assert "? Help" in strip(chat) and "Models" not in strip(chat)
        await chat.pilot.press("s")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))


async def test_the_leader_works_before_a_chat_and_can_be_rebound(make_app: MakeApp) -> None:
    app = make_app(ScriptedHost(load=[]), settings=Settings(graphics="off", keys={"leader": "ctrl+g"}))
    async with app.run_test() as pilot:
        await open_models(pilot)
        await pilot.press("ctrl+g")
        await until(pilot, lambda: isinstance(app.screen, LeaderScreen))
        shown = app.screen.query_one("#strip", Static)
        assert str(shown.border_title).startswith("Ctrl+G ·") and "g Engine…" in str(shown.render())


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_the_footer_shows_the_features_once_there_is_an_answer_and_help_at_every_width(
    chatting: StartChat, width: int
) -> None:
    async with chatting(["It is red."], size=(width, 24)) as chat:
        await chat.until(lambda: footer(chat).endswith("? Help"))
        assert "Compare" not in footer(chat) and "l Chats" in footer(chat)
        await chat.say("What is it?")
        features = "Ctrl+O Attach Ctrl+X c Compare i Inspect" + (" f Fan out l Chats" if width >= 80 else "")
        await chat.until(lambda: features in footer(chat))
        assert footer(chat).endswith("? Help")
        for item, region in chat.screen.query_one(FooterBar).placed():
            assert chat.screen.region.contains_region(region), item.title


async def test_a_running_engine_is_restarted_after_a_question(chatting: StartChat) -> None:
    async with chatting() as chat:
        chat.host.engine.clients = 3
        await chat.pilot.press("f5")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
        question = chat.app.screen.query_one(".title", Static).content
        assert str(question) == "shapes is running. Load it again? It disconnects 2 other programs."
        await chat.pilot.press("enter")
        assert len(chat.host.engines) == 1, "Enter keeps it"
        await chat.pilot.press("f5", "down", "enter")
        await chat.until(lambda: len(chat.host.engines) == 2 and chat.app.engines.is_loaded)


async def test_a_click_on_a_leader_entry_runs_it(chatting: StartChat) -> None:
    async with chatting(size=(120, 30)) as chat:
        await chat.until(lambda: "l Chats" in footer(chat))
        bar = chat.screen.query_one(FooterBar)
        chats = next(region for item, region in bar.placed() if item.title == "Chats")
        await chat.pilot.click(offset=chats.offset)
        await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))


async def test_the_palette_leaves_out_what_is_impossible_now(chatting: StartChat) -> None:
    async with chatting(["It is", Hold(asyncio.Event())]) as chat:

        def titles() -> set[str]:
            return {action.title for action in available_actions(chat.screen)}

        assert not {"Stop", "Take back", "Cancel editing"} & titles() and "New chat" in titles()
        await chat.send("What is it?")
        await chat.until(lambda: chat.controller.running is not None)
        assert "Stop" in titles() and "New chat" not in titles()
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.controller.running is None)
