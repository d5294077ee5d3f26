"""Messages that are sent while the model loads: they wait, and are sent in their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.scripted_engine import DEFAULT_LOAD, Hold, ScriptedHost, Step
from tests.support.waiting import until_chat
from tests.ui.conftest import Chat, MakeApp, picture
from vlmtui.domain.engine import LoadFailed
from vlmtui.domain.generation import Failure
from vlmtui.errors import ErrorKind
from vlmtui.session.engines import EngineState
from vlmtui.ui.chat.frame import QueueBar


@asynccontextmanager
async def reloading(
    make_app: MakeApp, go: asyncio.Event, *answers: list[Step], fails: bool = False
) -> AsyncIterator[Chat]:
    """A chat whose engine has died, and loads again until `go`."""
    host = ScriptedHost(answers=list(answers))
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(100, 30)) as pilot:
        await until_chat(pilot)
        chat = Chat(app, host, pilot)
        failure = Failure(kind=ErrorKind.OUT_OF_MEMORY, message="No memory.")
        host.load_steps = [*DEFAULT_LOAD[:3], Hold(go), *([LoadFailed(failure)] if fails else [])]
        host.engine.die()
        await chat.until(lambda: app.engines.progress == DEFAULT_LOAD[2])
        assert app.engines.state is EngineState.LOADING
        yield chat


def queued(chat: Chat) -> str:
    bar = chat.screen.query_one(QueueBar)
    return str(bar.content) if bar.display else ""


async def test_a_message_queued_while_its_file_is_read_leaves_the_composer(make_app: MakeApp, tmp_path: Path) -> None:
    go = asyncio.Event()
    async with reloading(make_app, go, ["one"]) as chat:
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.send("What is it?")
        await chat.until(lambda: "queued  [Image #1]What is it?" in queued(chat))
        await chat.until(lambda: chat.composer.text == "")


async def test_messages_wait_for_the_model_and_are_sent_in_their_order(make_app: MakeApp, tmp_path: Path) -> None:
    go = asyncio.Event()
    async with reloading(make_app, go, ["one"], ["two"]) as chat:
        await chat.paste(f"{picture(tmp_path)}")
        await chat.until(lambda: "[Image #1]" in chat.composer.text)
        await chat.send(" first")
        await chat.until(lambda: "queued  [Image #1] first" in queued(chat))
        assert chat.composer.text == ""
        assert "Sent once shapes has loaded. Esc takes it back." in chat.screen_text()
        await chat.paste(f"{picture(tmp_path, 'dog.png')}")
        await chat.until(lambda: "[Image #2]" in chat.composer.text)
        await chat.send(" second")
        await chat.until(lambda: "queued  [Image #2] second" in queued(chat))
        assert chat.controller.exchanges == []
        await chat.write("a third is being written")
        go.set()
        await chat.until(lambda: len(chat.controller.exchanges) == 2 and not chat.last.is_running)
        said = [(one.user.text, one.user.attachments[0].name, one.answer.text) for one in chat.controller.exchanges]
        assert said == [("first", "cat.png", "one"), ("second", "dog.png", "two")]
        await chat.until(lambda: queued(chat) == "")
        assert chat.composer.text == "a third is being written"


async def test_escape_takes_the_messages_back_with_their_attachments(make_app: MakeApp, tmp_path: Path) -> None:
    go = asyncio.Event()
    async with reloading(make_app, go) as chat:
        await chat.paste(f"{picture(tmp_path)}")
        await chat.until(lambda: "[Image #1]" in chat.composer.text)
        await chat.send(" first")
        await chat.send("second")
        await chat.until(lambda: "second" in queued(chat))
        await chat.write("third")
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.composer.text == "[Image #1] first\n\nsecond\n\nthird")
        assert [item.name for item in chat.controller.draft.attachments] == ["cat.png"]
        assert queued(chat) == ""
        go.set()
        await chat.until(lambda: chat.app.engines.state is EngineState.READY)
        await chat.pilot.pause()
        assert chat.controller.exchanges == []


async def test_a_failed_load_keeps_the_queue_and_is_reported(make_app: MakeApp) -> None:
    go = asyncio.Event()
    async with reloading(make_app, go, ["at last"], fails=True) as chat:
        await chat.send("wait for me")
        await chat.until(lambda: "wait for me" in queued(chat))
        go.set()
        await chat.until(lambda: "Not sent: shapes is not running. Ctrl+X g r loads it again" in queued(chat))
        chat.host.load_steps = list(DEFAULT_LOAD)
        await chat.pilot.press("f5")
        await chat.until(lambda: len(chat.controller.exchanges) == 1 and not chat.last.is_running)
        assert chat.last.user.text == "wait for me"


async def test_a_queued_message_survives_the_app_as_a_draft(make_app: MakeApp) -> None:
    async with reloading(make_app, asyncio.Event()) as chat:
        await chat.send("wait for me")
        await chat.until(lambda: "wait for me" in queued(chat))
        await chat.write("and me")
        await chat.until(lambda: chat.controller.draft.text == "and me")
        await chat.controller.recorder.flush()
        stored = chat.controller.id
        assert stored is not None
    again = make_app(ScriptedHost(), initial_model="shapes", resume=stored)
    async with again.run_test() as pilot:
        await until_chat(pilot)
        other = Chat(again, ScriptedHost(), pilot)
        await other.until(lambda: other.composer.text == "wait for me\n\nand me")


async def test_an_edited_message_that_waits_becomes_a_branch(make_app: MakeApp) -> None:
    go = asyncio.Event()
    async with reloading(make_app, go, ["one"], ["two"]) as chat:
        go.set()
        await chat.until(lambda: chat.app.engines.state is EngineState.READY)
        await chat.say("first")
        held = asyncio.Event()
        chat.host.load_steps = [*DEFAULT_LOAD[:3], Hold(held)]
        chat.host.engine.die()
        await chat.until(lambda: chat.app.engines.state is EngineState.LOADING)
        await chat.pilot.press("alt+e")
        await chat.until(lambda: chat.composer.text == "first")
        await chat.send(" of all")
        await chat.until(lambda: "first of all" in queued(chat))
        held.set()
        await chat.until(lambda: chat.last.user.text == "first of all" and not chat.last.is_running)
        assert len(chat.controller.exchanges) == 1
        assert chat.last.user_siblings.count == 2


async def test_stopping_an_answer_returns_queued_messages_to_the_composer(make_app: MakeApp) -> None:
    go = asyncio.Event()
    async with reloading(make_app, go, ["half", Hold(asyncio.Event())]) as chat:
        await chat.send("first")
        await chat.send("second")
        await chat.until(lambda: "second" in queued(chat))
        go.set()
        await chat.until(lambda: chat.controller.running is not None and "after the running answer" in queued(chat))
        await chat.until(lambda: chat.last.answer.text == "half")
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.composer.text == "second")
        assert queued(chat) == ""
        assert chat.controller.running is None


async def test_compare_and_enter_give_the_same_message_during_a_load(make_app: MakeApp) -> None:
    async with reloading(make_app, asyncio.Event()) as chat:
        await chat.write("compare this")
        await chat.pilot.press("f10")
        await chat.until(lambda: "shapes is still loading (weights)." in chat.notes)
        assert "not running" not in chat.notes
