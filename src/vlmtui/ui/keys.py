"""The keys in force: the action table's defaults, changed by `[keys]` of `config.toml`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

from textual.app import App
from textual.keys import REPLACED_KEYS, Keys, format_key, key_to_character

from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.text import one_line
from vlmtui.ui.actions import ACTIONS, SCOPES, UNBOUND, Action, Scope

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
"""What most terminals send for a key."""
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
"""The id of the action whose key goes before the letter of another one."""
FORMER_IDS = {"comparison.logprobs_too": "comparison.logprobs"}
"""What actions were called in `[keys]` before, and what they are called now."""
_NAMED_AT_MOST = 3
_REMEDIES: dict[Remedy, str] = {
    Remedy.PICK_MODEL: "{models} picks a model.",
    Remedy.RESTART_ENGINE: "{restart_engine} restarts it.",
    Remedy.STOP_ANSWER: "{stop} stops it.",
    Remedy.MAKE_BRANCH: "{regenerate} and {edit} make one.",
    Remedy.EDIT_EARLIER: "{edit} goes back to an earlier one.",
    Remedy.SHRINK_MESSAGE: "{smaller} smaller images · {fewer_frames} fewer frames · "
    "{leave_out_oldest} leaves the oldest attachments out",
    Remedy.LEAVE_OUT_OLDEST: "{leave_out_oldest} leaves out the oldest.",
    Remedy.SEND_AGAIN: "{take_in_again} undoes it.",
    Remedy.ATTACH_FILE: "{attach} attaches a file.",
    Remedy.ATTACH_INBOX: "{inbox} attaches.",
    Remedy.START_CHAT: "{conversation_list.new} begins a new one; then it can be deleted.",
    Remedy.UNDO_DELETE: "{conversation_list.undo} brings it back.",
    Remedy.FILL_RAW_PROMPT: "{comparison.fill} fills it.",
    Remedy.APPLY_FIX: "{comparison.fix} does it.",
    Remedy.STOP_COMPARISON: "{comparison.leave} stops them.",
    Remedy.SHOW_DIFFERENCE: "{sides.next_view} shows the difference, and makes it.",
    Remedy.STOP_FAN_OUT: "{answers.leave} stops them.",
}
_EXAMPLES = "Examples: ctrl+a, f5, alt+x, shift+up, escape."


class KeyBindings:
    """The keys of every action, and what is wrong with those that the user has set.

    `given` is the `[keys]` table: an action's id, and its keys as a string (`ctrl+a`, `f5,alt+x`, empty for none) or a
    list of strings. What is wrong becomes a warning, and the defaults stay.
    """

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        self.warnings: list[str] = []
        """Sentences for the user."""
        self._keys: dict[str, tuple[str, ...]] = {}
        """Only of the actions that have other keys than by default."""
        for id, value in _flat(given or {}):
            self._set(id, value)
        self._chosen = frozenset(self._keys)
        if self._chosen:
            for scope in SCOPES.values():
                self._settle(scope)
            for action in SCOPES["app"].actions:
                self._tell_of_app_key(action)

    def first_warnings(self, most: int) -> list[str]:
        """So many of the warnings, and how many more there are."""
        more = len(self.warnings) - most
        return [*self.warnings[:most], *([f"… and {more} more, which `vlmtui config show` tells"] if more > 0 else [])]

    def of(self, id: str) -> tuple[str, ...]:
        """The keys of an action, as Textual names them; none where it has no key."""
        return self._keys.get(id, default_keys(id))

    def chosen(self, *scopes: str) -> frozenset[str]:
        """The keys that the user gave to actions of these scopes."""
        ids = {action.id for scope in scopes for action in SCOPES[scope].actions} & self._chosen
        return frozenset(key for id in ids for key in self.of(id))

    @property
    def keymap(self) -> dict[str, str]:
        """For `App.set_keymap`. Where one action of a node gets another key, all of the node's actions are named: else
        Textual takes its old key from those that share it, and puts it behind the others in the footer."""
        ids: set[str] = set()
        for scope in SCOPES.values():
            on_node = {action.id for action in scope.actions}
            ids |= on_node if on_node & self._keys.keys() else set()
        return {id: ",".join(self.of(id)) or UNBOUND for id in ACTIONS if id in ids}

    def _set(self, id: str, value: object) -> None:
        if id in FORMER_IDS:
            self._warn(id, f"it is called {FORMER_IDS[id]} now.")
            id = FORMER_IDS[id]
        if id not in ACTIONS:
            self._warn(id, f"there is no such action. {_nearest(id)}")
            return
        written = _split(value) if isinstance(value, str) else value
        if not isinstance(written, list) or not all(isinstance(key, str) for key in written):
            self._warn(id, f"a key or a list of keys is expected, not {value!r}. {_EXAMPLES}")
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
        """Whether an action can have these keys; warns where one of them does not arrive, or only sometimes."""
        scopes = [scope for scope in SCOPES.values() if action in scope.actions]
        types = any(scope.types for scope in scopes) or scopes == [SCOPES["app"]]
        for key in keys:
            if key in ARRIVES_AS:
                self._warn(action.id, f"most terminals send {spell_key(ARRIVES_AS[key])} for {spell_key(key)}.")
            if types and _is_typed(key):
                if action.priority:
                    self._warn(action.id, f"{spell_key(key)!r} could not be typed any more. Use it with Ctrl or Alt.")
                    return False
                self._warn(action.id, f"{spell_key(key)!r} acts only while no text field has the focus.")
        return True

    def _settle(self, scope: Scope) -> None:
        """Let each key of a scope have one action, unless they share one by default: what the user chose wins."""
        for one, other in combinations(scope.actions, 2):
            if set(default_keys(one.id)) & set(default_keys(other.id)):
                continue
            for key in set(self.of(one.id)) & set(self.of(other.id)):
                order = sorted((one, other), key=lambda action: (action.id not in self._chosen, not action.priority))
                winner, loser = order
                left = tuple(kept for kept in self.of(loser.id) if kept != key)
                self._keys[loser.id] = left
                rest = f"which has {' and '.join(map(spell_key, left)) or 'no key'} now"
                self._warn(winner.id, f"{_lower(scope.title)}, {spell_key(key)} is taken from {loser.id}, {rest}.")

    def _tell_of_app_key(self, action: Action) -> None:
        """Warn where a key that the user chose means one thing on a screen and another one app-wide."""
        for key in self.of(action.id):
            others = [
                f"{other.id} {_lower(scope.title)}"
                for scope, other in _on_screens()
                if {action.id, other.id} & self._chosen
                and key in self.of(other.id)
                and not set(default_keys(action.id)) & set(default_keys(other.id))
                and (action.priority or not scope.modal)
            ]
            if others and action.priority:
                self._warn(action.id, f"{spell_key(key)} runs it instead of {_some(others)}.")
            elif others:
                self._warn(action.id, f"{spell_key(key)} runs {_some(others)} instead.")

    def _warn(self, id: str, text: str) -> None:
        self.warnings.append(f"[keys] {id}: {text}")


def default_keys(id: str) -> tuple[str, ...]:
    """The table's keys of an action."""
    return tuple(filter(None, ACTIONS[id].keys.split(",")))


