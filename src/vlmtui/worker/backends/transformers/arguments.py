"""The engine arguments of this backend, named as in vLLM where both have them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """What `LoadSpec.engine_args` may hold."""

    max_model_len: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The longest prompt and answer together, in tokens; a model with a shorter context uses its own."""
    limit_mm_per_prompt: dict[Modality, Annotated[int, msgspec.Meta(ge=0)]] = msgspec.field(default_factory=dict)
    """The most items of each modality in one prompt."""
    mm_processor_kwargs: dict[str, object] = msgspec.field(default_factory=dict)
    """Passed to the model's processor with every prompt."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = None
    """The number format of the weights; None: float32 on a CPU, else that of the checkpoint."""
    device: _Name | None = None
    """A torch device; None: the first GPU, or else the CPU."""
    device_map: _Name | Annotated[dict[str, int | str], msgspec.Meta(min_length=1)] | None = None
    """How the layers are spread over several GPUs, memory and disk, as in Transformers: `auto`, or the device of each
    module by its name. Needs the package accelerate."""
    max_memory: dict[str, int | str] = msgspec.field(default_factory=dict)
    """With `device_map = "auto"`: the most that goes to each device, by its number or `cpu`: `{0 = "20GB"}`."""
    offload_folder: _Name | None = None
    """Where layers on the disk go if they cannot be read from the model's own files."""
    attn_implementation: _Name | None = None
    """As in Transformers: `sdpa`, `eager`, `flash_attention_2`."""
    load_format: Literal["auto", "dummy"] = "auto"
    """`dummy`: random weights, the same for the same `seed`."""
    seed: int = 0
    """Of the random weights."""
    revision: _Name | None = None
    """The commit or branch to load, if the spec has none."""
    enable_lora: bool = False
    """For vLLM; any model takes adapters here."""
    max_loras: int = 1
    """For vLLM."""
    max_lora_rank: int = 16
    """For vLLM; an adapter of any rank is taken here."""
    raw_special_tokens: bool = True
    """Whether the tokenizer puts its special tokens (BOS) before a raw prompt, as vLLM has it do."""


def read_arguments(spec: LoadSpec) -> Arguments:
    """Return the spec's engine arguments. Raises VlmtuiError for an unknown one (suggesting the closest), or for a
    wrong value."""
    known = Arguments.__struct_fields__
    for name in spec.engine_args:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise VlmtuiError(
                ErrorKind.BAD_ENGINE_ARGUMENT,
                f"The Transformers backend has no engine argument {name!r}.",
                hint=f"Did you mean {close[0]!r}?" if close else f"It has {', '.join(known)}.",
            )
    try:
        found: Arguments = msgspec.convert(_counted(spec.engine_args), Arguments)
    except msgspec.ValidationError as error:
        raise VlmtuiError(
            ErrorKind.BAD_ENGINE_ARGUMENT,
            "An engine argument has a wrong value.",
            detail=str(error),
            hint="Correct it in the settings or in the model's record.",
        ) from error
    if found.device_map is None and (found.max_memory or found.offload_folder):
        message = "max_memory and offload_folder are for models that are spread over devices."
        raise VlmtuiError(ErrorKind.BAD_ENGINE_ARGUMENT, message, hint='Add device_map = "auto".')
    if found.device_map is not None and (found.device or found.load_format == "dummy"):
        message = "device_map goes neither with device nor with load_format = dummy."
        raise VlmtuiError(ErrorKind.BAD_ENGINE_ARGUMENT, message, hint="Leave the others out.")
    return found


def _counted(given: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments with limits as plain counts: vLLM also takes `{count = 2, width = 512}`."""
    limits = given.get("limit_mm_per_prompt")
    if not isinstance(limits, Mapping):
        return dict(given)
    counts = {name: one.get("count") if isinstance(one, Mapping) else one for name, one in limits.items()}
    return {**given, "limit_mm_per_prompt": counts}
