"""No message is lost: after every step the database has the content of the screen."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from textual.widgets import Input, OptionList, Static

from tests.support.scripted_engine import Die, Hold, KeptAnswer, ScriptedEngine, ScriptedHost
from tests.support.waiting import until_chat
from tests.ui.conftest import Chat, MakeApp, StartChat, picture
from tests.unit.store.made import COMPLETE, opened
from vlmtui.domain.conversation import Attachment, ChatPrompt, VideoSampling, user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import (
    Cancelled,
    EngineEvent,
    Failed,
    Failure,
    Finished,
    GenerateRequest,
    RenderRequest,
    Request,
    Timings,
    Usage,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Leftover
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.media import stage as stage_module
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session import resume
from vlmtui.session.conversation import Conversation
from vlmtui.session.engines import EngineState
from vlmtui.session.resume import stored_model
from vlmtui.store.database import Database, explained
from vlmtui.store.records import AnswerData, ConversationId, GenerationRecord, StoredModel, StoredTurn, TurnId
from vlmtui.store.store import Store
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.conversations import ConversationsScreen
from vlmtui.ui.services import Delays
from vlmtui.ui.widgets.dialogs import ChoiceScreen, NameScreen


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Open the app's store a second time, as another process does."""
    found = opened(Paths.below(tmp_path).data)
    yield found
    found.close()


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make every write of a database in this process fail."""

    class Full(sqlite3.Error):
        sqlite_errorcode = sqlite3.SQLITE_FULL

    def refused(self: Database) -> AbstractContextManager[int]:
        raise explained(Full("disk is full"), self.path)

    with monkeypatch.context() as patched:
        patched.setattr(Database, "writing", refused)
        yield


def turns(store: Store) -> list[StoredTurn]:
    """Return the shown branch of the most recently changed conversation."""
    last = store.last()
    return [] if last is None else store.path(last)


def said(store: Store) -> list[str]:
    return [turn.text for turn in turns(store)]


@asynccontextmanager
async def started(
    make_app: MakeApp, host: ScriptedHost, *, model: str | None = "shapes", resume: ConversationId | None = None
) -> AsyncIterator[Chat]:
    """Start the app, and wait for its chat."""
    app = make_app(host, initial_model=model, resume=resume)
    async with app.run_test(size=(100, 30)) as pilot:
        await until_chat(pilot)
        yield Chat(app, host, pilot)


async def test_a_turn_is_stored_before_it_is_sent(
    chatting: StartChat, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    generate = ScriptedEngine.generate

    def looking(self: ScriptedEngine, request: Request) -> AsyncGenerator[EngineEvent, None]:
        if not isinstance(request, RenderRequest):
            seen.append(said(store))
        return generate(self, request)

    monkeypatch.setattr(ScriptedEngine, "generate", looking)
    async with chatting(["A red circle."]) as chat:
        await chat.say("What is\nthis?")
        assert seen == [["What is\nthis?", ""]]
        await chat.until(lambda: turns(store)[-1].state == "complete")
        question, answer = turns(store)
        assert (question.text, answer.text) == ("What is\nthis?", "A red circle.")
        assert store.conversation(question.conversation).title == "What is this?"
        assert (question.id, answer.id) == (chat.last.user_id, chat.last.answer_id)
        assert chat.controller.id == question.conversation
        statistics, recipe = answer.statistics, answer.generation
        assert statistics is not None and recipe is not None
        assert isinstance(chat.last.answer.outcome, Finished)
        assert statistics.usage == chat.last.answer.outcome.usage
        assert statistics.stop == "<|im_end|>"
        assert recipe.prompt == "user: What is\nthis?"
        assert recipe.made_by == stored_model(chat.host.engine.spec)
        assert (recipe.engine, recipe.engine_version) == ("vLLM", "0.32.0")
        request = chat.host.engine.requests[0]
        assert request.keep and request.request_id == recipe.request_id
        await chat.until(lambda: chat.host.engine.forgotten == [recipe.request_id])


async def test_streamed_text_is_stored_while_it_comes_and_a_stop_as_a_stop(chatting: StartChat, store: Store) -> None:
    never = asyncio.Event()
    async with chatting(["One ", "two ", Hold(never)]) as chat:
        await chat.send("Count")
        await chat.until(lambda: said(store) == ["Count", "One two "])
        assert turns(store)[-1].state == "running"
        await chat.pilot.press("escape")
        await chat.until(lambda: turns(store)[-1].state == "stopped")
        assert said(store) == ["Count", "One two "]


async def test_a_full_disk_is_reported_once_and_everything_is_written_later(
    chatting: StartChat, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting(["One."], ["Two."], ["Three."], delays=Delays(retry_write=0.05)) as chat:
        await chat.say("first")
        await chat.until(lambda: turns(store)[-1].state == "complete")
        with full_disk(monkeypatch):
            await chat.say("second")
            await chat.pilot.press("ctrl+r")
            await chat.until(lambda: chat.last.answer.text == "Three." and not chat.last.is_running)
            await chat.write("a draft")
            assert chat.notes.count("is full") == 1
            assert chat.controller.recorder.waiting
        await chat.until(lambda: not chat.controller.recorder.waiting)
        await chat.until(lambda: "saved now" in chat.notes)
        assert said(store) == ["first", "One.", "second", "Three."]
        siblings = store.siblings(turns(store)[-1].id)
        assert [store.turn(turn).text for turn in siblings] == ["Two.", "Three."]
        assert chat.last.answer_id == siblings[-1]
        last = store.last()
        assert last is not None
        assert store.draft(last).text == "a draft"


@pytest.mark.parametrize("stays", ["enter", "escape"])
async def test_the_app_asks_before_quitting_with_a_full_disk(
    chatting: StartChat, store: Store, monkeypatch: pytest.MonkeyPatch, stays: str
) -> None:
    async with chatting(["One."]) as chat:
        with full_disk(monkeypatch):
            await chat.say("first")
            await chat.pilot.press("ctrl+q")
            await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
            await chat.until(lambda: bool(chat.app.screen.query(OptionList)))
            await chat.pilot.press(stays)
            await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.pilot.press("ctrl+q")
        await chat.until(lambda: chat.app.return_value is not None)
    assert said(store) == ["first", "One."]
    assert chat.app.return_value is not None
    assert chat.app.return_value.conversation == store.last()


async def test_drafts_are_kept_with_their_attachments_and_come_back(
    make_app: MakeApp, store: Store, tmp_path: Path
) -> None:
    async with started(make_app, ScriptedHost(answers=[["One."]])) as chat:
        await chat.paste(str(picture(tmp_path)))
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.write(" what is it")
        await chat.until(lambda: (last := store.last()) is not None and "what is it" in store.draft(last).text)
        conversation = store.last()
        assert conversation is not None
        assert turns(store) == []
    async with started(make_app, ScriptedHost(answers=[["One."]]), resume=conversation) as chat:
        await chat.until(lambda: chat.composer.text == "[Image #1] what is it")
        assert chat.composer.cursor_location == chat.composer.document.end
        await chat.pilot.press("enter")
        await chat.until(lambda: said(store)[-1:] == ["One."])
        assert [item.name for item in turns(store)[0].turn.attachments] == ["cat.png"]
        assert store.last() == conversation
        assert store.draft(conversation).text == ""


async def test_a_file_that_is_still_looked_at_comes_back_by_its_name(
    make_app: MakeApp, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app ends while a large image or a slow download is still being attached."""

    async def slow(source: Path | str, *_: object) -> Attachment:
        if str(source).endswith("slow.png"):
            await asyncio.Event().wait()
        return await stage_source(source, Paths.below(tmp_path).media, tmp_path, VideoSampling())

    stage_source = stage_module.stage_source
    path = picture(tmp_path)
    shutil.copy(path, tmp_path / "slow.png")
    monkeypatch.setattr(stage_module, "stage_source", slow)
    async with started(make_app, ScriptedHost(answers=[["One."]])) as chat:
        await chat.paste(str(path))
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.paste(str(tmp_path / "slow.png"))
        await chat.write("Which is larger?")
        await chat.until(lambda: chat.composer.text == "[Image #1][File #2]Which is larger?")
        written = f"[Image #1] {tmp_path / 'slow.png'} Which is larger?"
        await chat.until(lambda: (last := store.last()) is not None and store.draft(last).text == written)
    monkeypatch.setattr(stage_module, "stage_source", stage_source)
    async with started(make_app, ScriptedHost(answers=[["One."]]), resume=store.last()) as chat:
        await chat.until(lambda: chat.composer.text == written)
        await chat.pilot.press("enter")
        await chat.until(lambda: "slow.png" in chat.screen_text() and chat.composer.menu_is_open)
        await chat.pilot.press("tab")
        await chat.until(lambda: len(chat.controller.draft.attachments) == 2)
        assert chat.composer.text == "[Image #1] [Image #2] Which is larger?"


