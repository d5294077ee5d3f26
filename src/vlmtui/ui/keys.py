"""The keys of every action: defaults of the action table, changes in `[keys]` of `config.toml`, and leader keys.

The leader (Ctrl+X) is a key that is pressed before a letter: `Ctrl+X o`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations
from typing import Any

import msgspec
from textual import events
from textual.actions import parse
from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import REPLACED_KEYS, Keys, format_key, key_to_character
from textual.screen import Screen

from vlmtui.domain.capabilities import lack
from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.text import one_line
from vlmtui.ui.actions import ACTIONS, REMEDIES, SCOPES, UNBOUND, Action, Scope

_ALIASES = {
    "control": "ctrl",
    "esc": "escape",
    "return": "enter",
    "del": "delete",
    "ins": "insert",
    "←": "left",
    "→": "right",
    "↑": "up",
    "↓": "down",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "pgdown": "pagedown",
}
_MODIFIERS = frozenset({"ctrl", "alt", "shift", "super", "hyper", "meta"})
_NAMES = frozenset(name for key in Keys if (name := key.value.rpartition("+")[2]).isalnum() and len(name) > 1)
ARRIVES_AS = {"ctrl+i": "tab", "ctrl+m": "enter", "alt+b": "ctrl+left", "alt+f": "ctrl+right"}
"""Keys that most terminals send as another key (value)."""
_SPELLED = {
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "delete": "Del",
    "insert": "Ins",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
}
LEADER = "leader"
"""The id of the action whose key is the leader."""
_LAYOUTS = (
    ("йцукенгшщзхъфывапролдячсмитьбюіїё", "qwertyuiop[]asdfghjklzxcvbnm,.s]`"),
    ("ςερτυθιοπασδφγηξκλζχψωβνμ", "wertyuiopasdfghjklzxcvbnm"),
)
"""Letters of other keyboard layouts, and those that a Latin layout has on the same keys."""
_LATIN = {letter: latin for letters, latins in _LAYOUTS for letter, latin in zip(letters, latins, strict=True)}
_EXAMPLES = "Examples: ctrl+a, f5, alt+x, shift+up, escape."


class KeyBindings:
    """The keys of every action, and warnings about the user's settings.

    `given`: the table `[keys]`, action id → keys as a string (`ctrl+a`, `f5,alt+x`, empty for none) or a list of
    strings. An invalid entry becomes a warning, and the default stays.
    """

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.warnings: list[str] = []
        """Sentences about invalid and conflicting entries."""
        self._keys: dict[str, tuple[str, ...]] = {}
        """The keys of actions, if they differ from the defaults."""
        for id, value in _flat(given or {}):
            self._set(id, value)
        self._chosen = frozenset(self._keys)
        if self._chosen:
            for scope in SCOPES.values():
                self._resolve_conflicts(scope)
            self._remove_from_text_fields()

    def first_warnings(self, most: int) -> list[str]:
        """Return the first `most` warnings, and a line with the number of further ones."""
        more = len(self.warnings) - most
        return [*self.warnings[:most], *([f"… and {more} more, listed by `vlmtui config show`"] if more > 0 else [])]

    def of(self, id: str) -> tuple[str, ...]:
        """Return an action's keys, as Textual names them; empty if the action has no key."""
        return self._keys.get(id, default_keys(id))

    def is_chosen(self, id: str) -> bool:
        """Return whether the user gave the action its keys."""
        return id in self._chosen

    def chosen(self, *scopes: str) -> frozenset[str]:
        """Return the keys that the user assigned to actions of these scopes."""
        ids = {action.id for scope in scopes for action in SCOPES[scope].actions} & self._chosen
        return frozenset(key for id in ids for key in self.of(id))

    @property
    def keymap(self) -> dict[str, str]:
        """The argument for `App.set_keymap`. If one action of a scope has changed keys, the keymap contains all actions
        of that scope: otherwise Textual would remove a key that actions share, and move the changed action to the end
        of the footer."""
        ids: set[str] = set()
        for scope in SCOPES.values():
            on_node = {action.id for action in scope.actions}
            ids |= on_node if on_node & self._keys.keys() else set()
        return {id: ",".join(self.of(id)) or UNBOUND for id in ACTIONS if id in ids}

    def _set(self, id: str, value: object) -> None:
        if id not in ACTIONS:
            self._warn(id, f"there is no such action. {_nearest(id)}")
            return
        written = _split(value) if isinstance(value, str) else value
        if not isinstance(written, list) or not all(isinstance(key, str) for key in written):
            self._warn(id, f"expected a key or a list of keys, not {value!r}. {_EXAMPLES}")
            return
        keys: list[str] = []
        for key in written:
            found = parse_key(key) if key.strip() else None
            if found is not None:
                keys.append(found)
            elif key.strip() or len(written) > 1:
                self._warn(id, f"{key.strip()!r} is not a key. {_EXAMPLES}")
                return
        if not self._can_be_pressed(ACTIONS[id], keys):
            return
        if tuple(keys) != default_keys(id):
            self._keys[id] = tuple(dict.fromkeys(keys))

    def _can_be_pressed(self, action: Action, keys: Iterable[str]) -> bool:
        """Return whether an action can have these keys. Warn about keys that terminals send as another key, or that
        text fields insert as text."""
        scopes = [scope for scope in SCOPES.values() if action in scope.actions]
        types = any(scope.types for scope in scopes) or scopes == [SCOPES["app"]]
        for key in keys:
            if key in ARRIVES_AS:
                self._warn(action.id, f"most terminals send {spell_key(ARRIVES_AS[key])} for {spell_key(key)}.")
            if types and _is_typed(key):
                if action.priority:
                    self._warn(action.id, f"{spell_key(key)!r} could no longer be typed. Combine it with Ctrl or Alt.")
                    return False
                self._warn(action.id, f"{spell_key(key)!r} acts only while no text field has the focus.")
        return True

    def _resolve_conflicts(self, scope: Scope) -> None:
        """If the user's changes give two actions of a scope the same key, let only one keep it, preferably the one that
        the user changed. Actions that share a default key keep sharing it."""
        for one, other in combinations(scope.actions, 2):
            if set(default_keys(one.id)) & set(default_keys(other.id)):
                continue
            for key in set(self.of(one.id)) & set(self.of(other.id)):
                order = sorted((one, other), key=lambda action: (action.id not in self._chosen, not action.priority))
                winner, loser = order
                left = tuple(kept for kept in self.of(loser.id) if kept != key)
                self._keys[loser.id] = left
                rest = f"which has {' and '.join(map(spell_key, left)) or 'no key'} now"
                self._warn(
                    winner.id, f"{_in_sentence(scope.title)}, {spell_key(key)} is taken from {loser.id}, {rest}."
                )

    def _remove_from_text_fields(self) -> None:
        """If the user has given a key to an action of the chat or of the app, the editing actions of text fields lose
        that key."""
        taken = self.chosen("chat", "app")
        for action in SCOPES["editor"].actions:
            keys = self.of(action.id)
            if action.id not in self._chosen and not taken.isdisjoint(keys):
                self._keys[action.id] = tuple(key for key in keys if key not in taken)

    def _warn(self, id: str, text: str) -> None:
        self.warnings.append(f"[keys] {id}: {text}")


