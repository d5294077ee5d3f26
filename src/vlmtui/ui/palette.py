"""The entries of the command palette: actions, and the two themes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual.actions import parse
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.screen import Screen

from vlmtui.ui.actions import SCOPES, Action, method_of
from vlmtui.ui.keys import shown_keys
from vlmtui.ui.terminal.themes import DARK, LIGHT

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp

_KEYS_ONLY = ("leader", "interrupt", "command_palette")
"""Actions of the app that make sense only as keys."""


def available_actions(screen: Screen[Any]) -> Iterator[Action]:
    """Yield the actions that a screen offers now, then the app's."""
    scope = SCOPES.get(getattr(screen, "SCOPE", ""))
    for action in scope.actions if scope else ():
        _, name, parameters = parse(action.command)
        check = ("run", (action.id,)) if scope and scope.by_id else (name, parameters)
        if not action.moves and method_of(screen, name) is not None and screen.check_action(*check):
            yield action
    for action in SCOPES["app"].actions:
        if action.id not in _KEYS_ONLY:
            yield action


class ActionCommands(Provider):
    """Textual's provider of the palette: every available action with its key, then the themes."""

    async def discover(self) -> Hits:
        for command in self._commands():
            yield command

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for one in self._commands():
            score = matcher.match(f"{one.display} {one.help}")
            if score > 0:
                yield Hit(score, matcher.highlight(f"{one.display}"), one.command, text=one.text, help=one.help)

    def _commands(self) -> Iterator[DiscoveryHit]:
        app = cast("VlmtuiApp", self.app)
        for action in available_actions(self.screen):
            key = shown_keys(self.app, action)
            help = f"{action.help}  ({key})" if key else action.help
            yield DiscoveryHit(action.title, partial(app.run_action_id, action.id), help=help)
        for theme, title in ((DARK, "Dark theme"), (LIGHT, "Light theme")):
            yield DiscoveryHit(title, partial(setattr, app, "theme", theme.name), help="Switch the colour theme.")