async def test_a_draft_that_is_wiped_leaves_no_conversation(chatting: StartChat, store: Store) -> None:
    async with chatting() as chat:
        await chat.write("never mind")
        await chat.until(lambda: chat.controller.id is not None)
        assert store.last() == chat.controller.id
        chat.composer.text = ""
        await chat.until(lambda: chat.controller.id is None)
        assert store.last() is None


async def test_a_conversation_that_goes_on_with_another_model_says_so(
    chatting: StartChat, store: Store, tmp_path: Path
) -> None:
    talk = store.new_conversation(title="Counting", model="Other")
    made = GenerationRecord(
        model="org/other", made_by=StoredModel(name="Other [x]", model=str(tmp_path), family="shapes")
    )
    asked = store.add_turn(talk, None, user_turn("One?"))
    store.write_answer(store.begin_answer(asked, made), "Yes.", AnswerData(state="complete"))
    async with chatting(["Two."], size=(120, 30)) as chat:
        chat.app.stored.open(talk)
        await chat.until(partial(is_shown, chat, "⚠ was Other [x] · /earlier goes back"))
        await chat.say("And two?")
        await chat.until(partial(is_shown, chat, "── shapes from here ──"))
        assert "⚠" not in chat.screen_text()
        await chat.pilot.press("up", "up", "up")
        await chat.until(lambda: chat.screen.query_one("#answer-panel").border_subtitle == "Other \\[x]")
    async with chatting() as chat:
        chat.app.stored.open(talk)
        await chat.until(partial(is_shown, chat, "── shapes from here ──"))


