"""What an entry of the action table is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import msgspec
from textual.binding import Binding

UNBOUND = "unbound"
"""The name of no key: Textual's bindings and its keymap cannot leave an action without one."""
ActionMethods = Mapping[str, Callable[..., object]]
"""What runs each action, by the action's id. It takes the slash command's argument, where there is one."""


@runtime_checkable
class HasActions(Protocol):
    """A screen whose parts run its actions."""

    @property
    def actions(self) -> ActionMethods: ...


class Action(msgspec.Struct, frozen=True):
    """One thing a user can do."""

    id: str
    """Unique over the whole table and stable: users rebind by it. `scope.name`; the name alone in the chat and in the
    app."""
    title: str
    """A few words, for the footer and the palette."""
    help: str
    """One sentence: tooltip, palette help and help screen."""
    keys: str = ""
    """Default keys as in a Textual binding (`ctrl+o`, or several separated by commas); empty: no key."""
    leader: str = ""
    """The key that runs it after the leader (`c`); empty: none."""
    group: str = ""
    """The heading it stands under after the leader; empty: the scope's title."""
    verb: str = ""
    """What its keys mean, on every screen: two actions with one key have one verb. Empty: the id without its scope."""
    slash: str = ""
    """`/name`; empty: no slash command."""
    argument: str = ""
    """What the slash command takes (`PATH`); empty: nothing."""
    run: str = ""
    """The Textual action to run (`zoom(1)`); empty: the id without its scope."""
    footer: bool = False
    """In the footer by its first key; by the leader where it has no key."""
    priority: bool = False
    """Acts before the widget that has the focus sees the key."""
    moves: bool = False
    """Moves a cursor or scrolls: not worth a line in the palette."""
    system: bool = False
    """Left out of Textual's own key panel."""

    @property
    def command(self) -> str:
        """The Textual action, with its arguments."""
        return self.run or self.id.rpartition(".")[2]

    @property
    def meaning(self) -> str:
        """What its keys mean, in the whole app."""
        return self.verb or self.id.rpartition(".")[2]

    def binding(self, keys: str = "", *, command: str = "", show: bool | None = None) -> Binding:
        """The Textual binding. `keys`, `command` and `show` stand in for what the action says itself."""
        return Binding(
            keys or self.keys or UNBOUND,
            command or self.command,
            self.title,
            id=self.id,
            tooltip=self.help,
            show=self.footer if show is None else show,
            priority=self.priority,
            system=self.system,
        )


class FixedKey(msgspec.Struct, frozen=True):
    """A key that a field handles itself. Help shows it; it cannot be rebound."""

    keys: str
    """As a reader sees them (`↑ ↓`)."""
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
    modal: bool = False
    """A dialog: of the app-wide keys only those with priority act."""
    types: bool = False
    """A text field has the focus here: a plain letter is written, so it cannot be a key."""
    by_id: bool = False
    """The screen runs its actions by their ids (`HasActions`), through `action_run`."""
    footer_leads: tuple[str, ...] = ()
    """Ids of actions that this screen's footer shows behind the leader."""
