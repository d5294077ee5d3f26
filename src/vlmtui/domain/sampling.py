"""Sampling parameters, named as vLLM names them."""

import msgspec


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are chosen. None means: leave it to the model's own generation config."""

    temperature: float | None = 0.0
    """0 is greedy."""
    top_p: float | None = None
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
        if self.temperature is not None and not 0 <= self.temperature <= 2:  # vLLM's own bounds
            return f"temperature must lie between 0 and 2, not {self.temperature:g}"
        if self.top_p is not None and not 0 < self.top_p <= 1:
            return f"top-p must lie above 0 and not above 1, not {self.top_p:g}"
        if self.max_tokens is not None and self.max_tokens < 1:
            return f"max tokens must be at least 1, not {self.max_tokens}"
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            return f"seed must fit 64 bits, not {self.seed}"
        return None
