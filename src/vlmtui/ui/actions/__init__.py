"""The table of all user actions: keys, footer, command palette, slash commands and help come from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vlmtui.errors import Remedy
from vlmtui.ui.actions import chat, screens
from vlmtui.ui.actions.action import SUBMENUS, UNBOUND, Action, FixedKey, Scope, method_of

if TYPE_CHECKING:
    from textual.binding import BindingType

__all__ = [
    "ACTIONS",
    "REMEDIES",
    "SCOPES",
    "SUBMENUS",
    "UNBOUND",
    "Action",
    "FixedKey",
    "Scope",
    "SlashCommand",
    "bindings",
    "line_bindings",
    "method_of",
    "parse_slash",
]

_ALL = [scope for module in (chat, screens) for scope in vars(module).values() if isinstance(scope, Scope)]
"""All scopes, in the order of the two modules."""
SCOPES: dict[str, Scope] = {scope.name: scope for scope in _ALL}
"""Every screen and widget that has actions, by name."""
ACTIONS: dict[str, Action] = {action.id: action for scope in _ALL for action in scope.actions}
"""Every action, by id."""


def bindings(scope: str) -> list[BindingType]:
    """Return the Textual `BINDINGS` for a scope's screen or widget."""
    found = SCOPES[scope]
    return [action.binding(command=f"run('{action.id}')" if found.by_id else "") for action in found.actions]


def line_bindings() -> list[BindingType]:
    """Return the bindings of the cut and paste keys, for text fields of one line."""
    names = ("kill_line_end", "kill_line_start", "kill_word_left", "kill_word_right", "yank")
    return [ACTIONS[f"editor.{name}"].binding() for name in names]


class SlashCommand(NamedTuple):
    """A parsed slash command. If there is no such command, `action` is None and `argument` is the command's name."""

    action: Action | None
    argument: str


def parse_slash(text: str) -> SlashCommand | None:
    """Parse a slash command; None for a message, which may begin with `//` or with a path (`/tmp/a.png`)."""
    if not text.startswith("/") or text.startswith("//"):
        return None
    name, _, argument = text.partition(" ")
    if "/" in name[1:] or "." in name or "\n" in name:
        return None
    action = next((action for action in ACTIONS.values() if action.slash == name), None)
    return SlashCommand(action, argument.strip() if action else name)


REMEDIES: dict[Remedy, str] = {
    Remedy.LOAD_MODEL: "{models} picks a model.",
    Remedy.RESTART_ENGINE: "{restart_engine} restarts it.",
    Remedy.STOP_ANSWER: "{stop} stops it.",
    Remedy.MAKE_BRANCH: "{regenerate} and {edit} make one.",
    Remedy.EDIT_EARLIER: "{edit} edits an earlier message.",
    Remedy.SHRINK_MESSAGE: "{smaller} smaller images · {fewer_frames} fewer frames · "
    "{leave_out_oldest} leaves the oldest attachments out",
    Remedy.LEAVE_OUT_OLDEST: "{leave_out_oldest} leaves out the oldest.",
    Remedy.SEND_AGAIN: "{take_in_again} undoes it.",
    Remedy.ATTACH_FILE: "{attach} attaches a file.",
    Remedy.START_CONVERSATION: "{conversation_list.new} starts a new one; then you can delete this one.",
    Remedy.RESTORE_CONVERSATION: "{conversation_list.undo} restores it.",
    Remedy.FILL_RAW_PROMPT: "{comparison.fill} fills it.",
    Remedy.APPLY_FIX: "{comparison.fix} fixes it.",
    Remedy.STOP_COMPARISON: "{comparison.leave} stops them.",
    Remedy.COMPUTE_DIFFERENCE: "{sides.next_view} computes and shows the difference.",
    Remedy.STOP_FAN_OUT: "{answers.leave} stops them.",
    Remedy.SET_TEMPERATURE: "{settings} sets a temperature.",
}
"""The sentence for each remedy. `with_keys` replaces `{id}` by the key or slash command of that action."""
