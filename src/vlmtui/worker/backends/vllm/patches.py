"""Two faults of vLLM 0.32 that are mended in its processes, until it does without.

Reports to send: docs/upstream/vllm-onednn-contiguous.md and docs/upstream/vllm-internvl-video-arguments.md; look at
vLLM 0.34.
"""

from __future__ import annotations

import inspect
import sys
from functools import wraps
from typing import Any


def keep_contiguous() -> None:
    """Give vLLM's linear layers for CPUs inputs that are contiguous in memory, in a process that has imported them.

    oneDNN refuses a transposed view, which ends the engine: the ears of Gemma 4, HunyuanOCR and Step-VL hand one over.
    """
    operators: Any = sys.modules.get("vllm._custom_ops")
    real = getattr(operators, "onednn_mm", None)
    if real is not None:
        operators.onednn_mm = lambda handler, x, bias: real(handler, x.contiguous(), bias)


def keep_arguments_apart() -> None:
    """Have InternVL's video processor made with arguments of its own alone: vLLM hands it those of the images, such as
    the `max_dynamic_patch` that internvl_chat's record sends with several of them, and it refuses them.

    Call it after the model's class was loaded; does nothing for other models."""
    module = sys.modules.get("vllm.model_executor.models.internvl")
    info, made = (getattr(module, name, None) for name in ("InternVLProcessingInfo", "InternVLVideoProcessor"))
    if info is None or made is None or hasattr(info.get_video_processor, "__wrapped__"):
        return
    accepted = inspect.signature(made).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in accepted.values()):
        return  # a vLLM in which it takes them
    real = info.get_video_processor

    @wraps(real)
    def get_video_processor(self: Any, **given: object) -> Any:
        return real(self, **{name: value for name, value in given.items() if name in accepted})

    info.get_video_processor = get_video_processor
