"""The app says what changed, what was saved, and what it waits for."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
from textual.widgets import Input, TextArea

from tests.support.scripted_engine import Hold
from tests.ui.conftest import Chat, StartChat, picture
from vlmtui.domain.generation import PromptReady
from vlmtui.domain.sampling import Sampling
from vlmtui.session.generation import Answer
from vlmtui.session.settings import ChatSettings
from vlmtui.ui.chat.blocks import waiting_text
from vlmtui.ui.chat.frame import StatusBar
from vlmtui.ui.settings import SettingsScreen


def status(chat: Chat) -> str:
    return str(chat.screen.query_one(StatusBar).content)


async def test_applied_settings_list_the_changes_and_stay_in_view(chatting: StartChat) -> None:
    async with chatting() as chat:
        assert "T 0  ·  " in status(chat)
        await chat.pilot.press("f2")
        await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen) and bool(chat.app.screen.query("#seed")))
        chat.app.screen.query_one("#temperature", Input).value = "0.5"
        chat.app.screen.query_one("#seed", Input).value = "7"
        chat.app.screen.query_one("#system", TextArea).text = "Be brief."
        await chat.pilot.press("ctrl+s")
        await chat.until(lambda: "Temperature 0 → 0.5 · seed random → 7 · system prompt set" in chat.notes)
        assert "T 0.5 · seed 7 · system prompt" in status(chat)
        chat.app.run_action_id("system", "")
        await chat.until(lambda: "System prompt removed" in chat.notes)
        await chat.until(lambda: "system prompt" not in status(chat))
        chat.app.run_action_id("set", "temperature default")
        await chat.until(lambda: "Temperature 0.5 → model default" in chat.notes)
        await chat.until(lambda: "T default" in status(chat))
        chat.app.run_action_id("set", "temperature default")
        await chat.until(lambda: "No setting has changed." in chat.notes)


def test_a_different_system_prompt_counts_as_changed() -> None:
    before = ChatSettings("Be brief.", Sampling(max_tokens=10))
    after = msgspec.structs.replace(before, system_prompt="Be long.", sampling=Sampling(max_tokens=None))
    assert before.changed_to(after) == "max tokens 10 → what the context holds · system prompt changed"
    assert before.changed_to(before) == ""


async def test_a_prompt_that_is_being_processed_has_a_clock(chatting: StartChat) -> None:
    gate = asyncio.Event()
    async with chatting([Hold(gate), "done"]) as chat:
        await chat.send("go")
        await chat.until(lambda: bool(chat.controller.exchanges) and chat.last.answer.prompt is not None)
        chat.last.answer.began_s -= 100
        await chat.until(lambda: re.search(r"processing \d+ prompt tokens · 10\d s", chat.screen_text()) is not None)
        gate.set()
        await chat.until(lambda: "done" in chat.shown())
        assert "processing" not in chat.screen_text()


def test_the_clock_shows_only_known_times() -> None:
    answer = Answer("1")
    assert waiting_text(answer, 0.9) == "…"
    assert waiting_text(answer, 2.5) == "preparing the prompt · 2 s"
    answer.prompt = PromptReady(request_id="1", prompt="", token_ids=tuple(range(1234)), media=())
    assert waiting_text(answer, 3.2) == "processing 1,234 prompt tokens · 3 s"


async def test_the_death_of_an_idle_engine_is_reported(chatting: StartChat) -> None:
    async with chatting() as chat:
        chat.host.engine.die("The engine was killed by signal 9.")
        await chat.until(lambda: "The engine was killed by signal 9. shapes is loading again." in chat.notes)
        await chat.until(lambda: len(chat.host.engines) == 2 and chat.app.engines.is_loaded)
        chat.host.engine.die("The engine was killed by signal 9.")
        await chat.until(lambda: "signal 9. Ctrl+X g r restarts it." in chat.notes)


async def test_the_death_during_an_answer_is_reported_only_there(chatting: StartChat) -> None:
    gate = asyncio.Event()
    async with chatting(["half", Hold(gate)]) as chat:
        await chat.send("go")
        await chat.until(lambda: bool(chat.controller.exchanges) and chat.last.answer.text == "half")
        chat.host.engine.die("The engine was killed by signal 9.")
        await chat.until(lambda: len(chat.host.engines) == 2)
        assert "loading again" not in chat.notes


async def test_an_empty_conversation_has_nothing_below(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(size=(80, 12)) as chat:
        for name in ("a.png", "b.png"):
            await chat.paste(str(picture(tmp_path, name)))
        await chat.until(lambda: "This prompt takes" in chat.screen_text())
        await chat.write("\n".join("abcdefgh"))
        await chat.pilot.press("pageup", "pagedown")
        await chat.pilot.pause()
        assert not chat.screen.query_one("#more").display


async def test_a_message_reads_as_it_was_written(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["a"]) as chat:
        await chat.paste(str(picture(tmp_path)))
        await chat.until(lambda: chat.composer.text == "[Image #1]")
        await chat.say(" Which is bigger?")
        await chat.until(lambda: "▌ [Image #1] Which is bigger?" in chat.screen_text())
