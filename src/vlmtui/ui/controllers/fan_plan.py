"""What a turn is fanned out over: seeds, temperatures, other sampling parameters, or ways to put the question. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input

Parameter = Literal["seed", "temperature", "top_p", "max_tokens", "prompt"]
PARAMETERS: tuple[Parameter, ...] = ("seed", "temperature", "top_p", "max_tokens", "prompt")
NUMBERS: dict[str, type[int] | type[float]] = {"seed": int, "temperature": float, "top_p": float, "max_tokens": int}
MOST = 8
"""Answers at once."""
_PART = re.compile(r"([A-Za-z_-]+)\s*=\s*([^\s=]+)")
_EXAMPLE = "As in seed=1,2,3 or temperature=0,0.5,1; further parameters with one value each."


class Plan(msgspec.Struct, frozen=True):
    """One parameter in several values, the others fixed."""

    parameter: Parameter
    values: tuple[int | float | str, ...]
    """Numbers, or the texts of a prompt's variants; at least two, at most `MOST`, all different."""
    fixed: Mapping[str, int | float] = msgspec.field(default_factory=dict)
    """Sampling parameters that are the same for all, and not the conversation's."""

    @property
    def title(self) -> str:
        """`3 seeds`, `2 prompts · temperature 0.8`."""
        noun = "prompts" if self.parameter == "prompt" else f"{self.parameter} values"
        noun = "seeds" if self.parameter == "seed" else "temperatures" if self.parameter == "temperature" else noun
        return " · ".join([f"{len(self.values)} {noun}", *(f"{name} {value:g}" for name, value in self.fixed.items())])


class Variant(msgspec.Struct, frozen=True):
    """One of the requests that a plan makes."""

    label: str
    """`seed 1`, `prompt 2`."""
    turn: Turn
    sampling: Sampling


def parse_plan(text: str) -> Plan:
    """The plan that `seed=1,2,3 temperature=0.8` asks for. Raises VlmtuiError saying what is wrong."""
    given: dict[str, str] = {}
    for name, values in _PART.findall(text):
        name = name.replace("-", "_")
        if name in given:
            raise bad_input(f"{name} is given twice.", hint=_EXAMPLE)
        if name not in NUMBERS:
            raise bad_input(f"{name} is nothing that answers can be fanned out over.", hint=_EXAMPLE)
        given[name] = values
    if not given or _PART.sub("", text).strip():
        raise bad_input("That is no list of values.", hint=_EXAMPLE)
    numbers = {name: [read_number(name, value) for value in values.split(",")] for name, values in given.items()}
    several = [name for name, values in numbers.items() if len(values) > 1]
    if len(several) != 1:
        raise bad_input("Exactly one parameter has several values.", hint=_EXAMPLE)
    fixed = {name: values[0] for name, values in numbers.items() if name not in several}
    return plan_of(next(one for one in PARAMETERS if one == several[0]), numbers[several[0]], fixed)


def read_values(parameter: Parameter, text: str) -> tuple[int | float | str, ...]:
    """What was typed as values: numbers with commas or spaces between them, prompts one a line. Raises VlmtuiError."""
    if parameter == "prompt":
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    return tuple(read_number(parameter, part) for part in re.split(r"[,\s]+", text.strip()) if part)


def plan_of(
    parameter: Parameter, values: Sequence[int | float | str], fixed: Mapping[str, int | float] | None = None
) -> Plan:
    """A plan, checked. Raises VlmtuiError."""
    what = "prompts" if parameter == "prompt" else f"values of {parameter}"
    if not 2 <= len(values) <= MOST:
        raise bad_input(f"Two to {MOST} {what}, not {len(values)}.")
    if len(set(values)) != len(values):
        raise bad_input(f"The {what} must all be different.")
    others = dict(fixed or {})
    for value in values if parameter != "prompt" else ():
        if problem := msgspec.structs.replace(Sampling(), **others, **{parameter: value}).problem():
            raise bad_input(f"{problem}.")
    return Plan(parameter, tuple(values), others)


def variants(plan: Plan, turn: Turn, sampling: Sampling) -> list[Variant]:
    """The turn as each of the plan's requests has it."""
    base = msgspec.structs.replace(sampling, **plan.fixed)
    if plan.parameter == "prompt":
        return [
            Variant(f"prompt {number}", with_text(turn, str(text)), base) for number, text in enumerate(plan.values, 1)
        ]
    return [
        Variant(f"{plan.parameter} {value:g}" if isinstance(value, float) else f"{plan.parameter} {value}", turn,
                msgspec.structs.replace(base, **{plan.parameter: value}))
        for value in plan.values
    ]  # fmt: skip


def with_text(turn: Turn, text: str) -> Turn:
    """The turn with another text. Attachments stay where they are; those that stand between texts come first."""
    texts = [part for part in turn.parts if isinstance(part, Text)]
    if len(texts) == 1:
        return Turn(turn.role, tuple(Text(text) if isinstance(part, Text) else part for part in turn.parts))
    return Turn(turn.role, (*(part for part in turn.parts if isinstance(part, Media)), Text(text)))


def doubt(plan: Plan, sampling: Sampling) -> str:
    """Why the answers will all be the same, in a sentence; empty where they need not be."""
    temperature = plan.fixed.get("temperature", sampling.temperature)
    if plan.parameter in ("seed", "top_p") and temperature == 0:
        return "At temperature 0 they will all be the same: set a temperature."
    return ""


def read_number(name: str, text: str) -> int | float:
    """The value of a sampling parameter as it was typed. Raises VlmtuiError."""
    try:
        return NUMBERS[name](text.strip())
    except ValueError as error:
        kind = "whole number" if NUMBERS[name] is int else "number"
        raise bad_input(f"{text!r} is no {kind} that {name} can be.", hint=_EXAMPLE) from error
