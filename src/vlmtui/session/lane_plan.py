"""The plan of a fan-out: one turn asked with several seeds, temperatures, other sampling parameters or wordings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.domain.parameters import PARAMETERS, Number, find_parameter
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input

PROMPT = "prompt"
"""The pseudo-parameter for plans that vary the turn's text."""
MOST = 8
"""Most answers at a time."""
_COMMA = re.compile(r"\s*,\s*")
_PART = re.compile(r"([A-Za-z_-]+)\s*=\s*([^\s=]+)")
_EXAMPLE = "For instance seed=1,2,3 or temperature=0,0.5,1; further parameters take one value each."


class Plan(msgspec.Struct, frozen=True):
    """One parameter with several values; the others are fixed."""

    parameter: str
    """The name of a sampling parameter, or `PROMPT`."""
    values: tuple[Number | str, ...]
    """Numbers, or the texts of the prompt variants; 2 to `MOST`, all different."""
    fixed: Mapping[str, Number] = msgspec.field(default_factory=dict)
    """Sampling parameters with one value for all, overriding the conversation's."""

    @property
    def title(self) -> str:
        """`3 seeds`, `2 prompts · temperature 0.8`."""
        parameter = find_parameter(self.parameter)
        noun = "prompts" if parameter is None else parameter.plural or f"{self.parameter} values"
        fixed = (PARAMETERS[name].describe(value) for name, value in self.fixed.items())
        return " · ".join([f"{len(self.values)} {noun}", *fixed])


class LaneVariant(msgspec.Struct, frozen=True):
    """One request of a plan."""

    label: str
    """`seed 1`, `prompt 2`."""
    turn: Turn
    sampling: Sampling


def parse_plan(text: str) -> Plan:
    """Parse a plan such as `seed=1,2,3 temperature=0.8`. Raises VlmtuiError with what is wrong."""
    text = _COMMA.sub(",", text)
    given: dict[str, str] = {}
    for name, values in _PART.findall(text):
        parameter = find_parameter(name)
        if parameter is None:
            known = ", ".join(PARAMETERS)
            raise bad_input(f"Can't fan out over {name}. Parameters: {known}.", hint=_EXAMPLE)
        if parameter.name in given:
            raise bad_input(f"{parameter.name} is given twice.", hint=_EXAMPLE)
        given[parameter.name] = values
    if not given or _PART.sub("", text).strip():
        raise bad_input(f"{text!r} is not a list of values.", hint=_EXAMPLE)
    numbers = {name: [read_number(name, value) for value in values.split(",")] for name, values in given.items()}
    several = [name for name, values in numbers.items() if len(values) > 1]
    if len(several) != 1:
        raise bad_input("Exactly one parameter must have several values.", hint=_EXAMPLE)
    fixed = {name: values[0] for name, values in numbers.items() if name not in several}
    return plan_of(several[0], numbers[several[0]], fixed)


def read_values(parameter: str, text: str) -> tuple[Number | str, ...]:
    """Parse typed values: numbers separated by commas or spaces, prompts one on each line. Raises VlmtuiError."""
    if parameter == PROMPT:
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    return tuple(read_number(parameter, part) for part in re.split(r"[,\s]+", text.strip()) if part)


def plan_of(parameter: str, values: Sequence[Number | str], fixed: Mapping[str, Number] | None = None) -> Plan:
    """Return a validated plan. Raises VlmtuiError."""
    what = "prompts" if parameter == PROMPT else f"values of {parameter}"
    if not 2 <= len(values) <= MOST:
        raise bad_input(f"A fan-out needs 2 to {MOST} {what}, not {len(values)}.")
    if len(set(values)) != len(values):
        raise bad_input(f"The {what} must all be different.")
    others = dict(fixed or {})
    for value in values if parameter != PROMPT else ():
        if problem := msgspec.structs.replace(Sampling(), **others, **{parameter: value}).problem():
            raise bad_input(f"{problem}.")
    return Plan(parameter, tuple(values), others)


def variants(plan: Plan, turn: Turn, sampling: Sampling) -> list[LaneVariant]:
    """Return the turn for each request of the plan."""
    base = msgspec.structs.replace(sampling, **plan.fixed)
    if plan.parameter == PROMPT:
        return [
            LaneVariant(f"prompt {number}", with_text(turn, str(text)), base)
            for number, text in enumerate(plan.values, 1)
        ]
    parameter = PARAMETERS[plan.parameter]
    return [
        LaneVariant(
            parameter.describe(value) if not isinstance(value, str) else value,
            turn,
            msgspec.structs.replace(base, **{plan.parameter: value}),
        )
        for value in plan.values
    ]


def with_text(turn: Turn, text: str) -> Turn:
    """Replace the text of a turn. Attachments keep their places; those between texts move to the front."""
    texts = [part for part in turn.parts if isinstance(part, Text)]
    if len(texts) == 1:
        return Turn(turn.role, tuple(Text(text) if isinstance(part, Text) else part for part in turn.parts))
    return Turn(turn.role, (*(part for part in turn.parts if isinstance(part, Media)), Text(text)))


def why_identical(plan: Plan, sampling: Sampling) -> str:
    """Return a sentence on why all answers will be the same; empty if they may differ."""
    temperature = plan.fixed.get("temperature", sampling.temperature)
    if plan.parameter in ("seed", "top_p") and temperature == 0:
        return "At temperature 0 all answers will be the same: set a temperature."
    return ""


def read_number(name: str, text: str) -> Number:
    """Parse a typed value of a sampling parameter. Raises VlmtuiError."""
    return PARAMETERS[name].read(text)