async def test_the_model_that_answered_last_is_loaded_again_on_request(chatting: StartChat, store: Store) -> None:
    talk = store.new_conversation(title="Counting", model="Other")
    made = GenerationRecord(model="org/other", made_by=StoredModel(name="Other", model="smolvlm", family="smolvlm"))
    asked = store.add_turn(talk, None, user_turn("One?"))
    store.write_answer(store.begin_answer(asked, made), "Yes.", AnswerData(state="complete"))
    async with chatting() as chat:
        chosen: list[Model] = []
        chat.app.models.choose = chosen.append  # type: ignore[method-assign, assignment]
        chat.app.stored.open(talk)
        await chat.until(partial(is_shown, chat, "⚠ was Other"))
        await chat.send("/earlier")
        await chat.until(lambda: bool(chosen))
        assert chosen[0].family.family == "smolvlm"


async def test_a_conversation_is_exported_from_the_chat_and_from_the_list(
    chatting: StartChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with chatting(["A red circle."]) as chat:
        await chat.lead("x")
        await chat.until(lambda: "There is no message to export yet." in chat.notes)
        await chat.say("What is this?")
        await chat.lead("x")
        await chat.until(lambda: isinstance(chat.app.screen, NameScreen))
        offered = chat.app.screen.query_one(Input)
        assert offered.value == f"what-is-this-{chat.controller.id}.md"
        await chat.pilot.press("enter")
        await chat.until(lambda: f"Written: {offered.value}" in chat.notes)
        assert "A red circle." in (tmp_path / offered.value).read_text()
        await chat.pilot.press("ctrl+l")
        await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))
        await chat.pilot.press("w")
        await chat.until(lambda: isinstance(chat.app.screen, NameScreen))
        chat.app.screen.query_one(Input).value = "all.json"
        await chat.pilot.press("enter")
        await chat.until(lambda: (tmp_path / "all.json").exists())


def is_shown(chat: Chat, text: str) -> bool:
    return text in chat.screen_text()


