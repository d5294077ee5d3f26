"""Slash commands: `/name argument`."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from vlmtui.domain.parameters import PARAMETERS, find_parameter
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input
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


def with_setting(sampling: Sampling, text: str) -> Sampling:
    """Return the sampling with `name value` applied (`temperature 0.7`; `seed default`). Raises VlmtuiError."""
    name, _, value = text.replace("=", " ").partition(" ")
    value = value.strip()
    parameter = find_parameter(name)
    if parameter is None or not value:
        raise bad_input("/set takes a name and a value.", hint=f"Names: {', '.join(PARAMETERS)}; `default` unsets one.")
    number = None if value == "default" else parameter.read(value)
    if number is not None and (problem := parameter.problem(number)):
        raise bad_input(f"{problem}.")
    return msgspec.structs.replace(sampling, **{parameter.name: number})
