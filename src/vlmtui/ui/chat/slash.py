"""Slash commands: `/name argument`."""

from __future__ import annotations

import re
from typing import NamedTuple

from vlmtui.domain.dials import DIALS
from vlmtui.domain.parameters import PARAMETERS
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input
from vlmtui.registry.schema import Family
from vlmtui.session.dials import with_parameter
from vlmtui.ui.actions import ACTIONS, Action


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


def with_setting(sampling: Sampling, text: str, family: Family | None = None) -> Sampling:
    """Return the sampling with `name value` applied (`temperature 0.7`; `stop END`; `seed default`): a parameter, or an
    argument of the family's processor. Raises VlmtuiError."""
    match = re.fullmatch(r"([\w.-]+)\s*[=\s]\s*(.+)", text.strip(), re.DOTALL)
    if match is None:
        names = ", ".join((*PARAMETERS, *DIALS, *(family.processor if family is not None else ())))
        raise bad_input("/set takes a name and a value.", hint=f"Names: {names}; `default` unsets one.")
    return with_parameter(sampling, family, match[1], match[2])