def default_keys(id: str) -> tuple[str, ...]:
    return tuple(filter(None, ACTIONS[id].keys.split(",")))


def parse_key(text: str) -> str | None:
    """Return Textual's name of a key that a user wrote (`Ctrl+O`, `^o`, `Esc`, `?`); None if it is unknown."""
    text = text.strip()
    if len(text) > 1 and text.startswith("^"):
        text = f"ctrl+{text[1:]}"
    *modifiers, name = ["+"] if text == "+" else text.split("+")
    modifiers = [_ALIASES.get(one.strip().lower(), one.strip().lower()) for one in modifiers]
    name = name.strip()
    if len(name) > 1 or modifiers or name in _ALIASES:
        name = _ALIASES.get(name.lower(), name.lower())
    is_key = name in _NAMES or (len(name) == 1 and name.isprintable()) or _character(name) is not None
    if not is_key or not _MODIFIERS.issuperset(modifiers) or (modifiers == ["shift"] and len(name) == 1):
        return None
    if len(name) == 1 and (modifiers, name) != (["ctrl"], "@"):  # Textual calls this key ctrl+@
        name = "comma" if name == "," else next(iter(Binding.make_bindings([(name, "")]))).key
    return "+".join([*modifiers, name])


def latin_key(event: events.Key) -> events.Key:
    """Return the key that a Latin keyboard layout has in the place of a Cyrillic or Greek letter (`с`, `ctrl+с`); any
    other key as it is."""
    modifiers, plus, letter = event.key.rpartition("+")
    latin = _LATIN.get(letter.lower())
    if latin is None:
        return event
    latin = latin.upper() if letter.isupper() else latin
    return events.Key(f"{modifiers}{plus}{parse_key(latin)}", None if modifiers else latin)