async def test_a_search_of_all_conversations_opens_one_at_its_match(chatting: StartChat, store: Store) -> None:
    talk = store.new_conversation(title="Counting", model="shapes")
    for number in range(60):
        leaf = store.conversation(talk).leaf
        asked = store.add_turn(talk, leaf, user_turn(f"Question {number}"))
        said = "A green star, and a star." if number in (7, 50) else f"Answer {number}"
        store.write_answer(
            store.begin_answer(asked, GenerationRecord(model="shapes")), said, AnswerData(state="complete")
        )
    branched = store.add_turn(talk, store.path(talk)[13].id, user_turn("Is there a ruby?"))
    store.activate(branched)
    store.activate(store.tree(talk)[119].id)
    async with chatting() as chat:
        for words, place in (
            ("green star", "Answer 51 of 60 · match 2 of 2"),
            ("ruby", "Your message 8 of 8 · match 1 of 1"),
        ):
            await chat.pilot.press("ctrl+l")
            await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))
            await chat.pilot.press("slash", *["space" if key == " " else key for key in words], "enter")
            await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
            await chat.until(partial(is_shown, chat, place))


async def test_the_list_lacks_a_draft_that_was_wiped_just_now(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.write("never mind")
        assert await chat.controller.recorder.flush()
        chat.composer.clear()
        await chat.pilot.press("ctrl+l")
        await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))
        assert await chat.app.services.store.run(lambda store: store.conversations()) == []


async def test_answers_and_messages_have_branches(chatting: StartChat, store: Store) -> None:
    async with chatting(["One."], ["Two."], ["Three."], ["Four."]) as chat:
        await chat.say("first")
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: said(store) == ["first", "Two."] and not chat.last.is_running)
        await chat.until(lambda: "answer 2/2" in chat.screen_text())
        await chat.pilot.press("alt+left")
        await chat.until(lambda: chat.last.answer.text == "One.")
        assert said(store) == ["first", "One."]
        await chat.until(lambda: "answer 1/2" in chat.screen_text())
        await chat.say("second")
        await chat.until(lambda: said(store) == ["first", "One.", "second", "Three."])
        await chat.send("/edit 1")
        await chat.until(lambda: chat.composer.text == "first")
        assert chat.screen.query_one("#editing", Static).display
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.controller.editing is None)
        assert chat.composer.text == ""
        await chat.send("/edit 1")
        await chat.until(lambda: chat.composer.text == "first")
        await chat.send(" of all")
        await chat.until(lambda: said(store) == ["first of all", "Four."] and not chat.last.is_running)
        assert len(chat.controller.exchanges) == 1
        await chat.until(lambda: "message 2/2" in chat.screen_text())
        sent = chat.host.engine.requests[-1].prompt
        assert isinstance(sent, ChatPrompt)
        assert [turn.text for turn in sent.turns] == ["first of all"]
        await chat.send("/branch 1")
        await chat.until(lambda: [item.user.text for item in chat.controller.exchanges] == ["first", "second"])
        assert said(store) == ["first", "One.", "second", "Three."]
        await chat.until(lambda: "Three." in chat.screen_text())


async def test_a_conversation_goes_on_where_it_was_left(
    make_app: MakeApp, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "WINDOW", 2)
    host = ScriptedHost(answers=[[f"answer {number}"] for number in range(5)])
    async with started(make_app, host) as chat:
        await chat.send("/system Be brief.")
        await chat.until(lambda: chat.controller.settings.system_prompt == "Be brief.")
        await chat.send("/set temperature 0.7")
        await chat.until(lambda: chat.controller.settings.sampling.temperature == 0.7)
        for number in range(4):
            await chat.say(f"question {number}")
        await chat.until(lambda: turns(store)[-1].state == "complete")
    async with started(make_app, host, resume=store.last()) as chat:
        await chat.until(lambda: len(chat.controller.exchanges) + chat.controller.branch.older == 4)
        await chat.until(lambda: "answer 3" in chat.screen_text())
        assert chat.controller.settings.system_prompt == "Be brief."
        assert chat.controller.settings.sampling.temperature == 0.7
        await chat.say("question 4")
        sent = host.engine.requests[-1].prompt
        assert isinstance(sent, ChatPrompt)
        assert [turn.text for turn in sent.turns] == ["Be brief.", *said(store)[:-1]]
        assert len(said(store)) == 10
        older = chat.controller.branch.load_older(10)
        assert [item.user.text for item in chat.controller.exchanges] == [f"question {n}" for n in range(5)]
        assert all(item.answer_id is not None for item in older)


