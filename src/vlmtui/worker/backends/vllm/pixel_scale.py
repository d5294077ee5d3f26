"""Has the processor normalise pixels where vLLM would give the model raw ones.

vLLM 0.32 has some models normalise pixels themselves (`mm_device_do_normalize`), with the numbers that the checkpoint's
processor files state. Files that state none, because those of the processor's class hold, count as "not at all": the
model gets levels from 0 to 255, without an error (`vllm/model_executor/layers/fusion/mm_input_norm.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

ARGUMENT = "mm_device_do_normalize"
_STATED = ("do_normalize", "do_rescale", "image_mean", "image_std")


def pixel_arguments(given: Mapping[str, object], known: Collection[str]) -> dict[str, object]:
    """Return the engine argument that a checkpoint needs, or nothing. Reads its processor's files; blocking. What vLLM
    can't read either is left to it."""
    if ARGUMENT not in known or ARGUMENT in given:
        return {}
    from vllm.transformers_utils.config import get_hf_image_processor_config
    from vllm.transformers_utils.processor import get_processor_config

    revision = given.get("revision")
    try:
        first = get_processor_config(str(given["model"]), revision=str(revision) if revision else "main")
        second = get_hf_image_processor_config(str(given["model"]), revision=str(revision) if revision else None)
    except OSError:
        return {}
    return {} if states_normalisation(first, second) else {ARGUMENT: False}


def states_normalisation(*files: Mapping[str, object]) -> bool:
    """Whether any of a checkpoint's processor files says how pixels are normalised. No file at all: nothing to do."""
    parts = [part for file in files for name in ("image_processor", "media_proc_cfg") if (part := file.get(name))]
    inner = [part for part in (*files, *parts) if isinstance(part, Mapping)]
    return not any(files) or any(name in one for one in inner for name in _STATED)
