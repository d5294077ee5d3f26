"""Converts sampling settings to vLLM's SamplingParams."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from vlmtui.domain.dials import PROCESSOR, STRUCTURED
from vlmtui.domain.parameters import PARAMETERS
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input
from vlmtui.worker.hf.vocabulary import stop_token_id

_SEEDS = 2**31
_FURTHER = (
    "min_tokens", "ignore_eos", "bad_words", "logit_bias", "allowed_token_ids", "include_stop_str_in_output",
)  # fmt: skip
"""Fields of SamplingParams that change the answer and are no `PARAMETERS`."""


def sampling_parameters(
    sampling: Sampling,
    logprobs: int | None,
    *,
    defaults: Mapping[str, Any],
    tokenizer: Any,
    logprobs_max: int,
    final_only: bool = False,
) -> Any:
    """Return SamplingParams: the model's defaults, overridden by the request. `logprobs_max` is the engine's limit
    (-1: no limit). A seed that is left open is drawn, so that it is known. Raises VlmtuiError(BAD_INPUT)."""
    from vllm import SamplingParams
    from vllm.exceptions import VLLMError
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    _check_logprobs(logprobs, logprobs_max)
    extra = {name: value for name, value in sampling.extra.items() if name != PROCESSOR}
    structured = extra.pop(STRUCTURED, None)
    chosen = {
        **extra,
        **sampling.numbers(),
        "logprobs": logprobs if logprobs is not None else sampling.extra.get("logprobs"),
    }
    stops = [stop_token_id(token, tokenizer) for token in sampling.stop_tokens]
    arguments = {
        **defaults,
        **{name: value for name, value in chosen.items() if value is not None},
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop) or None,
        "stop_token_ids": [*sampling.stop_token_ids, *(stop for stop in stops if stop is not None)] or None,
        "skip_special_tokens": sampling.skip_special_tokens,
        "output_kind": RequestOutputKind.FINAL_ONLY if final_only else RequestOutputKind.DELTA,
    }
    if arguments.get("seed") is None:
        arguments["seed"] = random.randrange(_SEEDS)
    try:
        if isinstance(biases := extra.get("logit_bias"), dict):
            arguments["logit_bias"] = {int(token): bias for token, bias in biases.items()}
        if isinstance(structured, dict):
            arguments["structured_outputs"] = StructuredOutputsParams(**structured)
        return SamplingParams(**arguments)
    except (TypeError, ValueError, VLLMError) as error:
        message = "The engine rejects the sampling parameters."
        raise bad_input(message, detail=str(error), hint="Correct them in the settings.") from error


def used_sampling(parameters: Any, *, room: int, given: Sampling | None = None) -> Sampling:
    """Return what vLLM samples with, every value resolved. `room`: how many tokens the context still holds; `given`:
    what was asked for, whose tables (structured output, arguments of the processor) vLLM keeps elsewhere."""
    is_greedy = parameters.temperature == 0
    numbers = {name: getattr(parameters, name) for name in PARAMETERS}
    if is_greedy:
        numbers["seed"] = None
    elif numbers["top_k"] == -1:
        numbers["top_k"] = 0
    if numbers["max_tokens"] is None:
        numbers["max_tokens"] = room
    return Sampling(
        **numbers,
        stop=tuple(parameters.stop or ()),
        stop_token_ids=tuple(parameters.stop_token_ids or ()),
        skip_special_tokens=parameters.skip_special_tokens,
        extra={
            **{name: value for name in _FURTHER if (value := getattr(parameters, name, None))},
            **{
                name: given.extra[name] for name in (STRUCTURED, PROCESSOR) if given is not None and name in given.extra
            },
        },
    )


def _check_logprobs(wanted: int | None, most: int) -> None:
    if wanted is None:
        return
    if wanted < 0:
        raise bad_input(f"logprobs must be 0 or more, not {wanted}.")
    if 0 <= most < wanted:
        raise bad_input(
            f"logprobs = {wanted} exceeds this engine's limit of {most}.",
            hint=f"Use {most} or fewer, or load the model with a higher max_logprobs.",
        )