def parse_key(text: str) -> str | None:
    """A key as Textual names it (`Ctrl+O`, `^o`, `Esc`, `?`), or None where there is no such key."""
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
    if len(name) == 1 and (modifiers, name) != (["ctrl"], "@"):  # which is what Textual calls it
        name = "comma" if name == "," else App._normalize_keymap({"": name})[""]
    return "+".join([*modifiers, name])


def key_bindings(app: App[Any]) -> KeyBindings:
    """The keys in force in an app; the defaults where it has none of its own."""
    found = getattr(app, "key_bindings", None)
    return found if isinstance(found, KeyBindings) else KeyBindings()


def shown_keys(app: App[Any], action: Action, most: int = 1) -> str:
    """The first of the ways to run an action by keys (`Ctrl+O`, `Ctrl+X o`); empty where there is none."""
    return ", ".join(ways(app, action)[:most])


def ways(app: App[Any], action: Action) -> list[str]:
    """The ways to run an action by keys: its own, then by the leader. A key that a text field of the screen would
    write comes last."""
    bound = key_bindings(app)
    typed = [key for key in bound.of(action.id) if _is_typed(key) and _types(action)]
    keys = [spell_key(key) for key in bound.of(action.id) if key not in typed]
    return [*keys, *led(app, action), *map(spell_key, typed)]


