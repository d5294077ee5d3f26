"""Sampling parameters, named as vLLM names them."""

import msgspec

from vlmtui.domain.parameters import PARAMETERS, Number


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are chosen. None means: leave it to the model's own generation config. `PARAMETERS` has the bounds."""

    temperature: float | None = 0.0
    """0 is greedy."""
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens: int | None = 1024
    """None: as many as the context still holds."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Strings that end the answer (not shown in it)."""
    stop_token_ids: tuple[int, ...] = ()
    stop_tokens: tuple[str, ...] = ()
    """Single tokens by their text (`<|im_end|>`); the worker turns them into ids with the model's tokenizer."""
    skip_special_tokens: bool = True
    extra: dict[str, object] = msgspec.field(default_factory=dict)
    """Any further vLLM `SamplingParams` field, by its name; a family's record may set some."""

    def problem(self) -> str | None:
        """What is wrong with the values, in plain words, or None."""
        found = (PARAMETERS[name].problem(value) for name, value in self.numbers().items())
        return next((text for text in found if text), None)

    def numbers(self) -> dict[str, Number]:
        """The parameters that are set, by their names."""
        return {name: value for name in PARAMETERS if (value := getattr(self, name)) is not None}

    def described(self) -> list[str]:
        """The parameters that are set, with their values; the temperature always."""
        numbers = self.numbers()
        names = [name for name in PARAMETERS if name in numbers or name == "temperature"]
        return [PARAMETERS[name].describe(numbers.get(name)) for name in names]
