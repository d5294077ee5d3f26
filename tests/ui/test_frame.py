"""The frame of the chat: its title, and the tokens of the newest prompt and answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from textual.widgets import Static

from tests.support.scripted_engine import Fail, Hold
from tests.support.waiting import until_chat
from tests.ui.conftest import Chat, MakeApp, StartChat, picture
from tests.unit.store.made import opened
from vlmtui.domain.generation import Failure, Finished
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths
from vlmtui.store.records import ConversationId
from vlmtui.store.store import Store
from vlmtui.ui.chat.frame import FactsLine, SidePane, StatusBar

WIDE, NARROW = (120, 40), (80, 24)


def panel(chat: Chat, name: str) -> list[str]:
    """Return the rows of a panel of the side pane."""
    found = chat.screen.query_one(f"#{name}-panel", Static)
    return [" ".join(row.split()) for row in str(found.render()).splitlines()] if found.display else []


def title(chat: Chat) -> str:
    """Return the text of the first row before the side pane."""
    return chat.screen_text().splitlines()[0].strip(" ╭─").partition(" ─")[0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Open the app's store a second time, as another process does."""
    found = opened(Paths.below(tmp_path).data)
    yield found
    found.close()


async def test_a_wide_screen_shows_the_cost_of_prompt_and_answer(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["A ", "cat."], size=WIDE) as chat:
        chat.app.run_action_id("attach", str(picture(tmp_path)))
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.say("What is this?")
        usage = chat.last.answer.usage
        await chat.until(lambda: "tokens 2" in panel(chat, "answer"))
        assert chat.screen.query_one(SidePane).region.width > 0
        assert not chat.screen.query_one(FactsLine).region
        assert panel(chat, "prompt") == [f"▣ 1 cat.png {usage.image_tokens}"]
        assert {"TTFT 50 ms", "stop <|im_end|>", "temperature 0"} <= set(panel(chat, "answer"))
        parts = [f"▓ images {usage.image_tokens}", f"▒ text {usage.prompt_tokens - usage.image_tokens}", "░ answer 2"]
        assert panel(chat, "context")[1:-1] == parts
        assert panel(chat, "context")[-1].startswith(f"{usage.prompt_tokens + 2} of ")


async def test_after_a_failed_answer_nothing_is_said_of_the_context_before_it_is_known(chatting: StartChat) -> None:
    failure = Failure(kind=ErrorKind.INTERNAL, message="It broke.")
    async with chatting([Fail(failure)], ["Fine."], size=WIDE) as chat:
        await chat.say("What is this?")
        chat.last.answer.prompt = None  # as if the engine had failed before it rendered the prompt
        chat.screen.show_status()
        await chat.until(lambda: "context" not in chat.screen_text() and "? of" not in chat.screen_text())
        await chat.say("And this?")
        await chat.until(lambda: "context " in chat.screen_text())


async def test_the_pane_shows_the_system_prompt_the_dials_that_were_set_and_the_model(chatting: StartChat) -> None:
    async with chatting(["A ", "cat."], ["Two."], size=WIDE) as chat:
        for command in ("/system Be brief.", "/set repetition_penalty 1.2", "/set min_tokens 1"):
            await chat.send(command)
        await chat.say("What is this?")
        await chat.until(lambda: "tokens 2" in panel(chat, "answer"))
        assert {"repetition penalty 1.2", "min_tokens 1"} <= set(panel(chat, "answer"))
        assert not any(row.startswith(("top-k", "min-p", "presence")) for row in panel(chat, "answer"))
        assert any(row.startswith("█ system ") for row in panel(chat, "context"))
        status = str(chat.screen.query_one(StatusBar).render())
        assert "T 0 · repetition penalty 1.2 · min_tokens 1 · system prompt" in status
        assert status.index("context") < status.index("RAM"), "the context stays in sight on a narrow screen"
        answer = chat.screen.query_one("#answer-panel", Static)
        assert (str(answer.border_title), str(answer.border_subtitle)) == ("last answer", "shapes")
        await chat.say("And now?")
        await chat.pilot.press("up", "up", "up")
        await chat.until(lambda: str(answer.border_title) == "answer 1")
        assert "tokens 2" in panel(chat, "answer")