async def test_a_new_chat_is_another_conversation_and_the_old_one_can_be_opened(
    chatting: StartChat, store: Store
) -> None:
    async with chatting(["One."], ["Two."]) as chat:
        await chat.say("first")
        first = chat.controller.id
        assert first is not None
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: chat.controller.exchanges == [])
        await chat.say("second")
        assert chat.controller.id != first
        await chat.write("half")
        chat.app.stored.open(first)
        await chat.until(lambda: chat.controller.id == first)
        await chat.until(lambda: chat.composer.text == "" and "One." in chat.screen_text())
        assert store.draft(store.last() or first).text == "half"


SPEC = resolve(Registry.bundled(), "shapes").spec


def interrupted(store: Store, request_id: str = "kept") -> tuple[ConversationId, TurnId]:
    """Write the files that a process leaves if it is killed during an answer."""
    conversation = store.new_conversation(title="Count to three", model="shapes")
    asked = store.add_turn(conversation, None, user_turn("Count"))
    spec = resolve(Registry.bundled(), "shapes").spec
    record = GenerationRecord(model=spec.model, request_id=request_id, made_by=stored_model(spec))
    answer = store.begin_answer(asked, record)
    store.write_answer(answer, "One ", AnswerData(tokens=1))
    return conversation, answer


def left_behind(folder: Path) -> tuple[ConversationId, TurnId]:
    """Write the same files in the name of a process that has ended."""
    dead = opened(Paths.below(folder).data)
    try:
        return interrupted(dead)
    finally:
        dead.close()


def holding(spec: LoadSpec, request_id: str = "kept") -> ScriptedHost:
    """Return a host whose engine has continued a request."""
    host = ScriptedHost(load=[])
    prompt = ChatPrompt(turns=(user_turn("Count"),))
    request = GenerateRequest(request_id=request_id, prompt=prompt, sampling=Sampling())
    host.kept = {request_id: KeptAnswer(request, said="One two ", tokens=2, left=["three."])}
    host.holding = spec
    return host


async def test_an_answer_that_went_on_is_fetched_shown_and_completed(
    make_app: MakeApp, tmp_path: Path, store: Store
) -> None:
    conversation, answer = left_behind(tmp_path)
    host = holding(SPEC)
    async with started(make_app, host, model=None) as chat:
        await chat.until(lambda: store.turn(answer).state == "complete")
        assert store.turn(answer).text == "One two three."
        assert chat.controller.id == conversation
        assert chat.last.answer.text == "One two three."
        await chat.until(lambda: "Finished: Count to three" in chat.notes)
        await chat.until(lambda: "One two three." in chat.screen_text())
        await chat.until(lambda: host.engine.forgotten == ["kept"])
        assert len(host.engines) == 1


async def test_a_stored_answer_is_deleted_from_the_spool(make_app: MakeApp, tmp_path: Path, store: Store) -> None:
    """Otherwise an app that is killed after storing an answer's end would leave it there."""
    _, answer = interrupted(store, "ended")
    store.write_answer(answer, "One two", COMPLETE)
    last = Cancelled(request_id="", usage=Usage(), timings=Timings())
    host = ScriptedHost(load=[])
    host.written = {"ended": [last], "of another store": [last]}
    async with started(make_app, host) as chat:
        await chat.until(lambda: list(host.written) == ["of another store"])
        assert store.turn(answer).text == "One two"


