"""What is typed before there is a composer is in it afterwards, or sent."""

from __future__ import annotations

import asyncio

import pytest
from textual import events
from textual.screen import Screen
from textual.widgets import Input

from tests.support.scripted_engine import Hold, ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import MakeApp
from vlmtui.store.records import ConversationId, StoredDraft
from vlmtui.store.store import Store
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.models.loading import LoadingScreen
from vlmtui.ui.models.screen import ModelsScreen
from vlmtui.ui.widgets.dialogs import ChoiceScreen


def come(app: VlmtuiApp, text: str) -> None:
    """Let keys arrive all at once."""
    for character in text:
        key = {" ": "space", "\n": "enter", "\b": "backspace", "\r": "ctrl+j"}.get(character, character)
        app.post_message(events.Key(key, character if character.isprintable() else None))


def type_before(
    monkeypatch: pytest.MonkeyPatch, screen: type[Screen[None]], method: str, app: VlmtuiApp, text: str
) -> None:
    """Let keys arrive when this method of a screen is called."""
    called = getattr(screen, method)

    def typing(self: object) -> object:
        come(app, text)
        return called(self)

    monkeypatch.setattr(screen, method, typing)


def composed(app: VlmtuiApp) -> str | None:
    """Return the composer's text; None if there is no composer."""
    return next((found.text for found in app.screen.query(Composer)), None)


@pytest.mark.parametrize("moment", ["at once", "loading screen", "chat screen made", "chat screen mounted"])
async def test_letters_typed_at_the_switch_to_the_chat_keep_their_order(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The keys arrive from within the app, at the moment that the name says."""
    app = make_app(ScriptedHost(), initial_model="shapes")
    match moment:
        case "loading screen":
            type_before(monkeypatch, LoadingScreen, "on_mount", app, "qwertzuiop")
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
        assert app.typed_ahead.text == ""


async def test_enter_and_pastes_act_once_the_composer_is_there(make_app: MakeApp) -> None:
    go = asyncio.Event()
    app = make_app(ScriptedHost(answers=[["one"]], load=[Hold(go)]), initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, LoadingScreen))
        come(app, "what, or \b? no\n")
        app.post_message(events.Paste("several\nlines"))
        come(app, "\r.")
        await until(pilot, lambda: app.typed_ahead.text == "what, or? no\nseveral\nlines\n.")
        go.set()
        await until(pilot, lambda: composed(app) == "several\nlines\n.")
        chat = app.conversation.require_chat()
        assert [exchange.sent_user.text for exchange in chat.exchanges] == ["what, or? no"]


def stored_draft(app: VlmtuiApp, text: str) -> ConversationId:
    """Store a conversation with a draft."""
    store = Store.open(app.services.paths.data, app.services.paths.media)
    conversation = store.new_conversation(model="shapes")
    store.save_draft(conversation, StoredDraft(text=text))
    store.close()
    return conversation


async def test_behind_a_stored_draft_enter_does_not_send(make_app: MakeApp) -> None:
    conversation, go = stored_draft(make_app(), "an earlier thought"), asyncio.Event()
    app = make_app(ScriptedHost(load=[Hold(go)]), initial_model="shapes", resume=conversation)
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, LoadingScreen))
        come(app, "a later one\n")
        await until(pilot, lambda: app.typed_ahead.text == "a later one\n")
        go.set()
        await until(pilot, lambda: composed(app) == "an earlier thought a later one\n")
        chat = app.conversation.require_chat()
        assert chat.id == conversation and not chat.exchanges


async def test_the_filter_of_the_first_list_gets_what_was_typed_before(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        come(app, "shapes")
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
    type_before(monkeypatch, ModelsScreen, "on_mount", app, "hello\nworld")
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen) and app.typed_ahead.text == "hello\nworld")
        come(app, "!")
        await until(pilot, lambda: app.typed_ahead.text == "hello\nworld!")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))
        await pilot.press(*"shapes", "enter")
        await until(pilot, lambda: composed(app) == "world!")
