"""Faults that only a real terminal or two screens show, such as keys that never arrive; and rules for texts."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.actions import parse
from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

import vlmtui.ui
from vlmtui.errors import Remedy
from vlmtui.ui.actions import ACTIONS, REMEDIES, SCOPES, bindings
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.terminal.key_queue import ask_user


def every_class() -> Iterator[type[DOMNode]]:
    for module in pkgutil.walk_packages(vlmtui.ui.__path__, "vlmtui.ui."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, DOMNode) and value.__module__ == module.name:
                yield value


def every_binding() -> Iterator[tuple[str, Binding]]:
    for kind in every_class():
        for binding in kind.__dict__.get("BINDINGS", ()):
            assert isinstance(binding, Binding), f"{kind.__name__}: {binding}"
            yield kind.__name__, binding


def arrives_as(written: str) -> list[str]:
    """Return the keys that Textual reads from these characters."""
    parser = XTermParser()
    return [event.key for event in (*parser.feed(written), *parser.feed("")) if isinstance(event, events.Key)]


@pytest.mark.parametrize("letter", ["b", "f"])
def test_some_letters_with_alt_are_cursor_keys_in_most_terminals(letter: str) -> None:
    assert arrives_as(f"\x1b{letter}") in (["ctrl+left"], ["ctrl+right"])


def test_every_key_with_alt_and_a_letter_arrives() -> None:
    found = [(name, key) for name, binding in every_binding() for key in binding.key.split(",")]
    assert found
    for name, key in found:
        letter = key.removeprefix("alt+")
        if key.startswith("alt+") and len(letter) == 1:
            assert arrives_as(f"\x1b{letter}") == [key], f"{name}: {key}"


def test_every_binding_comes_from_the_action_table() -> None:
    """Ids are unique, otherwise `ACTIONS` would lose an action, and begin with their scope."""
    root = Path(vlmtui.ui.__file__).parent
    found = [file.relative_to(root).as_posix() for file in root.rglob("*.py") if "Binding(" in file.read_text()]
    assert found == ["actions/action.py"]
    own = [action for scope in SCOPES.values() for action in scope.actions]
    assert {id(action) for action in own} == {id(action) for action in ACTIONS.values()}
    for scope in SCOPES.values():
        for action in scope.actions:
            prefix = action.id.rpartition(".")[0]
            assert prefix in ({""} if scope.name in ("chat", "app") else {scope.name, "sides"}), action.id
            assert action.title and action.help.endswith((".", "?"))
            assert not action.slash or not prefix, f"{action.id}: its command is run on the chat"
    assert ACTIONS.keys().isdisjoint(SCOPES), "`[keys]` can have an id, or a table of that name, but not both"
    for name, binding in every_binding():
        is_of_textual = name == "Composer" and f"{binding.id}".startswith("text_area.")
        assert is_of_textual or (binding.id in ACTIONS and binding.tooltip), name


def test_every_screen_names_its_scope() -> None:
    named: Counter[str] = Counter()
    for kind in every_class():
        if issubclass(kind, Screen):
            scope = kind.__dict__.get("SCOPE", "")
            named[scope] += 1
            if scope:
                assert kind.__dict__["BINDINGS"] == bindings(scope)
            else:
                assert "BINDINGS" not in kind.__dict__, f"{kind.__name__} has keys and no scope"
    of_screens = {
        scope.name
        for scope in SCOPES.values()
        if scope.name not in ("app", "editor", "search_bar") and not scope.within
    }
    assert of_screens == named.keys() - {""}
    assert {scope.within for scope in SCOPES.values()} - {""} <= of_screens
    assert all(count == 1 for name, count in named.items() if name)


def test_every_key_has_a_method_that_it_runs() -> None:
    screens = [kind for kind in every_class() if issubclass(kind, Screen)]
    for kind in every_class():
        for binding in kind.__dict__.get("BINDINGS", ()):
            namespace, name, _ = parse(binding.action)
            app_wide = namespace == "app" or binding.id in {action.id for action in SCOPES["app"].actions}
            places = [VlmtuiApp] if app_wide else screens if namespace == "screen" else [kind]
            assert any(hasattr(place, f"action_{name}") for place in places), f"{kind.__name__}: {binding.action}"


def test_no_two_widgets_share_a_name_and_with_it_their_styles() -> None:
    names = Counter(kind.__name__ for kind in every_class())
    assert names
    assert [name for name, count in names.items() if count > 1] == []


def test_screens_are_awaited_only_through_ask_user() -> None:
    """Textual's own `push_screen_wait` would let keys go to the screen below."""
    root = Path(vlmtui.ui.__file__).parent
    assert [file.name for file in root.rglob("*.py") if "push_screen_wait" in file.read_text()] == []


async def test_a_screen_is_asked_only_where_keys_wait_for_it() -> None:
    async with App[None]().run_test() as pilot:
        with pytest.raises(LookupError):
            await ask_user(pilot.app, Screen[None]())


# Ctrl+J belongs to the composer, and cannot be rebound.
KEY_NAME = re.compile(r"\b(F\d{1,2}|Ctrl\+(?!j\b)\w|Alt\+\w|Shift\+\w+|Esc|Del)\b", re.IGNORECASE)
PLACEHOLDER = re.compile(r"(?<!#)\{([a-z_.]+)\}")  # `#{...}` is tmux's


def sentences(file: Path) -> Iterator[str]:
    """Return the texts of a module that have several words, without docstrings."""
    tree = ast.parse(file.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def test_no_sentence_writes_a_key_that_may_be_another_one() -> None:
    """A sentence names the action instead (`with_keys`, `Remedy`), since users rebind keys."""
    root = Path(vlmtui.ui.__file__).parent.parent
    files = [*(root / "ui").rglob("*.py"), *(root / "session").rglob("*.py"), root / "errors.py"]
    places = {file: file.relative_to(root).as_posix() for file in files}
    written = [
        f"{place}: {text}"
        for file, place in places.items()
        if place != "ui/keys.py" and not place.startswith("ui/actions/")
        for text in sentences(file)
        if KEY_NAME.search(text) and " " in text
    ]
    assert written == []


def test_every_placeholder_of_a_key_is_an_action() -> None:
    root = Path(vlmtui.ui.__file__).parent
    found = {id for file in root.rglob("*.py") for text in sentences(file) for id in PLACEHOLDER.findall(text)}
    assert len(found) > 25
    assert found <= ACTIONS.keys()
    assert REMEDIES.keys() == set(Remedy)
    assert all(PLACEHOLDER.search(sentence) for sentence in REMEDIES.values())