def key_bindings(app: App[Any]) -> KeyBindings:
    """Return the app's `key_bindings`; the defaults for an app without them."""
    found = getattr(app, "key_bindings", None)
    return found if isinstance(found, KeyBindings) else KeyBindings()


def shown_keys(app: App[Any], action: Action, most: int = 1) -> str:
    """Return at most `most` ways to run an action by keys (`Ctrl+O, Ctrl+X o`); empty if there is none."""
    return ", ".join(ways(app, action)[:most])


def ways(app: App[Any], action: Action) -> list[str]:
    """Return the ways to run an action by keys: first those of its own keys that work in every terminal or that the
    user chose, then its leader key, its other keys, and last those that a focused text field would insert as text."""
    bound = key_bindings(app)
    typed = [key for key in bound.of(action.id) if _is_typed(key) and _types(action)]
    own = [key for key in bound.of(action.id) if key not in typed]
    safe = [key for key in own if is_safe(key) or bound.is_chosen(action.id)]
    unsafe = [key for key in own if key not in safe]
    return [*map(spell_key, safe), *led(app, action), *map(spell_key, [*unsafe, *typed])]


def led(app: App[Any], action: Action) -> list[str]:
    """Return how to run an action with the leader key: all keys, as `["Ctrl+X o"]`; an empty list if the action has no
    leader key."""
    leaders = key_bindings(app).of(LEADER)
    return [f"{spell_key(leaders[0])} {spell_path(action.leader)}"] if action.leader and leaders else []


def prefers_leader(app: App[Any], action: Action) -> bool:
    """Return whether the first of the `ways` to run an action is its leader key."""
    return ways(app, action)[:1] == led(app, action) != []


def key_of(app: App[Any], id: str) -> str:
    """Return how a sentence names an action: its first key (`Ctrl+O`), or else its slash command or title."""
    found = ways(app, ACTIONS[id])
    return found[0] if found else ACTIONS[id].slash or f"“{ACTIONS[id].title}”"


def short_keys(app: App[Any], *ids: str) -> str:
    """Return the first key of each action that has keys, such as `← →`."""
    bound = key_bindings(app)
    return " ".join(spell_key(bound.of(id)[0]) for id in ids if bound.of(id))


def with_keys(app: App[Any], text: str) -> str:
    """Replace each `{id}` in a sentence by the key, slash command or title of that action."""
    return re.sub(r"\{([a-z_.]+)\}", lambda found: key_of(app, found[1]), text)


def hint(app: App[Any], *ids: str) -> str:
    """Return keys and titles of actions: `Ctrl+S Apply · Esc Cancel`. The leader stands only before the first key that
    follows it: `Ctrl+X . Fix · Enter Use answer`."""
    shown: list[str] = []
    is_led = False
    for action in map(ACTIONS.__getitem__, ids):
        leads = prefers_leader(app, action)
        shown.append(f"{spell_path(action.leader) if leads and is_led else key_of(app, action.id)} {action.title}")
        is_led = leads
    return " · ".join(shown)


def with_remedy(app: App[Any], text: str, remedy: Remedy | None) -> str:
    """Append a sentence to a text that says what the user can do, and with which key. If `remedy` is None, return the
    text."""
    return f"{text} {with_keys(app, REMEDIES[remedy])}" if remedy is not None else text


def error_text(app: App[Any], error: VlmtuiError) -> str:
    """Return an error's message and hint on one line, followed by the sentence of its remedy, if it has one."""
    return with_remedy(app, one_line(str(error)), error.remedy)


@cache
def spell_key(key: str) -> str:
    """Return a key as written in a sentence: `Ctrl+O`, `Esc`, `F5`, `?`."""
    *modifiers, name = key.split("+")
    shown = _SPELLED.get(name) or (name if len(name) > 1 and name in _NAMES else format_key(name))
    if modifiers or len(shown) > 1:
        shown = shown[:1].upper() + shown[1:]
    return "+".join([*(one.capitalize() for one in modifiers), shown])


