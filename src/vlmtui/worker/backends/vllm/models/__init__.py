"""Model classes of vlmtui for architectures that vLLM has dropped, or that do not run here, written against its public
model interface.

A record names one (`[[routes]] model_class = "module:Class"`); the engine argument `model_class_overrides` has vLLM use
it in each of its processes. Does not import vLLM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_TARSIER2 = "Tarsier2ForConditionalGeneration"


def config_change(arguments: Mapping[str, object]) -> dict[str, Callable[[Any], Any]]:
    """Return the engine argument `hf_overrides` that the chosen class needs, or nothing. vLLM calls the function in
    each of its processes, by name."""
    classes = arguments.get("model_class_overrides")
    return {"hf_overrides": as_qwen2_vl} if isinstance(classes, Mapping) and _TARSIER2 in classes else {}


def as_qwen2_vl(config: Any) -> Any:
    """Return the Qwen2-VL configuration that Tarsier2 keeps as the text part of a LLaVA."""
    inner: Any = getattr(config, "text_config", None)
    if getattr(config, "model_type", "") != "llava" or getattr(inner, "model_type", "") != "qwen2_vl":
        return config
    inner.architectures = [_TARSIER2]
    return inner
