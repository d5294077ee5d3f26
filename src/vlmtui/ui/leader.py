"""Finds the actions that the leader and one more key run on the current screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from textual.actions import parse
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

from vlmtui.domain.capabilities import lack
from vlmtui.ui.actions import ACTIONS, SCOPES, Action

_APP_WIDE = frozenset(action.id for action in SCOPES["app"].actions)


class LeaderEntry(msgspec.Struct, frozen=True):
    """A key that may follow the leader, and its action."""

    action: Action
    group: str
    """Its heading in the strip."""
    command: str
    """The Textual action."""
    node: DOMNode
    """The widget, screen or app that runs it."""
    lacking: str = ""
    """Why the engine can't do it; empty if it can."""


def leader_entries(screen: Screen[Any]) -> dict[str, LeaderEntry]:
    """Return the actions available now, by key: the focused widget's first, then the screen's, then the app's."""
    found: dict[str, LeaderEntry] = {}
    first: set[str] = set()
    for node, binding in _bindings(screen):
        action = ACTIONS.get(binding.id or "")
        if action is None or not action.leader or action.leader in first:
            continue
        if action.leader in found and not binding.priority:
            continue
        if not _is_possible(screen, node, binding.action):
            continue
        if binding.priority:
            first.add(action.leader)
        group, lacking = action.group or _title(action), lacking_of(screen, action)
        found[action.leader] = LeaderEntry(action, group, binding.action, node, lacking)
    return found


def lacking_of(screen: Screen[Any], action: Action) -> str:
    """Return why the screen's engine can't do it, as a sentence; empty if it can, or if the screen has none."""
    controller = getattr(screen, "engine_controller", None)
    info = controller.info if controller is not None else None
    return next(filter(None, (lack(info, one) for one in action.needs)), "")


def _bindings(screen: Screen[Any]) -> Iterator[tuple[DOMNode, Binding]]:
    """Yield bindings from the focused widget up, also those that the widget would type. Below a dialog, only
    priority bindings."""
    below = False
    for node in (screen.focused or screen).ancestors_with_self:
        for kind in reversed(type(node).__mro__):
            for binding in vars(kind).get("BINDINGS", ()):
                if isinstance(binding, Binding) and (not below or (binding.priority and binding.id in _APP_WIDE)):
                    yield node, binding
        below = below or node.is_modal


def _is_possible(screen: Screen[Any], node: DOMNode, command: str) -> bool:
    """Return whether the node, or the one that the command names, has the action enabled."""
    named, name, parameters = parse(command)
    target = {"app": screen.app, "screen": screen}.get(named, node)
    return bool(target.check_action(name, parameters))


def _title(action: Action) -> str:
    return next(scope.title for scope in SCOPES.values() if action in scope.actions)
