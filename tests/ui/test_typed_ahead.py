"""What is typed before there is a composer is in it afterwards, or sent."""

from __future__ import annotations

import asyncio

import pytest
from textual import events
from textual.widgets import Input

from tests.support.scripted_engine import Hold, ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import MakeApp
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.engines import EngineState
from vlmtui.store.records import ConversationId, StoredDraft
from vlmtui.store.store import Store
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.models.screen import ModelsScreen
from vlmtui.ui.widgets.dialogs import ChoiceScreen


def come(app: VlmtuiApp, text: str) -> None:
    """Let keys arrive all at once."""
    for character in text:
        key = {" ": "space", "\n": "enter", "\b": "backspace", "\r": "ctrl+j"}.get(character, character)
        app.post_message(events.Key(key, character if character.isprintable() else None))


def type_before(monkeypatch: pytest.MonkeyPatch, owner: type[object], method: str, app: VlmtuiApp, text: str) -> None:
    """Let keys arrive when this method is called."""
    called = getattr(owner, method)

    def typing(self: object, *given: object) -> object:
        come(app, text)
        return called(self, *given)

    monkeypatch.setattr(owner, method, typing)


def screen_text(app: VlmtuiApp) -> str:
    """Return the screen, line by line."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips()) if app.screen_stack else ""


def composed(app: VlmtuiApp) -> str | None:
    """Return the composer's text; None if there is no composer."""
    return next((found.text for found in app.screen.query(Composer)), None)


@pytest.mark.parametrize("moment", ["at once", "chat screen made", "chat screen mounted"])
async def test_letters_typed_before_the_chat_keep_their_order(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The keys arrive from within the app, at the moment that the name says."""
    app = make_app(ScriptedHost(), initial_model="shapes")
    match moment:
        case "chat screen made":
            type_before(monkeypatch, ChatScreen, "compose", app, "qwertzuiop")
        case "chat screen mounted":
            type_before(monkeypatch, ChatScreen, "_fill_transcript", app, "qwertzuiop")
    async with app.run_test() as pilot:
        if moment == "at once":
            come(app, "qwertzuiop")
        await until(pilot, lambda: isinstance(app.screen, ChatScreen) and bool(composed(app)))
        come(app, " asdf")
        await until(pilot, lambda: composed(app) == "qwertzuiop asdf")


async def test_enter_and_pastes_act_once_the_composer_is_there(make_app: MakeApp) -> None:
    go = asyncio.Event()
    app = make_app(ScriptedHost(answers=[["one"]], load=[Hold(go)]), initial_model="shapes")
    async with app.run_test() as pilot:
        come(app, "what, or \b? no\n")
        app.post_message(events.Paste("several\nlines"))
        come(app, "\r.")
        await until(pilot, lambda: composed(app) == "several\nlines\n.")
        chat = app.conversation.require_chat()
        assert [message.written.text for message in chat.queue.messages] == ["what, or? no"]
        go.set()
        await until(pilot, lambda: bool(chat.exchanges))
        assert [exchange.sent_user.text for exchange in chat.exchanges] == ["what, or? no"]


def stored_draft(app: VlmtuiApp, text: str) -> ConversationId:
    """Store a conversation with a draft."""
    store = Store.open(app.services.paths.data, app.services.paths.media)
    conversation = store.new_conversation(model="shapes")
    store.save_draft(conversation, StoredDraft(text=text))
    store.close()
    return conversation


async def test_behind_a_stored_draft_enter_does_not_send(make_app: MakeApp) -> None:
    conversation = stored_draft(make_app(), "an earlier thought")
    app = make_app(ScriptedHost(), initial_model="shapes", resume=conversation)
    async with app.run_test() as pilot:
        come(app, "a later one\n")
        await until(pilot, lambda: composed(app) == "an earlier thought a later one\n")
        chat = app.conversation.require_chat()
        assert chat.id == conversation and not chat.exchanges and not chat.queue


async def test_what_is_typed_before_the_app_quits_at_its_start_becomes_a_draft(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, never = make_app(initial_model="shapes"), asyncio.Event()

    async def wait(*given: object) -> None:
        await never.wait()

    monkeypatch.setattr(AsyncStore, "run", wait)
    monkeypatch.setattr(VlmtuiApp, "conversation_begun", lambda app: None)
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, ChatScreen))
        come(app, "half a mess")
        await until(pilot, lambda: composed(app) == "")
        monkeypatch.undo()
        app.action_help_quit()
        app.action_help_quit()
        await until(pilot, lambda: app.return_value is not None)
    assert draft_of_the_newest(app) == "half a mess"


def draft_of_the_newest(app: VlmtuiApp) -> str:
    store = Store.open(app.services.paths.data, app.services.paths.media)
    found = store.last()
    text = store.draft(found).text if found is not None else ""
    store.close()
    return text


async def test_enter_in_the_first_chat_lists_the_models_and_the_filter_gets_what_is_typed_then(
    make_app: MakeApp,
) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await until(pilot, lambda: "No model is chosen: Enter or Ctrl+X m lists them." in screen_text(app))
        come(app, "\nshapes")
        await until(
            pilot, lambda: isinstance(app.screen, ModelsScreen) and app.screen.query_one(Input).value == "shapes"
        )
        await pilot.press("enter")
        come(app, "hello")
        await until(pilot, lambda: composed(app) == "hello")


async def test_text_typed_before_a_question_is_not_its_answer(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(initial_model="phi3_v")
    type_before(monkeypatch, ChatScreen, "_fill_transcript", app, "hello\nworld")
    async with app.run_test() as pilot:
        await until(pilot, lambda: composed(app) == "world")
        assert not isinstance(app.screen, ChoiceScreen)
        come(app, "!")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("escape")
        await until(pilot, lambda: composed(app) == "world!")
        chat = app.conversation.require_chat()
        assert [message.written.text for message in chat.queue.messages] == ["hello"]
        assert app.engines.state is EngineState.NONE
        await pilot.press("f3")
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))
        await pilot.press(*"shapes", "enter")
        await until(pilot, lambda: bool(chat.exchanges) and composed(app) == "world!")
