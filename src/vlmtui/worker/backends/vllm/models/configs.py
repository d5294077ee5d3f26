"""What is changed in a checkpoint's configuration for a class of vlmtui. vLLM calls these functions in each of its
processes, by name. Does not import vLLM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def as_qwen2_vl(config: Any) -> Any:
    """Return the Qwen2-VL configuration that Tarsier2 keeps as the text part of a LLaVA."""
    inner: Any = getattr(config, "text_config", None)
    if getattr(config, "model_type", "") != "llava" or getattr(inner, "model_type", "") != "qwen2_vl":
        return config
    inner.architectures = ["Tarsier2ForConditionalGeneration"]
    return inner


_CHANGES: Mapping[str, Callable[[Any], Any]] = {"Tarsier2ForConditionalGeneration": as_qwen2_vl}


def config_change(arguments: Mapping[str, object]) -> dict[str, Callable[[Any], Any]]:
    """Return the engine argument `hf_overrides` that the chosen class needs, or nothing."""
    classes = arguments.get("model_class_overrides")
    names = classes if isinstance(classes, Mapping) else {}
    return next(({"hf_overrides": change} for name, change in _CHANGES.items() if name in names), {})
