"""The sampling parameters that a user can set: the settings form, `/set`, the command line, fan-outs, documents and the
engine take them from here. Nothing heavy is imported, for `vlmtui --help` lists them.

A parameter is a row here, a field of `Sampling` and one of the settings' `SamplingSettings`.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

from vlmtui.errors import bad_input

Number: TypeAlias = int | float
"""A value of a sampling parameter."""


class Parameter(NamedTuple):
    """A number that a user can set: how it is called and what it may be."""

    name: str
    """vLLM's, and the field's of `Sampling`."""
    kind: type[int] | type[float]
    help: str
    """What its values mean, in a few words."""
    least: Number = -math.inf
    most: Number = math.inf
    """Both allowed."""
    above: Number = -math.inf
    """A lower bound that is itself not allowed."""
    unset: str = "model default"
    """What holds where it is not set."""
    plural: str = ""
    """Of a fan-out's values: `seeds`; empty: `top_k values`."""

    @property
    def label(self) -> str:
        """Its name within a sentence: `top-p`, `max tokens`."""
        return self.name.replace("_", "-" if self.name[-2] == "_" else " ")

    @property
    def title(self) -> str:
        """Its name alone: `Top-p`."""
        return self.label[0].upper() + self.label[1:]

    @property
    def option(self) -> str:
        """Of the command line: `--top-p`."""
        return f"--{self.name.replace('_', '-')}"

    def describe(self, value: Number | None) -> str:
        """Name and value: `top-p 0.9`, `seed 5`, `temperature: model default`."""
        if value is None:
            return f"{self.label}: {self.unset}"
        return f"{self.label} {self.format(value)}"

    def format(self, value: Number) -> str:
        """The value: `0.9`, `1000000`."""
        return str(value) if self.kind is int else f"{value:g}"

    def read(self, text: str) -> Number:
        """The value that was typed. Raises VlmtuiError(BAD_INPUT)."""
        try:
            return self.kind(text.strip())
        except ValueError as error:
            kind = "a whole number" if self.kind is int else "a number"
            raise bad_input(f"{self.label} must be {kind}, not {text.strip()!r}.") from error

    def problem(self, value: Number) -> str | None:
        """Why the value is not allowed, or None."""
        if math.isfinite(value) and self.least <= value <= self.most and value > self.above:
            return None
        if self.least == -(2**63):
            return f"{self.label} must fit 64 bits, not {value}"
        if self.above > -math.inf:
            upper = f" and at most {self.most:g}" if self.most < math.inf else ""
            return f"{self.label} must be above {self.above:g}{upper}, not {value:g}"
        if self.most < math.inf:
            return f"{self.label} must be between {self.least:g} and {self.most:g}, not {value:g}"
        return f"{self.label} must be at least {self.least:g}, not {value:g}"


PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter("temperature", float, "0 is greedy", least=0, most=2, plural="temperatures"),
        Parameter("top_p", float, "0–1, probability mass", above=0, most=1),
        Parameter("top_k", int, "0: all tokens", least=0),
        Parameter("min_p", float, "0–1, of the likeliest", least=0, most=1),
        Parameter("repetition_penalty", float, "above 1: fewer repetitions", above=0),
        Parameter("presence_penalty", float, "−2 to 2, tokens seen", least=-2, most=2),
        Parameter("frequency_penalty", float, "−2 to 2, each repetition", least=-2, most=2),
        Parameter("max_tokens", int, "the longest answer", least=1, unset="what the context holds"),
        Parameter(
            "seed", int, "same seed, same answer", least=-(2**63), most=2**63 - 1, unset="random", plural="seeds"
        ),
    )
}
"""By their names, in the order of the settings form. The bounds are vLLM's own."""


def find_parameter(name: str) -> Parameter | None:
    """The parameter of that name, as vLLM or as the command line writes it."""
    return PARAMETERS.get(name.strip().replace("-", "_"))