def spell_path(path: str) -> str:
    """Return keys that are pressed one after the other as written in a sentence: `p v`."""
    return " ".join(map(spell_key, path.split()))


def is_safe(key: str) -> bool:
    """Return whether a key arrives in every terminal: some take function keys and Alt combinations for themselves."""
    return not re.fullmatch(r"alt\+.*|f\d+", key)


def _types(action: Action) -> bool:
    """Return whether the action is for a place where a text field has the focus, so that plain letters are typed."""
    return any(scope.types for scope in SCOPES.values() if action in scope.actions)


def _flat(given: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the entries of `[keys]` with dotted ids: TOML parses `viewer.zoom_in = …` as a nested table."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _nearest(id: str) -> str:
    by_name = {known.rpartition(".")[2]: known for known in ACTIONS}
    close = difflib.get_close_matches(id, ACTIONS, n=1) or difflib.get_close_matches(id, by_name, n=1)
    return f"Did you mean {by_name.get(close[0], close[0])!r}?" if close else "docs/keys.md lists them."


def _split(keys: str) -> list[str]:
    return [keys] if keys.strip() == "," else keys.split(",")


@cache
def _is_typed(key: str) -> bool:
    """Return whether a text field would insert the key as a character."""
    character = _character(key)
    return character is not None and character.isprintable()


def _character(key: str) -> str | None:
    return key_to_character(REPLACED_KEYS.get(key, key))


def _in_sentence(title: str) -> str:
    """Return a heading with a small first letter, for use within a sentence."""
    return title[:1].lower() + title[1:]


_APP_WIDE = frozenset(action.id for action in SCOPES["app"].actions)
_RANKS = {id: number for number, id in enumerate(ACTIONS)}


class LeaderEntry(msgspec.Struct, frozen=True):
    """An action that a leader key runs."""

    action: Action
    command: str
    """The Textual action to run."""
    node: DOMNode
    """The widget, screen or app that runs it."""
    lacking: str = ""
    """Why the engine can't do it; empty if it can."""

    @property
    def _place(self) -> tuple[bool, bool, bool, int]:
        scope = self.action.id.partition(".")[0]
        return self.action.id == "help", self.action.id in _APP_WIDE, scope == "editor", _RANKS[self.action.id]


def leader_entries(screen: Screen[Any]) -> dict[str, LeaderEntry]:
    """Return the actions that leader keys run now, by their keys after the leader (`c`, `p v`): the screen's in the
    order of the table, then those of text fields and of the app. If several have the same key, the focused widget's
    action comes before the screen's, and the screen's before the app's."""
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
        found[action.leader] = LeaderEntry(action, binding.action, node, lacking_of(screen, action))
    return dict(sorted(found.items(), key=lambda item: item[1]._place))


def lacking_of(screen: Screen[Any], action: Action) -> str:
    """Return a sentence about what the screen's engine can't do but the action needs; empty if the engine can do all of
    it, or if there is no engine."""
    controller = getattr(screen, "engines", None)
    info = controller.info if controller is not None else None
    return next(filter(None, (lack(info, one) for one in action.needs)), "")


def _bindings(screen: Screen[Any]) -> Iterator[tuple[DOMNode, Binding]]:
    """Yield bindings, each with its node (a widget, a screen or the app), from the focused widget up to the app. If a
    dialog is open, only the app's priority bindings follow those of the dialog."""
    below = False
    for node in (screen.focused or screen).ancestors_with_self:
        for kind in reversed(type(node).__mro__):
            for binding in vars(kind).get("BINDINGS", ()):
                if isinstance(binding, Binding) and (not below or (binding.priority and binding.id in _APP_WIDE)):
                    yield node, binding
        below = below or node.is_modal


def _is_possible(screen: Screen[Any], node: DOMNode, command: str) -> bool:
    """Return whether an action can run now. `command`: the Textual action, which may name its target (`app.…`,
    `screen.…`); otherwise the target is `node`."""
    named, name, parameters = parse(command)
    target = {"app": screen.app, "screen": screen}.get(named, node)
    return bool(target.check_action(name, parameters))
