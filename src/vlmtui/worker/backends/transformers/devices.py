"""A model whose layers are on several devices: how it is spread, and where its inputs go."""

from __future__ import annotations

import importlib.util
from collections import Counter
from typing import Any

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.text import is_number
from vlmtui.worker.backends.transformers.arguments import Arguments


def spreading(arguments: Arguments) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that spread a model; none if it stays whole. Raises VlmtuiError."""
    if arguments.device_map is None:
        return {}
    if importlib.util.find_spec("accelerate") is None:
        raise VlmtuiError(
            ErrorKind.BAD_ENGINE_ARGUMENT,
            "device_map needs the package accelerate, which is not installed.",
            hint="Install it with the engine: pip install accelerate",
        )
    found: dict[str, Any] = {"device_map": arguments.device_map}
    if arguments.max_memory:
        found["max_memory"] = {int(at) if is_number(at) else at: most for at, most in arguments.max_memory.items()}
    if arguments.offload_folder is not None:
        found["offload_folder"] = arguments.offload_folder
    return found


def input_device(model: Any) -> Any:
    """Return the device that takes the model's inputs: that of its embeddings, also while they lie on the disk."""
    embeddings = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    weight = getattr(embeddings, "weight", None)
    if weight is not None and not weight.is_meta:
        return weight.device
    hook = getattr(embeddings, "_hf_hook", None)
    if (device := getattr(hook, "execution_device", None)) is not None:
        return device
    return next((one.device for one in model.parameters() if not one.is_meta), model.device)


def spread_note(model: Any) -> str:
    """Return how the model is spread, as a sentence; empty if it is whole."""
    spread = getattr(model, "hf_device_map", None) or {}
    counts = Counter(f"GPU {place}" if isinstance(place, int) else str(place) for place in spread.values())
    if len(counts) < 2:
        return ""
    return f"Its parts are spread: {', '.join(f'{count} on {place}' for place, count in counts.items())}."
