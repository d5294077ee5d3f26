"""The composer: keys, pastes, history, commands."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from textual import events

from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import MakeApp, StartChat, picture
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.chat.suggestions import ParameterCompletion, SuggestionMenu


async def test_ctrl_j_breaks_the_line_and_a_pasted_break_does_not_send(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.write("one")
        await chat.pilot.press("ctrl+j")
        await chat.paste("two\nthree\n")
        await chat.until(lambda: chat.composer.text == "one\ntwo\nthree\n")
        assert chat.controller.exchanges == []


async def test_a_path_within_a_text_stays_text(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        text = f"see {picture(tmp_path)} please"
        await chat.paste(text)
        await chat.until(lambda: chat.composer.text == text)
        assert chat.controller.draft.attachments == []


async def test_history_goes_up_and_down_and_keeps_the_draft(chatting: StartChat) -> None:
    async with chatting(["a"], ["b"]) as chat:
        await chat.say("first")
        await chat.say("second\nwith two lines")
        await chat.write("draft")
        await chat.pilot.press("up")
        assert chat.composer.text == "second\nwith two lines"
        await chat.pilot.press("up", "up")
        assert chat.composer.text == "first"
        await chat.pilot.press("down", "down", "down")
        assert chat.composer.text == "draft"


async def test_a_command_that_was_a_message_comes_back(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.send("/page 2What is on the second page?")
        await chat.until(lambda: "has no document or animation" in chat.notes)
        assert chat.composer.text == ""
        await chat.pilot.press("up")
        assert chat.composer.text == "/page 2What is on the second page?"


async def test_history_survives_the_app(chatting: StartChat, make_app: MakeApp) -> None:
    async with chatting(["a"]) as chat:
        await chat.say("remember me")
    again = make_app(ScriptedHost(), initial_model="shapes")
    async with again.run_test() as pilot:
        await until(pilot, lambda: isinstance(again.screen, ChatScreen))
        await pilot.pause()
        await pilot.press("up")
        assert again.screen.query_one(Composer).text == "remember me"


async def test_the_slash_menu_completes(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.pilot.press("slash", "a", "t")
        await chat.until(lambda: bool(chat.screen.query_one(SuggestionMenu).display))
        await chat.pilot.press("tab")
        await chat.until(lambda: chat.composer.text == "/attach ")
        assert not chat.screen.query_one(SuggestionMenu).display


def offered(menu: SuggestionMenu) -> list[str]:
    return [one.shown for one in menu.offered if isinstance(one, ParameterCompletion)]


async def test_set_completes_parameters_and_their_values(chatting: StartChat) -> None:
    async with chatting() as chat:
        menu = chat.screen.query_one(SuggestionMenu)
        await chat.write("/set thin")
        await chat.until(lambda: menu.display)
        assert offered(menu) == ["thinking", "thinking_budget", "template.thinking"]
        await chat.pilot.press("tab")
        await chat.until(lambda: chat.composer.text == "/set thinking=")
        assert offered(menu) == ["on", "off"]
        await chat.pilot.press("down", "enter")
        await chat.until(lambda: chat.composer.text == "/set thinking=off")
        assert not menu.display
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.controller.settings.summary == "T 0 · thinking false")


async def test_an_unknown_command_is_reported_and_kept(chatting: StartChat) -> None:
    async with chatting(["ok"]) as chat:
        await chat.send("/nonsense now")
        await chat.until(lambda: "/nonsense" in chat.notes)
        assert chat.composer.text == "/nonsense now"
        chat.composer.text = ""
        await chat.say("//nonsense")
        assert chat.last.user.text == "/nonsense"


async def test_a_command_beside_an_attachment_is_given_at_once(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.write("/detach")
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.controller.draft.attachments == [])


async def test_a_key_with_alt_is_no_letter(chatting: StartChat) -> None:
    async with chatting() as chat:
        # As a terminal's driver posts it: with the letter, which the pilot's own keys do not have.
        chat.app.post_message(events.Key("alt+i", "i"))
        await chat.until(lambda: "scp" in chat.notes)
        assert chat.composer.text == ""


async def test_keys_that_come_all_at_once_act_in_their_order(chatting: StartChat) -> None:
    async with chatting() as chat:
        for key, character in (("h", "h"), ("i", "i"), ("left", None), ("o", "o")):
            chat.app.post_message(events.Key(key, character))
        await chat.until(lambda: len(chat.composer.text) == 3)
        assert chat.composer.text == "hoi"


async def test_text_typed_while_a_message_is_stored_stays(chatting: StartChat) -> None:
    gate = threading.Event()
    async with chatting(["a"]) as chat:
        waiting = asyncio.ensure_future(chat.controller.recorder.store.run(lambda store: gate.wait(10)))
        await asyncio.sleep(0)
        await chat.write("a message")
        chat.composer.post_message(Composer.Submitted("a message"))  # no key: further ones do not wait for it
        await chat.until(lambda: len(chat.controller.exchanges) == 1)
        chat.composer.insert("x", chat.composer.document.end)
        gate.set()
        await chat.until(lambda: chat.composer.text == "x")
        await waiting
        await chat.until(lambda: not chat.last.is_running)
        assert chat.composer.text == "x"