async def test_text_typed_while_an_answer_is_fetched_stays(
    make_app: MakeApp, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draft from the store once replaced the text that was typed meanwhile."""
    conversation, answer = left_behind(tmp_path)
    host, fetching, may_read = holding(SPEC), asyncio.Event(), asyncio.Event()
    read = Conversation._read

    async def slow(self: Conversation, wanted: ConversationId) -> object:
        loaded = await read(self, wanted)
        if self.id == wanted:
            fetching.set()
            await may_read.wait()
        return loaded

    monkeypatch.setattr(Conversation, "_read", slow)
    async with started(make_app, host, resume=conversation) as chat:
        await fetching.wait()
        await chat.write("meanwhile")
        stands = chat.app.screen
        may_read.set()
        await chat.until(lambda: store.turn(answer).state == "complete" and "three." in chat.screen_text())
        assert chat.composer.text == chat.controller.draft.text == "meanwhile"
        assert chat.app.screen is stands, "another one in its place loses the keys that are on their way"
        await chat.until(lambda: store.draft(conversation).text == "meanwhile")


async def test_an_answer_of_another_model_is_completed_without_being_shown(
    make_app: MakeApp, tmp_path: Path, store: Store
) -> None:
    _, answer = left_behind(tmp_path)
    other = msgspec.structs.replace(resolve(Registry.bundled(), "shapes").spec, name="other")
    host = holding(other)
    host.kept, kept = {}, host.kept
    worker = await host.open(other, client="before", keep_alive_s=None)
    worker.kept = kept
    async with started(make_app, host) as chat:
        await chat.until(lambda: store.turn(answer).state == "complete")
        assert store.turn(answer).text == "One two three."
        assert chat.controller.exchanges == []


def finished(kept: KeptAnswer, text: str) -> KeptAnswer:
    """Return the same answer, finished."""
    usage = Usage(completion_tokens=3)
    kept.said = text
    kept.outcome = Finished(request_id="kept", finish_reason="stop", usage=usage, timings=Timings())
    return kept


DIED = Failure(kind=ErrorKind.ENGINE_DIED, message="The engine was killed.")
REFUSED = Failure(kind=ErrorKind.INTERNAL, message="Out of blocks.")


@pytest.mark.parametrize("is_written", [False, True], ids=["engine", "spool"])
@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (
            Finished(request_id="kept", finish_reason="stop", usage=Usage(), timings=Timings()),
            "Finished: Count to three",
        ),
        (Failed(request_id="kept", failure=DIED), "The engine died during this answer: Count to three"),
        (Failed(request_id="kept", failure=REFUSED), "This answer failed: Count to three"),
        (Cancelled(request_id="kept", usage=Usage(), timings=Timings()), "This answer was stopped: Count to three"),
    ],
    ids=["finished", "died", "failed", "stopped"],
)
async def test_the_end_of_an_interrupted_answer_is_shown(
    make_app: MakeApp, tmp_path: Path, store: Store, outcome: Finished | Failed | Cancelled, said: str, is_written: bool
) -> None:
    left_behind(tmp_path)
    host = holding(SPEC)
    kept = host.kept["kept"]
    kept.said, kept.outcome = "One two three.", outcome
    if is_written:
        host = ScriptedHost(load=[])
        host.written = {"kept": kept.events()}
    async with started(make_app, host, model="shapes" if is_written else None) as chat:
        await chat.until(lambda: said in chat.notes)


async def test_an_engine_that_ends_during_the_search_has_spooled_the_answer(
    make_app: MakeApp, tmp_path: Path, store: Store
) -> None:
    _, answer = left_behind(tmp_path)
    host = holding(SPEC)
    finished(host.kept["kept"], "One two three.")
    host.ends_when_opened = True
    async with started(make_app, host, model=None) as chat:
        await chat.until(lambda: store.turn(answer).state == "complete")
        assert store.turn(answer).text == "One two three."
        assert chat.last.answer.text == "One two three."
        await chat.until(lambda: "One two three." in chat.screen_text())
        await chat.until(lambda: host.written == {})


async def test_an_engine_that_dies_while_resending_removes_nothing(
    make_app: MakeApp, tmp_path: Path, store: Store
) -> None:
    _, answer = left_behind(tmp_path)
    host = holding(SPEC)
    host.kept["kept"].said = ""
    host.kept["kept"].left = [Die()]
    async with started(make_app, host, model=None) as chat:
        await chat.until(lambda: len(host.engines) == 2 and chat.app.engines.is_loaded)
        await chat.until(lambda: store.turn(answer).state == "interrupted")
        await chat.until(lambda: store.turn(answer).text == "One ")
        await chat.until(lambda: bool(chat.controller.exchanges) and chat.last.answer.text == "One ")


async def test_an_answer_whose_app_and_engine_were_killed_is_interrupted(
    make_app: MakeApp, tmp_path: Path, store: Store
) -> None:
    conversation, answer = left_behind(tmp_path)
    async with started(make_app, ScriptedHost(load=[]), resume=conversation) as chat:
        await chat.until(lambda: "The answer was interrupted: vlmtui exited first." in chat.screen_text())
        assert store.turn(answer).state == "interrupted"
        assert "Another vlmtui" not in chat.screen_text()


async def test_the_spool_of_an_ended_worker_is_stored(make_app: MakeApp, tmp_path: Path, store: Store) -> None:
    _, answer = left_behind(tmp_path)
    host = ScriptedHost(load=[])
    kept = holding(SPEC).kept["kept"]
    host.written = {"kept": finished(kept, "One two three.").events()}
    async with started(make_app, host) as chat:
        await chat.until(lambda: store.turn(answer).state == "complete")
        assert store.turn(answer).text == "One two three."
        await chat.until(lambda: host.written == {})
        await chat.until(lambda: "One two three." in chat.screen_text())


async def test_a_hang_up_leaves_the_answer_to_the_engine(chatting: StartChat, store: Store) -> None:
    never = asyncio.Event()
    async with chatting(["One ", "two ", Hold(never)]) as chat:
        await chat.send("Count")
        await chat.until(lambda: chat.controller.exchanges != [] and chat.last.answer.text == "One two ")
        await chat.write("and then")
        os.kill(os.getpid(), signal.SIGHUP)
        await chat.until(lambda: chat.app.return_value is not None)
    assert chat.host.engine.cancelled == []
    assert not chat.host.engine.was_shut_down
    store.mark_interrupted()
    assert said(store) == ["Count", "One two "]
    assert turns(store)[-1].state == "interrupted"
    last = store.last()
    assert last is not None
    assert store.draft(last).text == "and then"


async def test_quitting_stops_the_answer(chatting: StartChat, store: Store) -> None:
    never = asyncio.Event()
    async with chatting(["One ", Hold(never)]) as chat:
        await chat.send("Count")
        await chat.until(lambda: chat.controller.exchanges != [] and chat.last.answer.text == "One ")
        await chat.pilot.press("ctrl+q")
        await chat.until(lambda: chat.app.return_value is not None)
    assert len(chat.host.engine.cancelled) == 1
    assert turns(store)[-1].state == "stopped"
    assert said(store) == ["Count", "One "]


async def test_another_user_in_the_workers_place_is_reported(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops nothing: the model is loaded, and the chat works."""

    async def leftovers(_: ScriptedHost) -> list[Leftover]:
        raise VlmtuiError(ErrorKind.FOREIGN_PEER, "Another user (uid 4711) is there.")

    monkeypatch.setattr(ScriptedHost, "leftovers", leftovers)
    async with started(make_app, ScriptedHost(load=[])) as chat:
        await chat.until(lambda: "uid 4711" in chat.notes)
        await chat.send("/cleanup")
        await chat.until(lambda: chat.notes.count("uid 4711") == 2)
        assert "There are no leftover workers." not in chat.notes


async def test_leftovers_are_reported_and_ended_on_request(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    host.left_over = [Leftover(id="x", title="left (pid 7)")]
    async with started(make_app, host) as chat:
        await chat.until(lambda: "/cleanup" in chat.notes)
        assert "left (pid 7)" in chat.notes
        await chat.send("/cleanup")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
        assert host.ended == []
        await chat.pilot.press("enter")
        await chat.until(lambda: len(host.ended) == 1)
        await chat.until(lambda: "Stopped:" in chat.notes)


async def test_media_that_a_chosen_model_does_not_take_are_reported(
    make_app: MakeApp, tmp_path: Path, store: Store
) -> None:
    shapes = Registry.bundled()["shapes"]
    one = msgspec.structs.replace(
        shapes,
        family="one",
        models=("org/one",),
        takes={"image": msgspec.structs.replace(shapes.takes["image"], max_items=1)},
    )
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes", registry=Registry({"shapes": shapes, "one": one}))
    async with app.run_test(size=(100, 30)) as pilot:
        await until_chat(pilot)
        chat = Chat(app, host, pilot)
        for name in ("a.png", "b.png"):
            await chat.paste(str(picture(tmp_path, name)))
        await chat.until(lambda: len(chat.controller.draft.attachments) == 2)
        await chat.say("which")
        app.run_action_id("models", "one")
        await chat.until(lambda: "2 images so far; the limit is 1" in chat.notes)
        await chat.until(lambda: isinstance(app.screen, ChatScreen))
        await chat.send("and now")
        await chat.until(lambda: chat.composer.text == "and now")
        assert len(chat.controller.exchanges) == 1
        app.run_action_id("leave_out_oldest")
        await chat.until(lambda: "left out of prompts" in chat.screen_text())
        await chat.say("")
        assert store.conversation(turns(store)[0].conversation).model == "org/one"


async def test_a_conversation_may_be_shown_before_its_screen_is_ready(chatting: StartChat) -> None:
    async with chatting(["One."]) as chat:
        await chat.say("first")
        screen = chat.app.new_chat()
        chat.app.push_screen(screen)
        await screen.show_conversation()
        await chat.until(lambda: "One." in chat.screen_text())


async def test_a_conversation_with_only_a_draft_keeps_its_model(chatting: StartChat, store: Store) -> None:
    async with chatting() as chat:
        await chat.write("not sent yet")
        await chat.until(lambda: store.last() is not None)
        last = store.last()
        assert last is not None
        assert store.conversation(last).model == "shapes"


async def test_a_deleted_data_folder_is_reported_and_filled_again(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["One."]) as chat:
        await chat.say("first")
        await chat.until(lambda: not chat.controller.recorder.waiting)
        shutil.rmtree(chat.app.services.paths.data)
        await chat.write("a draft")
        await chat.until(lambda: "is saved there again" in chat.notes)
        store = Store.open(chat.app.services.paths.data)
        (only,) = store.conversations()
        assert [turn.text for turn in store.path(only.conversation.id)] == ["first", "One."]
        await chat.until(lambda: store.draft(only.conversation.id).text == "a draft")
        store.close()


async def test_the_adapter_of_a_conversation_lasts(make_app: MakeApp, store: Store, tmp_path: Path) -> None:
    adapter = tmp_path / "my-ocr"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"r": 8, "peft_type": "LORA"}')
    host = ScriptedHost(answers=[[f"answer {number}"] for number in range(4)])
    async with started(make_app, host) as chat:
        await chat.say("first")
        await chat.send(f"/adapter {tmp_path / 'gone'}")
        await chat.until(lambda: "There is no adapter" in chat.notes)
        await chat.send(f"/adapter {adapter}")
        # It was loaded without LoRA: it has to be loaded again.
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert chat.controller.settings.adapter == ""
        await chat.send(f"/adapter {adapter}")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.controller.settings.adapter == str(adapter))
        await chat.until(lambda: chat.app.engines.state is EngineState.READY)
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        arguments = host.engine.spec.engine_args
        assert (arguments["enable_lora"], arguments["max_lora_rank"]) == (True, 8)
        await chat.until(lambda: "LoRA my-ocr" in chat.screen_text())
        await chat.say("second")
        assert [one.adapter for one in (host.engines[0].requests[0], host.engine.requests[-1])] == ["", str(adapter)]
        await chat.until(lambda: turns(store)[-1].state == "complete")
    async with started(make_app, host, resume=store.last()) as chat:
        await chat.until(lambda: "answer 1" in chat.screen_text())
        assert chat.controller.settings.adapter == str(adapter)
        await chat.until(lambda: "LoRA my-ocr" in chat.screen_text())
        await chat.say("third")
        assert host.engine.requests[-1].adapter == str(adapter)
        await chat.send("/adapter none")
        await chat.until(lambda: chat.controller.settings.adapter == "")
        assert "Adapter my-ocr → none" in chat.notes
        await chat.say("fourth")
        assert host.engine.requests[-1].adapter == ""


async def test_nearby_adapters_are_offered(
    make_app: MakeApp, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / "loras" / name).mkdir(parents=True)
        (tmp_path / "loras" / name / "adapter_config.json").write_text('{"r": 8, "peft_type": "LORA"}')
    monkeypatch.chdir(tmp_path)
    async with started(make_app, ScriptedHost(answers=[["Hi."]])) as chat:
        await chat.say("first")
        await chat.send("/adapter")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
        lines = chat.app.screen.query_one(OptionList)
        assert [str(lines.get_option_at_index(at).prompt) for at in range(3)] == [
            "● No adapter",
            "○ a · rank 8",
            "○ b · rank 8",
        ]
        await chat.pilot.press("down", "down", "enter")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.controller.settings.adapter == str(tmp_path / "loras" / "b"))
