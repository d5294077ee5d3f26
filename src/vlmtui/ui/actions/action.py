"""The types of the action table: an action, a key that can't be rebound, and a scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr, replace

from vlmtui.domain.capabilities import Capability

if TYPE_CHECKING:
    from textual.binding import Binding

UNBOUND = "unbound"
"""The key of an action without one: Textual's bindings and keymap need a name."""
SUBMENUS = {"a": "Attach", "p": "Image", "b": "Branch", "t": "Text", "g": "Engine"}
"""Keys that open a further row of keys after the leader key, and its title."""


def method_of(screen: object, name: str) -> Callable[..., object] | None:
    """Return the method `action_NAME` of a screen or of one of its `parts`; None if there is none."""
    owners = (screen, *getattr(screen, "parts", ()))
    return next((getattr(owner, f"action_{name}") for owner in owners if hasattr(owner, f"action_{name}")), None)


class Action(msgspec.Struct, frozen=True):
    """Something that a user can do, by a key, the palette or a slash command."""

    id: str
    """Unique and stable, since users rebind keys by it. A scope puts its name before it: `viewer.close`."""
    title: str
    """A few words, for the footer and the palette."""
    help: str
    """One sentence: tooltip, palette help and help screen."""
    keys: str = ""
    """Default keys as in a Textual binding (`ctrl+o`, or several separated by commas); empty: no key."""
    leader: str = ""
    """The keys that run it after the leader key, Ctrl+X: one (`c`), or one of `SUBMENUS` and another (`p v`); empty:
    none."""
    usage: str = ""
    """Its slash command, with the name of an argument (`/attach PATH`); empty: none."""
    run: str = ""
    """The Textual action to run (`zoom(1)`); empty: the id without its scope."""
    footer: bool = False
    """True if the footer shows the action, with the first of its `ways` (`vlmtui.ui.keys`)."""
    priority: bool = False
    """True if the action runs before the focused widget sees the key."""
    moves: bool = False
    """True if the action moves a cursor or scrolls; the palette does not list it."""
    needs: tuple[Capability, ...] = ()
    """Capabilities that the engine needs. If one is missing, footer and leader strip dim the action, and running it
    says why."""

    @property
    def name(self) -> str:
        """The id without its scope."""
        return self.id.rpartition(".")[2]

    @property
    def command(self) -> str:
        """The Textual action to run, with its arguments."""
        return self.run or self.name

    @property
    def slash(self) -> str:
        """The action's slash command (`/attach`); empty: none."""
        return self.usage.partition(" ")[0]

    @property
    def argument(self) -> str:
        """The word for the argument of the slash command (`PATH`); empty: it takes none."""
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
    """A key that a widget handles itself. The help shows it; it can't be rebound."""

    keys: str
    """The keys as the help shows them (`↑ ↓`)."""
    help: str


class Scope(msgspec.Struct, frozen=True):
    """The actions of one screen, of one widget or of the app, in the order of the footer."""

    name: str
    title: str
    """The heading in the help."""
    actions: tuple[Action, ...] = ()
    fixed: tuple[FixedKey, ...] = ()
    within: str = ""
    """The scope of the screen that a widget's scope belongs to; empty for a screen and for the app."""
    types: bool = False
    """True if a text field has the focus: then plain letters are typed, and can't be keys."""
    by_id: bool = False
    """True if the screen's bindings run `action_run(ID)`, which finds the method with `method_of`."""
    footer_leads: tuple[str, ...] = ()
    """Ids of actions that this screen's footer shows with their leader keys."""

    def __post_init__(self) -> None:
        """Put the scope's name before the ids of its actions, except in the chat and the app."""
        if self.name not in ("chat", "app"):
            own = (
                action if "." in action.id else replace(action, id=f"{self.name}.{action.id}")
                for action in self.actions
            )
            force_setattr(self, "actions", tuple(own))


_ARROWS = {"up": "up", "down": "down", "page_up": "pageup", "page_down": "pagedown"}


def row_moves(thing: str, keys: Mapping[str, str], *, run: str = "move", priority: bool = False) -> tuple[Action, ...]:
    """Return the actions that move the highlight of a list.

    `thing`: the word for a row in the help. `keys`: the keys for `first` and `last`, and for other directions if they
    differ from the arrow and page keys. `run`: the name of the Textual action, which gets the direction as its
    argument.
    """
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
        Action(way, title, help, keys[way], run=f"{run}('{way}')", priority=priority, moves=True)
        for way, (title, help) in rows.items()
        if way in keys
    )
