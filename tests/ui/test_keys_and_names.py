"""What only a real terminal, or two screens after another, would show: keys that never arrive, styles that collide."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.binding import Binding
from textual.dom import DOMNode

import vlmtui.ui
from vlmtui.ui.orderly import OPENING


def every_binding() -> Iterator[tuple[str, Binding]]:
    for module in pkgutil.walk_packages(vlmtui.ui.__path__, "vlmtui.ui."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and issubclass(value, DOMNode) and value.__module__ == module.name:
                for binding in value.__dict__.get("BINDINGS", ()):
                    assert isinstance(binding, Binding), f"{name}: {binding}"
                    yield name, binding


def arrives_as(written: str) -> list[str]:
    """The keys that a terminal of the usual kind brings with these characters."""
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


def test_no_two_widgets_share_a_name_and_with_it_their_styles() -> None:
    names: Counter[str] = Counter()
    for part in ("widgets", "screens"):
        for path in (Path(vlmtui.ui.__path__[0]) / part).rglob("*.py"):
            names.update(node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))
    assert names
    assert [name for name, count in names.items() if count > 1] == []


def test_keys_know_of_every_screen_that_is_being_prepared() -> None:
    found = 0
    for file in Path(vlmtui.ui.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.AsyncFunctionDef) and "push_screen_wait(" in ast.unparse(node):
                for decorator in map(ast.unparse, node.decorator_list):
                    found += 1
                    assert f"group={OPENING!r}" in decorator, f"{file.name}: {node.name} {decorator}"
    assert found > 10
