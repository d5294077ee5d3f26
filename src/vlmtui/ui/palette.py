"""The command palette's commands: the action table, and the themes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec
from textual.actions import parse
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen
from textual.types import IgnoreReturnCallbackType

from vlmtui.ui.actions import SCOPES, Action, method_of
from vlmtui.ui.keys import shown_keys
from vlmtui.ui.terminal.themes import DARK, LIGHT

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp

_OF_KEYS = ("leader", "interrupt", "command_palette")
"""App-wide actions that are of use by their keys only."""


class Command(msgspec.Struct, frozen=True):
    """One command of the palette."""

    title: str
    help: str
    run: IgnoreReturnCallbackType


def available_actions(screen: Screen[object]) -> Iterator[Action]:
    """Yield the actions available on a screen: its own, then the app's."""
    scope = SCOPES.get(getattr(screen, "SCOPE", ""))
    for action in scope.actions if scope else ():
        if not action.moves and _has(screen, action):
            yield action
    for action in SCOPES["app"].actions:
        if action.id not in _OF_KEYS:
            yield action


def _has(screen: Screen[object], action: Action) -> bool:
    _, name, parameters = parse(action.command)
    return method_of(screen, name) is not None and bool(screen.check_action(name, parameters))


class ActionCommands(Provider):
    """Every action that the screen offers, with its key; then the themes."""

    async def discover(self) -> Hits:
        for command in self._commands():
            yield DiscoveryHit(command.title, command.run, help=command.help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self._commands():
            score = matcher.match(f"{command.title} {command.help}")
            if score > 0:
                yield Hit(score, matcher.highlight(command.title), command.run, text=command.title, help=command.help)

    def _commands(self) -> Iterator[Command]:
        app = cast("VlmtuiApp", self.app)
        for action in available_actions(self.screen):
            key = shown_keys(self.app, action)
            yield Command(
                action.title,
                f"{action.help}  ({key})" if key else action.help,
                partial(app.run_action_id, action.id),
            )
        for theme, title in ((DARK, "Dark theme"), (LIGHT, "Light theme")):
            yield Command(title, "Switch the colour theme.", partial(setattr, app, "theme", theme.name))
