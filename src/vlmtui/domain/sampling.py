"""Sampling parameters, with vLLM's names."""

from collections.abc import Mapping

import msgspec

from vlmtui.domain.parameters import PARAMETERS, Number

NEUTRAL: Mapping[str, Number] = {"top_p": 1, "top_k": 0, "min_p": 0}
"""Values that leave every token in."""


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
    (`vlmtui.domain.dials`). Set by a family's record or the user."""

    def problem(self) -> str | None:
        """Return the problem with the values; None: they are valid."""
        found = (PARAMETERS[name].problem(value) for name, value in self.numbers().items())
        return next((text for text in found if text), None)

    def numbers(self) -> dict[str, Number]:
        """Return the parameters that are set, by name."""
        return {name: value for name in PARAMETERS if (value := getattr(self, name)) is not None}

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    def drawn(self) -> list[str]:
        """Return the parameters that chose the tokens, with their values; `greedy` if the likeliest token was taken."""
        if self.is_greedy:
            return ["greedy"]
        numbers = self.numbers()
        names = ("temperature", "top_p", "top_k", "min_p", "seed")
        return [
            PARAMETERS[name].describe(numbers[name])
            for name in names
            if name in numbers and numbers[name] != NEUTRAL.get(name)
        ]

    def described(self) -> list[str]:
        """Return a description of each parameter that is set, and always of the temperature."""
        numbers = self.numbers()
        names = [name for name in PARAMETERS if name in numbers or name == "temperature"]
        return [PARAMETERS[name].describe(numbers.get(name)) for name in names]