async def test_a_number_that_changes_moves_nothing(chatting: StartChat) -> None:
    async with chatting(["A ", "cat."], size=WIDE) as chat:
        await chat.say("What is this?")
        await chat.until(lambda: "tokens 2" in panel(chat, "answer"))
        laid_out: list[object] = [None]
        chat.screen.screen_layout_refresh_signal.subscribe(chat.screen, laid_out.append)
        while laid_out:  # until the answer and its title have their places
            laid_out.clear()
            await chat.pilot.pause(0.3)
        finished = chat.last.answer.outcome
        assert isinstance(finished, Finished)
        usage = msgspec.structs.replace(finished.usage, completion_tokens=73)
        chat.last.answer.outcome = msgspec.structs.replace(finished, usage=usage)
        chat.screen.show_status()
        await chat.until(lambda: re.search(r"tokens +73 ", chat.screen_text()) is not None)
        await chat.pilot.pause()
        assert not laid_out, "a layout of the whole screen costs as much as its drawing"


async def test_a_narrow_screen_shows_the_cost_in_one_line(chatting: StartChat) -> None:
    async with chatting(["A ", "cat."], size=NARROW) as chat:
        assert not chat.screen.query_one(FactsLine).region, "there is nothing to tell yet"
        await chat.say("What is this?")
        await chat.until(lambda: "2 tokens" in str(chat.screen.query_one(FactsLine).render()))
        assert chat.screen.query_one(FactsLine).region.height == 1
        assert not chat.screen.query_one(SidePane).region
        assert chat.screen_text().count("TTFT") == 1
        await chat.say("And now?")
        await chat.pilot.press("up", "up", "up")
        await chat.until(lambda: str(chat.screen.query_one(FactsLine).render()).startswith("answer 1: 2 tokens"))


async def test_the_side_pane_depends_on_the_width(chatting: StartChat) -> None:
    async with chatting(["A ", "cat."], size=NARROW) as chat:
        await chat.say("What is this?")
        await chat.pilot.resize_terminal(*WIDE)
        await chat.until(lambda: bool(chat.screen.query_one(SidePane).region) and "A cat." in chat.screen_text())
        await chat.pilot.resize_terminal(*NARROW)
        await chat.until(lambda: not chat.screen.query_one(SidePane).region and "A cat." in chat.screen_text())


async def test_the_title_shows_the_conversation(chatting: StartChat, store: Store) -> None:
    async with chatting(["A ", "cat."], size=WIDE) as chat:
        await chat.until(lambda: title(chat) == "New chat")
        await chat.say("What is [b]this?")
        await chat.until(lambda: title(chat) == "What is [b]this?")
        last = store.last()
        assert last is not None
        store.rename(last, "Cats")
        await chat.pilot.press("f2")
        await chat.until(lambda: chat.app.screen is not chat.app.screen_stack[0])
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.app.screen is chat.app.screen_stack[0])
        await chat.until(lambda: title(chat) == "Cats")


async def test_an_answer_of_an_earlier_session_has_its_facts(
    chatting: StartChat, make_app: MakeApp, tmp_path: Path
) -> None:
    async with chatting(["A ", "cat."], size=WIDE) as chat:
        chat.app.run_action_id("attach", str(picture(tmp_path)))
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.say("What is this?")
        identity = chat.controller.id
        usage = chat.last.answer.usage
    assert isinstance(identity, str)
    app = make_app(initial_model="shapes", resume=ConversationId(identity))
    async with app.run_test(size=WIDE) as pilot:
        await until_chat(pilot)
        again = Chat(app, chat.host, pilot)
        await again.until(lambda: "tokens 2" in panel(again, "answer"))
        assert panel(again, "prompt") == [f"▣ 1 cat.png {usage.image_tokens}"]
        assert f"▒ text {usage.prompt_tokens - usage.image_tokens}" in panel(again, "context")


@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_tokens_speed_and_time_are_shown_while_an_answer_comes(
    chatting: StartChat, size: tuple[int, int]
) -> None:
    never = asyncio.Event()
    async with chatting(["One ", "two."], ["Three ", "four ", Hold(never)], size=size) as chat:
        await chat.say("Count")
        await chat.until(lambda: "tok/s" in chat.screen_text())
        live = "answering 0:0" if size == WIDE else " 0:0"
        assert live not in chat.screen_text()
        await chat.send("On")
        await chat.until(lambda: chat.shown() == "Three four ")
        await chat.until(lambda: live in chat.screen_text() and "tok/s" in chat.screen_text())
