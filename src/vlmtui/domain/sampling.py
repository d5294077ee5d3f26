"""The sampling parameters, with vLLM's names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from vlmtui.errors import bad_input

_TEXTS_MAX = 20_000
Number: TypeAlias = int | float
"""A value of a sampling parameter."""


class Parameter(NamedTuple):
    """A numeric sampling parameter: its name and its bounds."""

    name: str
    """vLLM's name, which is also the field of `Sampling`."""
    kind: type[int] | type[float]
    help: str
    """The meaning of its values, for help texts."""
    least: Number = -math.inf
    most: Number = math.inf
    """`least` and `most` are inclusive."""
    above: Number = -math.inf
    """An exclusive lower bound."""
    unset: str = "model default"
    """Shown if no value is set."""
    plural: str = ""
    """The name for several values in a fan-out: `seeds`; empty: `top_k values`."""

    @property
    def label(self) -> str:
        """The parameter's name in a sentence: `top-p`, `max tokens`."""
        return self.name.replace("_", "-" if self.name[-2] == "_" else " ")

    @property
    def title(self) -> str:
        """The parameter's name as a title: `Top-p`."""
        return self.label[0].upper() + self.label[1:]

    @property
    def option(self) -> str:
        """The parameter's command-line option: `--top-p`."""
        return f"--{self.name.replace('_', '-')}"

    def describe(self, value: Number | None) -> str:
        """Name and value: `top-p 0.9`, `seed 5`, `temperature: model default`."""
        if value is None:
            return f"{self.label}: {self.unset}"
        return f"{self.label} {self.format(value)}"

    def format(self, value: Number) -> str:
        """Return a value of this parameter as text: `0.9`, `1000000`."""
        return str(value) if self.kind is int else f"{value:g}"

    def read(self, text: str) -> Number:
        """Parse a typed value. Raises VlmtuiError(BAD_INPUT)."""
        try:
            return self.kind(text.strip())
        except ValueError as error:
            kind = "a whole number" if self.kind is int else "a number"
            raise bad_input(f"{self.label} must be {kind}, not {text.strip()!r}.") from error

    def problem(self, value: Number) -> str | None:
        """Return why the value is not allowed, or None."""
        if math.isfinite(value) and self.least <= value <= self.most and value > self.above:
            return None
        if self.least == -(2**63):
            return f"{self.label} must fit in 64 bits, not {value}"
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
"""The parameters by name, in the order of the settings form. The bounds are vLLM's."""


def find_parameter(name: str) -> Parameter | None:
    """Return the parameter with this name, spelled as in vLLM or on the command line, or None."""
    return PARAMETERS.get(name.strip().replace("-", "_"))


NEUTRAL: Mapping[str, Number] = {
    "top_p": 1,
    "top_k": 0,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "max_tokens": 1024,
}
"""Values that change nothing, and the default of `max_tokens`: they need not be shown."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters; None means the default of the model's generation config. See `PARAMETERS` for the bounds."""

    temperature: float | None = 0.0
    """0 is greedy."""
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens: int | None = 1024
    """None: as many as fit in the context."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Strings that end the answer and are not part of it."""
    stop_token_ids: tuple[int, ...] = ()
    stop_tokens: tuple[str, ...] = ()
    """Texts of single tokens (`<|im_end|>`); the worker converts them to ids."""
    skip_special_tokens: bool = True
    extra: dict[str, object] = msgspec.field(default_factory=dict)
    """Other fields of vLLM's `SamplingParams`, by name; `structured_outputs` and `mm_processor_kwargs` as tables
    (`vlmtui.domain.dials`). Set by the model family's TOML record or by the user."""

    def problem(self) -> str | None:
        """Return why a value is invalid, or None."""
        found = (PARAMETERS[name].problem(value) for name, value in self.numbers().items())
        return next((text for text in found if text), None)

    def numbers(self) -> dict[str, Number]:
        """Return the parameters that are set, by name."""
        return {name: value for name in PARAMETERS if (value := getattr(self, name)) is not None}

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    def dials(self) -> dict[str, Number]:
        """Return the parameters that are set to something else than in `NEUTRAL`, by name. At temperature 0 there is no
        seed."""
        unused = "seed" if self.is_greedy else ""
        return {name: value for name, value in self.numbers().items() if name != unused and value != NEUTRAL.get(name)}

    def drawn(self) -> list[str]:
        """Return the parameters that affect which tokens are sampled, as `NAME VALUE`; `greedy` for temperature 0."""
        return [
            "greedy" if (name, value) == ("temperature", 0) else PARAMETERS[name].describe(value)
            for name, value in self.dials().items()
            if name != "max_tokens"
        ]

    def described(self) -> list[str]:
        """Return `NAME VALUE` for the temperature and for each other parameter that is set."""
        numbers = self.numbers()
        names = [name for name in PARAMETERS if name in numbers or name == "temperature"]
        return [PARAMETERS[name].describe(numbers.get(name)) for name in names]


def check_texts(sampling: Sampling) -> None:
    """Raise VlmtuiError(BAD_INPUT) if the stop texts and bad words are too long together: an engine tokenizes them
    while other requests wait, and compares them with every new token."""
    words = sampling.extra.get("bad_words")
    texts = [*sampling.stop, *sampling.stop_tokens, *(words if isinstance(words, list | tuple) else ())]
    if (count := sum(len(str(one)) for one in texts)) > _TEXTS_MAX:
        raise bad_input(f"stop and bad_words have {count:,} characters; the limit is {_TEXTS_MAX:,}.")
