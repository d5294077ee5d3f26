"""Model classes for architectures that vLLM has dropped or that fail in it, written against vLLM's public model
interface.

The TOML record of a model family names a class (`[[routes]] model_class = "module:Class"`), and the engine argument
`model_class_overrides` makes vLLM use it. This module does not import vLLM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_TARSIER2 = "Tarsier2ForConditionalGeneration"


def config_change(arguments: Mapping[str, object]) -> dict[str, Callable[[Any], Any]]:
    """Return the engine argument `hf_overrides` if the model's class needs another configuration, else an empty dict.

    vLLM pickles the function's import path and calls it in each of its processes."""
    classes = arguments.get("model_class_overrides")
    return {"hf_overrides": as_qwen2_vl} if isinstance(classes, Mapping) and _TARSIER2 in classes else {}


def as_qwen2_vl(config: Any) -> Any:
    """Return the `text_config` of a Tarsier2, which is a whole Qwen2-VL configuration; any other `config` unchanged."""
    inner: Any = getattr(config, "text_config", None)
    if getattr(config, "model_type", "") != "llava" or getattr(inner, "model_type", "") != "qwen2_vl":
        return config
    inner.architectures = [_TARSIER2]
    return inner
