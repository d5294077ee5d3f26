"""Slash commands: `/name argument`."""

from __future__ import annotations

from typing import NamedTuple

from vlmtui.ui.actions.action import Action
from vlmtui.ui.actions.table import ACTIONS


class SlashCommand(NamedTuple):
    """A typed command. For an unknown command, `action` is None and `argument` its name."""

    action: Action | None
    argument: str


def parse_slash(text: str) -> SlashCommand | None:
    """Parse a slash command; None for a message. A message may start with `//`, or with a path, whose first word
    contains another slash or a dot."""
    if not text.startswith("/") or text.startswith("//"):
        return None
    name, _, argument = text.partition(" ")
    if "/" in name[1:] or "." in name or "\n" in name:
        return None
    action = next((action for action in ACTIONS.values() if action.slash == name), None)
    return SlashCommand(action, argument.strip() if action else name)
