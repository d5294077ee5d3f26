"""The entries of the action table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.capabilities import Capability

if TYPE_CHECKING:
    from textual.binding import Binding

UNBOUND = "unbound"
"""Stands for "no key": Textual's bindings and keymap need a name."""


def method_of(screen: object, name: str) -> Callable[..., object] | None:
    """Return the method `action_NAME` of a screen or of one of its `parts`; None: none has it."""
    owners = (screen, *getattr(screen, "parts", ()))
    return next((getattr(owner, f"action_{name}") for owner in owners if hasattr(owner, f"action_{name}")), None)


class Action(msgspec.Struct, frozen=True):
    """One thing a user can do."""

    id: str
    """Unique in the whole table and stable: users rebind by it. `scope.name`; in the chat and the app only the name."""
    title: str
    """A few words, for the footer and the palette."""
    help: str
    """One sentence: tooltip, palette help and help screen."""
    keys: str = ""
    """Default keys as in a Textual binding (`ctrl+o`, or several separated by commas); empty: no key."""
    leader: str = ""
    """The key that runs it after the leader (`c`); empty: none."""
    usage: str = ""
    """Its slash command, with the name of an argument (`/attach PATH`); empty: none."""
    run: str = ""
    """The Textual action to run (`zoom(1)`); empty: the id without its scope."""
    footer: bool = False
    """True if the footer shows the action, with its first key, or with the leader if it has no key."""
    priority: bool = False
    """True if the action runs before the focused widget sees the key."""
    moves: bool = False
    """True if the action moves a cursor or scrolls. The palette leaves those out."""
    needs: tuple[Capability, ...] = ()
    """The capabilities that an engine needs for the action. If one is missing, footer and leader strip dim the action,
    and running it says why."""

    @property
    def name(self) -> str:
        """The id without its scope."""
        return self.id.rpartition(".")[2]

    @property
    def command(self) -> str:
        """The Textual action, with its arguments."""
        return self.run or self.name

    @property
    def slash(self) -> str:
        """Its slash command (`/attach`); empty: none."""
        return self.usage.partition(" ")[0]

    @property
    def argument(self) -> str:
        """The slash command's argument (`PATH`); empty: none."""
        return self.usage.partition(" ")[2]

    def binding(self, *, command: str = "") -> Binding:
        """Return the Textual binding. `command` overrides the action's own."""
        from textual.binding import Binding  # plain mode has the table, but not Textual

        return Binding(
            self.keys or UNBOUND,
            command or self.command,
            self.title,
            id=self.id,
            tooltip=self.help,
            show=self.footer,
            priority=self.priority,
        )


class FixedKey(msgspec.Struct, frozen=True):
    """A key that a field handles itself. Help shows it; it cannot be rebound."""

    keys: str
    """The keys as people read them (`↑ ↓`)."""
    help: str


class Scope(msgspec.Struct, frozen=True):
    """The actions of one screen or widget, in the order of its footer."""

    name: str
    title: str
    """The heading in the help."""
    actions: tuple[Action, ...] = ()
    fixed: tuple[FixedKey, ...] = ()
    within: str = ""
    """The scope of the screen that a widget's scope belongs to; empty for a screen and for the app."""
    types: bool = False
    """True where a text field has the focus: plain letters go into the text, so they can't be keys."""
    by_id: bool = False
    """True if the screen's parts run its actions, through `action_run` and `method_of`."""
    groups: Mapping[str, str] = {}
    """The strip of leader keys: the keys under each heading (`c i f`). The others stand under the scope's title."""
    footer_leads: tuple[str, ...] = ()
    """Ids of actions that this screen's footer shows after the leader."""


_ARROWS = {"up": "up", "down": "down", "page_up": "pageup", "page_down": "pagedown"}


def row_moves(
    scope: str, thing: str, keys: Mapping[str, str], *, run: str = "move", priority: bool = False
) -> tuple[Action, ...]:
    """Return the actions that move the highlight of a list. `thing`: the name of a row; `keys`: the keys that differ
    from the arrows and page keys, and those of `first` and `last`; `run`: the Textual action, given the direction."""
    rows = {
        "up": ("Up", f"The {thing} above."),
        "down": ("Down", f"The {thing} below."),
        "page_up": ("A page up", "A page up."),
        "page_down": ("A page down", "A page down."),
        "first": ("First", f"The first {thing}."),
        "last": ("Last", f"The last {thing}."),
    }
    keys = {**_ARROWS, **keys}
    return tuple(
        Action(f"{scope}.{way}", title, help, keys[way], run=f"{run}('{way}')", priority=priority, moves=True)
        for way, (title, help) in rows.items()
        if way in keys
    )
