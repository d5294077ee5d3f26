"""The line of keys at the bottom of a screen."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

from vlmtui.ui.actions import ACTIONS, SCOPES, UNBOUND
from vlmtui.ui.keys import LEADER, key_bindings, spell_key
from vlmtui.ui.leader import leader_entries

_AROUND_KEY, _AROUND_TEXT = 2, 1
"""Cells around a key and after its description."""
_ALWAYS = ("help", "command_palette")
"""Actions shown at the end, at every width."""
_RANKS = {id: number for number, id in enumerate(ACTIONS)}
"""The order of the other actions, whatever has the focus."""


class FooterItem(msgspec.Struct, frozen=True):
    """A key and its description."""

    id: str
    key: str
    """The key as Textual names it; a click presses it."""
    shown: str
    title: str
    tooltip: str = ""
    enabled: bool = True
    is_led: bool = False
    """Whether it goes by the leader, and `key` is the letter after that."""

    @property
    def width(self) -> int:
        return len(self.shown) + _AROUND_KEY + (len(self.title) + _AROUND_TEXT if self.title else 0)


class LedKey(FooterKey):
    """What goes by the leader: a click does it, without the strip."""

    async def _on_mouse_down(self, event: events.MouseDown) -> None:
        event.prevent_default()  # it would press the letter
        entry = leader_entries(self.screen).get(self.key)
        if entry is not None:
            await self.app.run_action(entry.command, entry.node)


class FooterBar(Footer):
    """Textual's footer, limited to what fits: actions that stop or leave first, then the focused widget's letters, then
    the leader's actions named by the screen, then actions with a key of their own, then the rest. It is rebuilt only
    when its content changes: Textual asks for that after every typed key."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._said: object = None

    def compose(self) -> ComposeResult:
        """Compose all items that fit, without actions that the user has left without a key.

        Textual's own footer binds each key to its `compact`, which computes the key's styles once more.
        """
        if not self._bindings_ready:
            return
        for item in self._items():
            kind = LedKey if item.is_led else FooterKey
            key = kind(item.key, item.shown, item.title, item.id, disabled=not item.enabled, tooltip=item.tooltip)
            key.set_reactive(FooterKey.compact, False)
            yield key

    def bindings_changed(self, screen: Screen[object]) -> None:
        self._bindings_ready = True
        if screen.app.app_focus and self.is_attached and screen is self.screen:
            self.call_after_refresh(self._say)

    async def on_resize(self, event: events.Resize) -> None:
        await self._say()

    async def _say(self) -> None:
        if not self.is_attached or self._pruning or not self._bindings_ready:  # the screen was closed meanwhile
            return
        says = self._items()
        if says != self._said:
            self._said = says
            await self.recompose()

    def _items(self) -> list[FooterItem]:
        """Return the items from left to right."""
        keyed = self._keyed()
        led = self._led()
        last = [item for item in keyed if item.id in _ALWAYS]
        leader = [item for item in keyed if item.id == LEADER]
        own_ids = self._own_ids()
        first = sorted(
            [item for item in keyed if item not in last and item not in leader],
            key=lambda item: (item.id not in own_ids, _RANKS.get(item.id, len(_RANKS))),
        )
        room = self.app.size.width - sum(item.width for item in last)
        urgent = [item for item in first if _leaves(item)]
        own = [item for item in first if item not in urgent and item.id in own_ids]
        rest = [item for item in first if item not in urgent and item not in own]
        named = [item for item in led if item.id in self._named()]
        others = [item for item in led if item not in named]
        bare = [msgspec.structs.replace(item, title="") for item in leader]
        before, behind = (bare, []) if named else ([], bare)
        fits = _fitting([*urgent, *own, *before, *named, *rest, *behind, *others], room)
        if any(item in fits for item in led):
            leader = bare
        else:
            fits = _fitting([*urgent, *own, *rest, *leader], room)
        return [item for item in (*first, *leader, *led, *last) if item in fits or item in last]

    def _own_ids(self) -> set[str]:
        """Return the ids of the focused widget's actions, if its keys are letters."""
        scope = SCOPES.get(getattr(self.screen.focused, "SCOPE", ""))
        return {action.id for action in scope.actions} if scope and not scope.types else set()

    def _keyed(self) -> list[FooterItem]:
        """Return the items whose key works now."""
        found: dict[str, FooterItem] = {}
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if not binding.show or binding.key == UNBOUND or binding.action in found:
                continue
            shown = self.app.get_key_display(binding)
            found[binding.action] = FooterItem(
                binding.id or binding.action, binding.key, shown, binding.description, tooltip, enabled
            )
        return list(found.values())

    def _named(self) -> tuple[str, ...]:
        """The actions that the screen wants shown with their key behind the leader."""
        scope = SCOPES.get(getattr(self.screen, "SCOPE", ""))
        return scope.footer_leads if scope else ()

    def _led(self) -> list[FooterItem]:
        """Return the leader's items: those that the screen names, and those without another key here."""
        leaders = key_bindings(self.app).of(LEADER)
        if not leaders:
            return []
        named = self._named()
        hidden = getattr(self.screen, "not_in_footer", ())
        keyed = {item.id for item in self._keyed()}
        meant = {ACTIONS[id].meaning for id in keyed & self._own_ids()}
        found = [
            FooterItem(entry.action.id, key, spell_key(key), entry.action.title, entry.action.help, is_led=True)
            for key, entry in leader_entries(self.screen).items()
            if (entry.action.id in named or (entry.action.footer and entry.action.id not in keyed))
            and entry.action.meaning not in meant
        ]
        order = [*named, *ACTIONS]
        return sorted((item for item in found if item.id not in hidden), key=lambda item: order.index(item.id))


def _leaves(item: FooterItem) -> bool:
    action = ACTIONS.get(item.id)
    return action is not None and action.meaning == "back"


def _fitting(items: Sequence[FooterItem], room: int) -> list[FooterItem]:
    """Return the items that fit into `room` cells, first ones first."""
    found: list[FooterItem] = []
    for item in items:
        if item.width <= room:
            found.append(item)
            room -= item.width
    return found
