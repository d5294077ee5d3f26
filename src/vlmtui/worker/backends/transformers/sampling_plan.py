"""How the tokens of one answer are chosen: sampling settings, resolved for a model. Does not import torch."""

from __future__ import annotations

import difflib
import random
from collections.abc import Mapping
from typing import Any

import msgspec

from vlmtui.domain.dials import PROCESSOR
from vlmtui.domain.parameters import PARAMETERS
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input
from vlmtui.worker.hf.vocabulary import stop_token_id

_SEEDS = 2**31
_GREEDY_BELOW = 1e-5
_DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0,
             "presence_penalty": 0.0, "frequency_penalty": 0.0}  # fmt: skip
_CONFIGURED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
LOGPROBS_MAX = 20
"""As vLLM's default."""


class Further(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of vLLM's SamplingParams besides `PARAMETERS` that this backend has, too."""

    min_tokens: int = 0
    ignore_eos: bool = False
    bad_words: tuple[str, ...] = ()
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    include_stop_str_in_output: bool = False
    logprobs: int | None = None


class SamplingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides an answer besides the prompt."""

    used: Sampling
    """Every value resolved."""
    further: Further
    stop_ids: frozenset[int]
    """Tokens that end the answer."""
    banned: tuple[tuple[int, ...], ...]
    """Sequences of tokens that must not come; of the bad words."""
    logprobs: int | None

    @property
    def is_greedy(self) -> bool:
        return not self.used.temperature or self.used.temperature < _GREEDY_BELOW

    def value(self, name: str) -> float:
        """Return a resolved number."""
        found = getattr(self.used, name)
        return float(_DEFAULTS[name] if found is None else found)


def configured_sampling(generation_config: Any) -> dict[str, Any]:
    """Return the sampling defaults of a model's generation config."""
    found = {name: getattr(generation_config, name, None) for name in _CONFIGURED}
    return {name: value for name, value in found.items() if value is not None}


def plan_sampling(
    sampling: Sampling,
    logprobs: int | None,
    *,
    defaults: Mapping[str, Any],
    eos_ids: tuple[int, ...],
    tokenizer: Any,
    room: int,
) -> SamplingPlan:
    """Resolve the settings. `defaults`: the model's own; `room`: how many tokens the context still holds. A seed that
    is left open is drawn, so that it is known. Raises VlmtuiError(BAD_INPUT)."""
    further = _further(sampling.extra)
    count = logprobs if logprobs is not None else further.logprobs
    if count is not None and not 0 <= count <= LOGPROBS_MAX:
        raise bad_input(f"logprobs must be between 0 and {LOGPROBS_MAX}, not {count}.")
    numbers: dict[str, Any] = {**_DEFAULTS, **defaults, **sampling.numbers()}
    for name, value in sampling.numbers().items():
        if problem := PARAMETERS[name].problem(value):
            raise bad_input(f"The sampling parameters are not valid: {problem}.", hint="Correct them in the settings.")
    is_greedy = numbers["temperature"] < _GREEDY_BELOW
    numbers["seed"] = None if is_greedy else numbers.get("seed", random.randrange(_SEEDS))
    numbers["max_tokens"] = room if sampling.max_tokens is None else min(sampling.max_tokens, room)
    named = [stop_token_id(token, tokenizer) for token in sampling.stop_tokens]
    stop_ids = (*sampling.stop_token_ids, *(token for token in named if token is not None))
    used = Sampling(
        **numbers,
        stop=sampling.stop,
        stop_token_ids=stop_ids,
        skip_special_tokens=sampling.skip_special_tokens,
        extra={name: value for name, value in sampling.extra.items() if name != "logprobs"},
    )
    banned = [tuple(tokenizer.encode(f"{space}{word}", add_special_tokens=False))
              for word in further.bad_words for space in ("", " ")]  # fmt: skip
    return SamplingPlan(
        used=used,
        further=further,
        stop_ids=frozenset(stop_ids if further.ignore_eos else (*stop_ids, *eos_ids)),
        banned=tuple(dict.fromkeys(banned)),
        logprobs=count,
    )


def _further(extra: Mapping[str, object]) -> Further:
    known = Further.__struct_fields__
    given = {name: value for name, value in extra.items() if name != PROCESSOR}
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(known)}."
            raise bad_input(f"The Transformers backend has no sampling parameter {name!r}.", hint=hint)
    try:
        return msgspec.convert(given, Further, strict=False)
    except msgspec.ValidationError as error:
        raise bad_input("A sampling parameter has a wrong value.", detail=str(error)) from error
