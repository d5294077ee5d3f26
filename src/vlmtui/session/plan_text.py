"""Parses a fan-out's plan: `seed=1,2,3 temperature=0.8`, `picture=sent,none,grey`, `system="Be brief.","Be kind."`.
Shared by the app and the command line."""

from __future__ import annotations

import re

from vlmtui.domain.dials import ARGUMENTS, DIALS, dial_name, read_dial
from vlmtui.domain.parameters import PARAMETERS, Number, find_parameter
from vlmtui.errors import bad_input
from vlmtui.session.adapters import NONE, find_adapter
from vlmtui.session.lane_plan import ADAPTER, ENGINE, PICTURE, PIXELS, PIXELS_LEAST, PROMPT, SYSTEM, Plan, plan_of
from vlmtui.session.picture_changes import PictureChange, read_change
from vlmtui.text import is_number

_COMMA = re.compile(r"\s*,\s*")
_PART = re.compile(r"([A-Za-z_][\w.-]*)\s*=\s*([^\s=]+)")
_QUOTED = re.compile(r'"([^"]*)"')
_HIDDEN = 0xF0000
"""Inside quotes every character is shifted by this, to hide commas, spaces and `=`."""
_TEXTS = (PROMPT, SYSTEM)
_EXAMPLE = "For instance seed=1,2,3 or picture=sent,none,grey; further parameters take one value each."


def parse_plan(text: str) -> Plan:
    """Parse a plan such as `seed=1,2,3 temperature=0.8`. Raises VlmtuiError with what is wrong."""
    if text.count('"') % 2:
        raise bad_input("A quotation mark is not closed.", hint=_EXAMPLE)
    hidden = _COMMA.sub(",", _QUOTED.sub(_hide, text))
    given: dict[str, list[str]] = {}
    for found, values in _PART.findall(hidden):
        parameter = find_parameter(found)
        dial = dial_name(found, ARGUMENTS)
        name = parameter.name if parameter else dial or found.lower()
        if parameter is None and dial is None and name not in (*_TEXTS, PICTURE, PIXELS, ENGINE, ADAPTER):
            names = (*PARAMETERS, PROMPT, SYSTEM, PICTURE, PIXELS, ENGINE, ADAPTER, *DIALS, *sorted(ARGUMENTS))
            known = ", ".join(names)
            raise bad_input(f"Can't fan out over {found}. Parameters: {known}.", hint=_EXAMPLE)
        if name in given:
            raise bad_input(f"{name} is given twice.", hint=_EXAMPLE)
        given[name] = [_shown(value) for value in values.split(",")]
    if not given or _PART.sub("", hidden).strip():
        raise bad_input(f"{text!r} is not a list of values.", hint=_EXAMPLE)
    read = {name: [_read(name, value) for value in values] for name, values in given.items()}
    several = [name for name, values in read.items() if len(values) > 1]
    if len(several) != 1:
        raise bad_input("Exactly one parameter must have several values.", hint=_EXAMPLE)
    fixed: dict[str, Number] = {}
    for name, (value, *_) in read.items():
        if name in several:
            continue
        if isinstance(value, str) or name == PIXELS:
            raise bad_input(f"{name} takes several values, or none.", hint=_EXAMPLE)
        fixed[name] = value
    return plan_of(several[0], read[several[0]], fixed)


def read_values(parameter: str, text: str) -> tuple[Number | str, ...]:
    """Parse typed values: numbers and picture changes separated by commas or spaces, texts one on each line. Raises
    VlmtuiError."""
    if parameter in _TEXTS:
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    if parameter == ENGINE:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return tuple(_read(parameter, part) for part in re.split(r"[,\s]+", text.strip()) if part)


def read_number(name: str, text: str) -> Number:
    """Parse a typed value of a sampling parameter. Raises VlmtuiError."""
    return PARAMETERS[name].read(text)


def _read(name: str, text: str) -> Number | str:
    if name in (*_TEXTS, ENGINE):
        return text
    if name == ADAPTER:
        return text if text == NONE else find_adapter(text).folder
    if dial_name(name, ARGUMENTS) is not None:
        read_dial(name, text, {})
        return text
    if name == PICTURE:
        return _change(text).value
    if name != PIXELS:
        return read_number(name, text)
    if not is_number(text) or int(text) < PIXELS_LEAST:
        raise bad_input(f"pixels must be a whole number from {PIXELS_LEAST} on, not {text!r}.", hint=_EXAMPLE)
    return int(text)


def _change(text: str) -> PictureChange:
    change = read_change(text)
    if change is None:
        known = ", ".join(PictureChange)
        raise bad_input(f"A picture cannot be {text!r}. There are: {known}.", hint=_EXAMPLE)
    return change


def _hide(match: re.Match[str]) -> str:
    return "".join(chr(ord(char) + _HIDDEN) if ord(char) < 0x10000 else char for char in match[1]) or chr(_HIDDEN)


def _shown(text: str) -> str:
    return "".join(chr(ord(char) - _HIDDEN) if ord(char) >= _HIDDEN else char for char in text).replace("\0", "")
