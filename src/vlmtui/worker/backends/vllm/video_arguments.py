"""Lets one request set arguments of InternVL's image processor.

vLLM 0.32 makes the video processor of a model that takes both with the arguments of the image processor, such as
`max_dynamic_patch`, and it accepts none of them (`InternVLProcessingInfo.get_video_processor`). The
record of internvl_chat sends one with several images, as the example does. Report to send:
docs/upstream/vllm-internvl-video-arguments.md; look at vLLM 0.34.
"""

from __future__ import annotations

import inspect
import sys
from functools import wraps
from typing import Any

_MODULE = "vllm.model_executor.models.internvl"


def keep_arguments_apart() -> None:
    """Have InternVL's video processor made with arguments of its own alone. Call it after the model's class was loaded;
    does nothing for other models."""
    module = sys.modules.get(_MODULE)
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
