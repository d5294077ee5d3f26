"""`[keys]` of config.toml: the active keys, warnings about wrong entries, and their effect in the app."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from textual.app import App
from textual.command import DiscoveryHit
from textual.screen import Screen
from textual.widgets import Static

import key_table
from tests.support.documents import written
from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until, until_chat
from tests.ui.conftest import AppPilot, MakeApp, PlainChat, StartChat
from tests.ui.test_keys_and_names import arrives_as
from vlmtui.config.settings import Settings
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError
from vlmtui.ui.actions import ACTIONS, SCOPES, UNBOUND
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.conversations import ConversationsScreen
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.help import ActionCommands, HelpScreen
from vlmtui.ui.keys import ARRIVES_AS, KeyBindings, default_keys, error_text, parse_key, spell_key, with_keys
from vlmtui.ui.models.log import LogScreen
from vlmtui.ui.settings import SettingsScreen
from vlmtui.ui.widgets.footer_bar import FooterBar


def changed(keys: KeyBindings) -> dict[str, str]:
    """Return the part of the keymap that differs from the action table."""
    return {id: key for id, key in keys.keymap.items() if key != (",".join(default_keys(id)) or UNBOUND)}


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("ctrl+a", "ctrl+a"),
        ("Ctrl+A", "ctrl+a"),
        ("^o", "ctrl+o"),
        ("Esc", "escape"),
        ("PgDn", "pagedown"),
        ("alt+shift+Up", "alt+shift+up"),
        ("?", "question_mark"),
        (".", "full_stop"),
        ("+", "plus"),
        ("^", "circumflex_accent"),
        ("g", "g"),
        ("G", "G"),
        ("comma", "comma"),
        ("f12", "f12"),
        ("f25", None),
        ("ctrl+", None),
        ("strg+a", None),
        ("shift+a", None),
        ("<any>", None),
        ("no key", None),
        ("", None),
    ],
)
def test_a_key_is_read_as_people_write_it(written: str, key: str | None) -> None:
    assert parse_key(written) == key


def test_every_default_key_can_be_written_and_read_back() -> None:
    keys = {key for id in ACTIONS for key in default_keys(id)}
    assert len(keys) > 50
    for key in keys:
        assert parse_key(key) == key
        assert parse_key(spell_key(key)) == key, spell_key(key)


def test_some_keys_arrive_as_others_in_most_terminals() -> None:
    bytes_of = {"ctrl+i": "\t", "ctrl+m": "\r", "alt+b": "\x1bb", "alt+f": "\x1bf"}
    assert bytes_of.keys() == ARRIVES_AS.keys()
    for key, sent in bytes_of.items():
        assert ARRIVES_AS[key] in arrives_as(sent)


def test_without_settings_the_defaults_apply_and_the_keymap_is_empty() -> None:
    keys = KeyBindings()
    assert keys.of("attach") == ("ctrl+o",) and keys.of("inspect") == ("f12",) and keys.of("branch") == ()
    assert not keys.keymap and not keys.warnings
    assert not KeyBindings({"attach": "ctrl+o", "inspect": ["f12"]}).keymap, "the defaults again"


def test_a_binding_may_be_written_in_each_form() -> None:
    keys = KeyBindings({"attach": "Ctrl+A", "inspect": ["f12", "alt+i"], "image": "f9, alt+j", "inbox": ""})
    chosen = {"attach": "ctrl+a", "inspect": "f12,alt+i", "image": "f9,alt+j", "inbox": "unbound"}
    assert changed(keys) == {**chosen, "editor.line_start": "home"}
    assert not keys.warnings
    in_a_table, quoted = {"image_room": {"zoom_in": "v"}}, {"image_room.zoom_in": "v"}
    assert changed(KeyBindings(in_a_table)) == changed(KeyBindings(quoted)) == {"image_room.zoom_in": "v"}


@pytest.mark.parametrize(
    ("id", "keys", "warning"),
    [
        ("atach", "ctrl+a", "[keys] atach: there is no such action. Did you mean 'attach'?"),
        ("zoom_in", "z", "[keys] zoom_in: there is no such action. Did you mean 'image_room.zoom_in'?"),
        ("xyzzy", "z", "[keys] xyzzy: there is no such action. docs/keys.md lists them."),
        ("attach", "ctrl+", "[keys] attach: 'ctrl+' is not a key. Examples: ctrl+a, f5, alt+x, shift+up, escape."),
        (
            "attach",
            5,
            "[keys] attach: expected a key or a list of keys, not 5. Examples: ctrl+a, f5, alt+x, shift+up, escape.",
        ),
        ("compare", "y", "[keys] compare: 'y' could no longer be typed. Combine it with Ctrl or Alt."),
        ("help", "h", "[keys] help: 'h' could no longer be typed. Combine it with Ctrl or Alt."),
    ],
)
def test_a_wrong_binding_is_reported_and_the_default_stays(id: str, keys: object, warning: str) -> None:
    bindings = KeyBindings({id: keys, "settings": "f11"})
    assert bindings.warnings == [warning]
    assert changed(bindings) == {"settings": "f11"}


@pytest.mark.parametrize(
    ("given", "keymap", "warning"),
    [
        (
            {"attach": "ctrl+n"},
            {"attach": "ctrl+n", "new_chat": "unbound"},
            "[keys] attach: in a chat, Ctrl+N is taken from new_chat, which has no key now.",
        ),
        (
            {"image": "f9,f10"},
            {"image": "f9,f10", "compare": "unbound"},
            "[keys] image: in a chat, F10 is taken from compare, which has no key now.",
        ),
        (
            {"settings": "ctrl+b", "attach": "ctrl+b"},
            {"settings": "unbound", "attach": "ctrl+b"},
            "[keys] attach: in a chat, Ctrl+B is taken from settings, which has no key now.",
        ),
        ({"attach": "alt+b"}, {"attach": "alt+b"}, "[keys] attach: most terminals send Ctrl+← for Alt+B."),
        ({"attach": "y"}, {"attach": "y"}, "[keys] attach: 'y' acts only while no text field has the focus."),
    ],
)
def test_a_conflict_is_reported_and_resolved(given: dict[str, object], keymap: dict[str, str], warning: str) -> None:
    bindings = KeyBindings(given)
    assert bindings.warnings == [warning]
    assert changed(bindings) == keymap


def test_keys_that_change_places_are_no_conflict() -> None:
    bindings = KeyBindings({"settings": "ctrl+o", "attach": "f2", "show_log": "f11"})
    assert not bindings.warnings
    assert changed(bindings) == {"settings": "ctrl+o", "attach": "f2", "show_log": "f11"}


def test_an_action_keeps_the_key_that_it_shares_by_default() -> None:
    keymap = KeyBindings({"stop": "f11"}).keymap
    assert keymap["stop"] == "f11" and keymap["leave_edit"] == "escape"


def test_the_page_has_every_key() -> None:
    text = key_table.PAGE.read_text(encoding="utf-8")
    assert key_table.written(text) == text


def is_shown(app: VlmtuiApp, kind: type[Screen[Any]]) -> bool:
    return isinstance(app.screen, kind)


def footer(app: VlmtuiApp) -> dict[str, str]:
    return {item.title: item.shown for item in app.screen.query_one(FooterBar).items}


async def in_the_chat(app: VlmtuiApp, pilot: AppPilot) -> ChatScreen:
    await until_chat(pilot)
    await until(pilot, lambda: "Help" in footer(app))
    assert isinstance(app.screen, ChatScreen)
    return app.screen


async def test_a_rebound_key_acts_and_is_shown_and_the_old_one_does_nothing(make_app: MakeApp) -> None:
    keys: dict[str, object] = {"settings": "f8", "take_in_again": "", "help": "f11", "new_chat": ""}
    app = make_app(ScriptedHost(load=[]), initial_model="shapes", settings=Settings(graphics="off", keys=keys))
    async with app.run_test(size=(120, 40)) as pilot:
        chat = await in_the_chat(app, pilot)
        assert footer(app)["Settings"] == "F8" and footer(app)["Help"] == "F11"
        assert footer(app).get("New chat") in (None, "n"), "it has no key but by the leader"
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is chat)
        await pilot.press("f1", "ctrl+n")
        assert app.screen is chat
        hits = [hit async for hit in ActionCommands(chat).discover() if isinstance(hit, DiscoveryHit)]
        lines = {str(hit.display): hit.help for hit in hits}
        assert lines["Settings"] == "System prompt and sampling.  (F8)"
        assert lines["New chat"] == "Start a new conversation with the same model.  (Ctrl+X n)"
        await pilot.press("f11")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        text = written(app.screen.query_one("#text", DocumentView))
        line = next(line for line in text.split("\n") if "/settings" in line)
        assert line.split() == ["F8,", "Ctrl+X", ",", "/settings", "System", "prompt", "and", "sampling."]
        await pilot.press("f11")
        await until(pilot, lambda: app.screen is chat)
        assert not app._notifications


async def test_all_warnings_are_shown_at_once_at_the_start(make_app: MakeApp) -> None:
    keys: dict[str, object] = {"atach": "ctrl+a", "settings": "strg+x"}
    app = make_app(settings=Settings(graphics="off", keys=keys))
    async with app.run_test() as pilot:
        await until(pilot, lambda: bool(app._notifications))
        await pilot.pause()
        first, second, where = "".join(note.message for note in app._notifications).split("\n")
        assert first.startswith("[keys] atach: there is no such action. Did you mean 'attach'?")
        assert second.startswith("[keys] settings: 'strg+x' is not a key.")
        assert where.endswith("config.toml)") and len(app._notifications) == 1


def test_many_warnings_are_shown_as_the_first_and_a_count() -> None:
    bindings = KeyBindings(dict.fromkeys("abcde", "f1"))
    assert bindings.first_warnings(5) == bindings.warnings and len(bindings.warnings) == 5
    assert bindings.first_warnings(3) == [*bindings.warnings[:3], "… and 2 more, listed by `vlmtui config show`"]


async def test_an_action_without_a_key_can_be_given_one(make_app: MakeApp) -> None:
    keys: dict[str, object] = {"system": "alt+m", "cleanup": "alt+u"}
    app = make_app(ScriptedHost(load=[]), initial_model="shapes", settings=Settings(graphics="off", keys=keys))
    async with app.run_test(size=(120, 40)) as pilot:
        await in_the_chat(app, pilot)
        await pilot.press("alt+u")
        await until(pilot, lambda: any("There are no leftover workers" in note.message for note in app._notifications))
        await pilot.press("alt+m")
        await until(pilot, lambda: any("No setting has changed" in note.message for note in app._notifications))


async def test_a_chosen_key_is_taken_from_the_text_field(chatting: StartChat) -> None:
    async with chatting(keys={"settings": "f7", "conversations": "ctrl+e"}) as chat:
        await chat.write("hello")
        await chat.pilot.press("f7")
        await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.pilot.press("ctrl+a", "ctrl+e")
        await chat.until(lambda: isinstance(chat.app.screen, ConversationsScreen))
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert chat.composer.cursor_location == (0, 0), "its other keys are still its own"


async def test_a_rebound_key_keeps_its_place_in_the_footer(make_app: MakeApp) -> None:
    shown: list[list[str]] = []
    rebound: dict[str, object] = {"attach": "ctrl+b", "help": "f11"}
    for keys in ({}, rebound):
        app = make_app(ScriptedHost(load=[]), initial_model="shapes", settings=Settings(graphics="off", keys=keys))
        async with app.run_test(size=(120, 40)) as pilot:
            await in_the_chat(app, pilot)
            shown.append(list(footer(app)))
            assert len(shown[0]) > 4
            assert footer(app)["Attach"] == ("Ctrl+B" if keys else "Ctrl+O")
    assert shown[0] == shown[1]


async def test_messages_name_the_active_keys(chatting: StartChat) -> None:
    keys = {"stop": "f11", "regenerate": "ctrl+b", "edit": "alt+z", "jump_end": "alt+j", "attach": "ctrl+w", "help": ""}
    async with chatting(["It is"], keys=keys) as chat:
        welcome = chat.screen_text()
        assert "Ctrl+W" in welcome and "Ctrl+O" not in welcome
        assert "Alt+J" in str(chat.screen.query_one("#more", Static).content)
        await chat.pilot.press("alt+left")
        await chat.until(lambda: "There is no other branch on that side. Ctrl+B and Alt+Z make one." in chat.notes)
        await chat.send("/image")
        await chat.until(lambda: "Nothing is attached yet. Ctrl+W attaches a file." in chat.notes)


def test_a_sentence_without_a_key_names_the_command_or_the_title() -> None:
    app = App[None]()
    assert with_keys(app, "{attach} or {cleanup} {sides.difference}") == "Ctrl+O or /cleanup Ctrl+X d"
    error = VlmtuiError(ErrorKind.BAD_USAGE, "{stop}", remedy=Remedy.STOP_ANSWER)
    assert error_text(app, error) == "{stop} Esc stops it." and str(error) == "{stop}"


async def test_escape_still_leaves_an_edit_when_stop_has_another_key(chatting: StartChat) -> None:
    async with chatting(["It is red."]) as chat:
        chat.app.set_keymap(KeyBindings({"stop": "f11"}).keymap)
        await chat.say("What is it?")
        await chat.pilot.press("alt+e")
        await chat.until(lambda: chat.controller.editing is not None)
        await chat.pilot.press("f11")
        assert chat.controller.editing is not None
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.controller.editing is None)


async def test_help_shows_the_screen_first_then_the_app_then_all_others(make_app: MakeApp) -> None:
    app = make_app(ScriptedHost(load=[]), initial_model="shapes")
    async with app.run_test(size=(80, 24)) as pilot:
        await in_the_chat(app, pilot)
        for kind, key, first in (
            (SettingsScreen, "f2", "In the settings"),
            (LogScreen, "f4", "The engine: metrics and log"),
        ):
            await pilot.press(key)
            await until(pilot, partial(is_shown, app, kind))
            await pilot.press("f1")
            await until(pilot, partial(is_shown, app, HelpScreen))
            text = written(app.screen.query_one("#text", DocumentView))
            order = [line for line in text.split("\n") if line in {scope.title for scope in SCOPES.values()}]
            assert order[:2] == [first, "Everywhere"] and len(order) == len(SCOPES)
            await pilot.press("escape")
            await until(pilot, partial(is_shown, app, kind))
            await pilot.press("escape")
            await until(pilot, partial(is_shown, app, ChatScreen))


async def test_help_shows_only_the_lines_with_a_word(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))

        def text() -> str:
            return written(app.screen.query_one("#text", DocumentView))

        whole = text()
        await pilot.press("slash", *"greedy?")
        await until(pilot, lambda: text() == "No key or command with “greedy?”.")
        await pilot.press("escape")
        await until(pilot, lambda: text() == whole)
        await pilot.press("slash", *"/clean")
        await until(pilot, lambda: text().split("\n")[0] == "Everywhere" and len(text().split("\n")) == 2)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not isinstance(app.screen, HelpScreen))


async def test_the_palette_offers_the_actions_of_the_screen(make_app: MakeApp, plain_chat: None) -> None:
    app = make_app(ScriptedHost(load=[]), initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, PlainChat))
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        log = app.screen
        hits = [hit async for hit in ActionCommands(log).discover() if isinstance(hit, DiscoveryHit)]
        titles = [str(hit.display) for hit in hits]
        assert titles[:4] == ["Back", "End", "Top", "Metrics"] and "Attach" not in titles and "Models" in titles
        app.run_action_id("log.close")
        await until(pilot, lambda: isinstance(app.screen, PlainChat))
