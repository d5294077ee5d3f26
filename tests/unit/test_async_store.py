"""The store from an event loop: order, errors, two processes, and a database that is replaced meanwhile."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.support.scripted_engine import Die, Hold, ScriptedEngine, Step
from tests.unit.store.made import integrity, opened
from vlmtui.domain.conversation import Attachment, Media, Text, Turn, user_turn
from vlmtui.domain.engine import EngineReady
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.conversation import Conversation
from vlmtui.session.exchange import exchanges_of
from vlmtui.session.persistence import LiveConversation, Recorder, title_from_turn
from vlmtui.session.settings import ChatSettings
from vlmtui.store.records import StoredDraft
from vlmtui.store.store import Store


@pytest.fixture
def model() -> Model:
    return resolve(Registry.bundled(), "shapes")


@asynccontextmanager
async def chatting(folder: Path) -> AsyncIterator[Conversation]:
    """A conversation without a screen."""
    keeper = AsyncStore(Paths.below(folder))
    recorder = Recorder(keeper, on_trouble=lambda error: None)
    yield Conversation(ChatSettings(), recorder)
    await recorder.close(2.0)
    await keeper.close()


async def ask(chat: Conversation, model: Model, text: str, answer: list[Step]) -> ScriptedEngine:
    """Send one message to a new engine, and wait until everything is stored."""
    engine = ScriptedEngine(model.spec, answers=[answer], load=[])
    async for event in engine.load():
        assert isinstance(event, EngineReady)
    chat.draft.text = text
    exchange = chat.begin(model, engine.info)
    await chat.answers.answer(engine, exchange)
    await chat.recorder.settle(2.0)
    return engine


def texts(folder: Path) -> list[str]:
    store = opened(Paths.below(folder).data)
    try:
        last = store.last()
        return [] if last is None else [turn.text for turn in store.path(last)]
    finally:
        store.close()


async def test_work_goes_on_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    keeper = AsyncStore(Paths.below(tmp_path))
    gate = threading.Event()
    first = asyncio.ensure_future(keeper.run(lambda store: gate.wait(10)))
    second = asyncio.ensure_future(keeper.run(lambda store: store.new_conversation(title="kept")))
    await asyncio.sleep(0)
    second.cancel()
    gate.set()
    assert await first
    found = await keeper.run(lambda store: store.last())
    assert found is not None
    await keeper.close()
    await keeper.close()
    with pytest.raises(VlmtuiError, match="closed"):
        await keeper.run(lambda store: store.last())


async def test_two_apps_store_their_own_messages_in_one_conversation(tmp_path: Path, model: Model) -> None:
    async with chatting(tmp_path) as one, chatting(tmp_path) as other:
        await ask(one, model, "one", ["1"])
        assert one.id is not None
        await other.open(one.id)
        await asyncio.gather(ask(one, model, "two", ["2"]), ask(other, model, "zwei", ["ii"]))
        assert [item.user.text for item in one.exchanges] == ["one", "two"]
        assert [item.user.text for item in other.exchanges] == ["one", "zwei"]
        store = opened(Paths.below(tmp_path).data)
        assert {turn.text for turn in store.tree(one.id)} == {"one", "1", "two", "2", "zwei", "ii"}
        said, beside = one.exchanges[1].user_id, other.exchanges[1].user_id
        assert said is not None and beside is not None
        assert said in store.siblings(beside)
        store.close()
    assert integrity(Paths.below(tmp_path).data / "conversations.db") == "ok"


async def test_a_replaced_database_loses_no_later_message(tmp_path: Path, model: Model) -> None:
    async with chatting(tmp_path) as chat:
        await ask(chat, model, "before", ["1"])
        data = Paths.below(tmp_path).data
        for path in data.glob("conversations.db*"):
            path.unlink()
        await ask(chat, model, "after", ["2"])
        assert chat.recorder.trouble is None
        assert texts(tmp_path) == ["before", "1", "after", "2"]


async def test_a_conversation_purged_by_another_app_continues_as_a_new_one(tmp_path: Path, model: Model) -> None:
    async with chatting(tmp_path) as chat:
        await ask(chat, model, "before", ["1"])
        gone = chat.id
        assert gone is not None
        await chat.recorder.store.run(lambda store: store.purge(gone))
        await ask(chat, model, "after", ["2"])
        assert chat.id not in (None, gone)
        assert texts(tmp_path) == ["before", "1", "after", "2"]


async def test_a_deleted_data_folder_is_filled_from_the_screen(tmp_path: Path, model: Model) -> None:
    async with chatting(tmp_path) as chat:
        for number in range(3):
            await ask(chat, model, f"question {number}", [f"answer {number}"])
        shutil.rmtree(tmp_path)
        chat.draft.text = "written"
        chat.draft_changed()
        await chat.recorder.settle(2.0)
        said = [text for number in range(3) for text in (f"question {number}", f"answer {number}")]
        assert texts(tmp_path) == said
        assert chat.recorder.trouble is None
        store = opened(Paths.below(tmp_path).data)
        (only,) = store.conversations()
        assert store.draft(only.conversation.id).text == "written" and only.conversation.title == "question 0"
        store.close()
        await ask(chat, model, "after", ["last"])
        assert texts(tmp_path) == [*said, "after", "last"]
        assert [exchange.answer_siblings.count for exchange in chat.exchanges] == [1, 1, 1, 1]


async def test_a_conversation_stored_again_during_an_answer_is_stored_once(tmp_path: Path, model: Model) -> None:
    async with chatting(tmp_path) as chat:
        await ask(chat, model, "before", ["1"])
        engine = ScriptedEngine(model.spec, answers=[["2", "3"]], load=[])
        async for event in engine.load():
            assert isinstance(event, EngineReady)
        chat.draft.text = "after"
        exchange = chat.begin(model, engine.info)
        await chat.recorder.flush()
        shutil.rmtree(tmp_path)
        chat.draft.text = "next"
        chat.draft_changed()
        await chat.answers.answer(engine, exchange)
        await chat.recorder.settle(2.0)
        assert texts(tmp_path) == ["before", "1", "after", "23"]
        store = opened(Paths.below(tmp_path).data)
        assert [one.draft for one in store.conversations()] == ["next"]
        store.close()


async def test_a_partial_answer_stays_when_the_engine_dies(tmp_path: Path, model: Model) -> None:
    async with chatting(tmp_path) as chat:
        await ask(chat, model, "boom", ["half", Die("Out of memory.")])
        store = opened(Paths.below(tmp_path).data)
        assert chat.id is not None
        ended = store.path(chat.id)[-1]
        assert (ended.state, ended.text) == ("failed", "half")
        assert ended.failure is not None and ended.failure.message == "Out of memory."
        store.close()


async def test_an_answer_of_an_engine_stopped_by_the_app_is_stopped(tmp_path: Path, model: Model) -> None:
    async with chatting(tmp_path) as chat:
        gate = asyncio.Event()
        engine = ScriptedEngine(model.spec, answers=[["half", Hold(gate)]], load=[])
        async for _ in engine.load():
            pass
        chat.draft.text = "go"
        exchange = chat.begin(model, engine.info)
        answering = asyncio.ensure_future(chat.answers.answer(engine, exchange))
        while exchange.answer.text != "half":
            await asyncio.sleep(0.01)
        await engine.shutdown()
        await answering
        await chat.recorder.settle(2.0)
        store = opened(Paths.below(tmp_path).data)
        assert chat.id is not None
        assert store.path(chat.id)[-1].state == "stopped"
        store.close()


async def test_a_stored_conversation_of_any_shape_becomes_exchanges(tmp_path: Path, model: Model) -> None:
    store = opened(tmp_path)
    conversation = store.new_conversation()
    from tests.unit.store.made import COMPLETE, RECIPE
    from vlmtui.domain.conversation import system_turn

    top = store.add_turn(conversation, None, system_turn("Be brief."))
    lone = store.add_turn(conversation, top, user_turn("no answer"))
    asked = store.add_turn(conversation, lone, user_turn("asked"))
    answer = store.begin_answer(asked, RECIPE)
    store.write_answer(answer, "answered", COMPLETE)
    second = store.begin_answer(answer, RECIPE)
    store.write_answer(second, "once more", COMPLETE)
    found = list(exchanges_of(store.path(conversation)))
    store.close()
    assert [(item.user.text, item.answer.text) for item in found] == [
        ("no answer", ""),
        ("asked", "answered"),
        ("", "once more"),
    ]
    assert [item.above for item in found] == [None, found[0], found[1]]
    assert not any(item.is_running for item in found)


async def test_a_draft_makes_a_conversation_and_an_empty_one_removes_it(tmp_path: Path) -> None:
    async with chatting(tmp_path) as chat:
        live, recorder = LiveConversation(model="shapes"), chat.recorder
        recorder.save_draft(live, StoredDraft(text="half a thought"))
        assert await recorder.flush()
        made = live.id
        assert made is not None
        assert (await recorder.store.run(lambda store: store.draft(made))).text == "half a thought"
        recorder.save_draft(live, StoredDraft())
        assert await recorder.flush()
        assert live.id is None
        assert await recorder.store.run(Store.last) is None


def test_titles_are_one_short_line() -> None:
    assert title_from_turn(user_turn("  two\n\nlines\x1b[31m ")) == "two lines␛[31m"
    cat = Media(
        Attachment(modality="image", name="cat.png", path="", sha256="", width=1, height=1, size_bytes=1, format="PNG")
    )
    assert title_from_turn(Turn("user", (cat, Text("What is this?")))) == "What is this?"
    assert title_from_turn(Turn("user", (Text("What is in "), cat, Text("?")))) == "What is in cat.png?"
    assert title_from_turn(Turn("user", (Text("Compare "), cat, Text("and"), cat))) == "Compare cat.png and cat.png"
    assert title_from_turn(Turn("user", (cat, Text(" ")))) == "cat.png"
    long = title_from_turn(user_turn("word " * 40))
    assert len(long) <= 60 and long.endswith("…")


async def test_opening_the_store_is_retried(tmp_path: Path, model: Model) -> None:
    data = Paths.below(tmp_path).data
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text("in the way")
    async with chatting(tmp_path) as chat:
        await ask(chat, model, "one", ["1"])
        assert chat.recorder.trouble is not None
        assert [item.answer.text for item in chat.exchanges] == ["1"]
        data.unlink()
        assert await chat.recorder.flush()
        assert chat.recorder.waiting == 0
        assert texts(tmp_path) == ["one", "1"]


async def test_another_models_answer_changes_the_conversations_model(tmp_path: Path, model: Model) -> None:
    async with chatting(tmp_path) as chat:
        await ask(chat, model, "one", ["1"])
        other = msgspec.structs.replace(model, spec=msgspec.structs.replace(model.spec, name="other"))
        engine = ScriptedEngine(other.spec, answers=[["2"]], load=[])
        async for _ in engine.load():
            pass
        exchange = chat.answer_again(other, engine.info)
        await chat.answers.answer(engine, exchange)
        await chat.recorder.settle(2.0)
        conversation = chat.id
        assert conversation is not None
        found = await chat.recorder.store.run(lambda store: store.conversation(conversation))
        assert (found.model, texts(tmp_path)) == ("other", ["one", "2"])
        assert exchange.request is not None
        assert engine.forgotten == [exchange.request.request_id]


async def test_messages_of_a_new_conversation_that_begin_together_are_stored_in_it(
    tmp_path: Path, model: Model
) -> None:
    async with chatting(tmp_path) as chat:
        for text in ("one", "two"):
            chat.draft.text = text
            chat.begin(model)
        await chat.recorder.flush()
        found = chat.recorder.store.run_now(lambda store: len(store.conversations()))
        assert found == 1