def led(app: App[Any], action: Action) -> list[str]:
    """How to run an action by the leader (`Ctrl+X o`), where it can be."""
    leaders = key_bindings(app).of(LEADER)
    return [f"{spell_key(leaders[0])} {spell_key(action.leader)}"] if action.leader and leaders else []


def key_of(app: App[Any], id: str) -> str:
    """How to run an action, for a sentence: its first key (`Ctrl+O`), else its slash command, else its title."""
    found = ways(app, ACTIONS[id])
    return found[0] if found else ACTIONS[id].slash or f"“{ACTIONS[id].title}”"


def short_keys(app: App[Any], *ids: str, last: bool = False) -> str:
    """The first key of each action, or the last (`← →`), without those that have none."""
    bound = key_bindings(app)
    return " ".join(spell_key(bound.of(id)[-1 if last else 0]) for id in ids if bound.of(id))


def with_keys(app: App[Any], text: str) -> str:
    """A sentence of ours in which `{id}` stands for how to run that action."""
    return re.sub(r"\{([a-z_.]+)\}", lambda found: key_of(app, found[1]), text)


def hint(app: App[Any], *ids: str) -> str:
    """What can be done, for a line of hints: `Ctrl+S Apply · Esc Cancel`."""
    return " · ".join(f"{key_of(app, id)} {ACTIONS[id].title}" for id in ids)


def remedy_text(app: App[Any], remedy: Remedy) -> str:
    """The sentence that says which key does it."""
    return with_keys(app, _REMEDIES[remedy])


def with_remedy(app: App[Any], text: str, remedy: Remedy | None) -> str:
    """A text, and the sentence that says which key does something about it."""
    return f"{text} {remedy_text(app, remedy)}" if remedy is not None else text


def error_text(app: App[Any], error: VlmtuiError) -> str:
    """What went wrong and what to do, with the key that does it, in one line."""
    return with_remedy(app, one_line(str(error)), error.remedy)


def spell_key(key: str) -> str:
    """A key as a sentence names it: `Ctrl+O`, `Esc`, `F5`, `?`."""
    *modifiers, name = key.split("+")
    shown = _SPELLED.get(name) or (name if len(name) > 1 and name in _NAMES else format_key(name))
    if modifiers or len(shown) > 1:
        shown = shown[:1].upper() + shown[1:]
    return "+".join([*(one.capitalize() for one in modifiers), shown])


def _types(action: Action) -> bool:
    """Whether text is written where the action can be run."""
    return any(scope.types for scope in SCOPES.values() if action in scope.actions)


def _flat(given: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The table's entries by dotted id: `viewer.zoom_in = …` is a table in a table."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _on_screens() -> Iterator[tuple[Scope, Action]]:
    for scope in SCOPES.values():
        if scope.name != "app" and not scope.within:
            yield from ((scope, action) for action in scope.actions)


def _nearest(id: str) -> str:
    by_name = {known.rpartition(".")[2]: known for known in ACTIONS}
    close = difflib.get_close_matches(id, ACTIONS, n=1) or difflib.get_close_matches(id, by_name, n=1)
    return f"Did you mean {by_name.get(close[0], close[0])!r}?" if close else "docs/keys.md lists them."


def _split(keys: str) -> list[str]:
    return [keys] if keys.strip() == "," else keys.split(",")


def _is_typed(key: str) -> bool:
    """Whether a text field writes it."""
    character = _character(key)
    return character is not None and character.isprintable()


def _character(key: str) -> str | None:
    return key_to_character(REPLACED_KEYS.get(key, key))


def _lower(title: str) -> str:
    """A heading within a sentence."""
    return title[:1].lower() + title[1:]


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
