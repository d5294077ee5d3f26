"""Names actions by their slash commands, in sentences that the app shows with keys."""

from __future__ import annotations

import re

from vlmtui.errors import Remedy
from vlmtui.ui.actions import ACTIONS
from vlmtui.ui.actions.remedies import REMEDIES

_OWN: dict[Remedy, str] = {
    Remedy.STOP_ANSWER: "Ctrl+C stops it.",
    Remedy.STOP_COMPARISON: "Ctrl+C stops them.",
    Remedy.STOP_FAN_OUT: "Ctrl+C stops them.",
    Remedy.START_CHAT: "/new starts a new one; then you can delete this one.",
    Remedy.UNDO_DELETE: "/undelete restores it.",
    Remedy.FILL_RAW_PROMPT: "/compare @FILE reads it from a file.",
    Remedy.APPLY_FIX: "Change the file, and compare again.",
    Remedy.SHOW_DIFFERENCE: "",
}
"""Where plain mode has another way than the app."""


def remedy_command(remedy: Remedy | None) -> str:
    """Return the sentence that names a remedy's command; empty for none."""
    if remedy is None:
        return ""
    return _OWN[remedy] if remedy in _OWN else with_commands(REMEDIES[remedy])


def with_commands(text: str) -> str:
    """Replace each `{id}` in a sentence with that action's slash command, or else its title."""
    return re.sub(r"\{([a-z_.]+)\}", lambda found: _command_of(found[1]), text)


def _command_of(id: str) -> str:
    action = ACTIONS[id]
    return action.slash or f"“{action.title}”"
