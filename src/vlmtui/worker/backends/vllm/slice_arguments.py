"""Lets one request set how many slices MiniCPM's image processor cuts a picture into.

vLLM 0.32 cuts it as the request says (`max_slice_nums`), but writes the placeholders of as many slices as the model's
own setting gives (`MiniCPMVMultiModalProcessor.get_image_prompt_texts`); its engine dies of the difference.
"""

from __future__ import annotations

import copy
import inspect
import sys
from functools import wraps
from typing import Any

ARGUMENT = "max_slice_nums"
_MODULE = "vllm.model_executor.models.minicpmv"


def count_slices_of_requests() -> None:
    """Have the placeholders of MiniCPM-V and MiniCPM-o written for as many slices as the request sets. Call it after
    the model's class was loaded; does nothing for other models."""
    processor = getattr(sys.modules.get(_MODULE), "MiniCPMVMultiModalProcessor", None)
    if processor is None or hasattr(processor._get_prompt_updates, "__wrapped__"):
        return
    if ARGUMENT in inspect.signature(processor.get_image_prompt_texts).parameters:
        return  # a vLLM that knows it there
    real = processor._get_prompt_updates

    @wraps(real)
    def _get_prompt_updates(self: Any, mm_items: Any, hf_processor_mm_kwargs: Any, out_mm_kwargs: Any) -> Any:
        most = hf_processor_mm_kwargs.get(ARGUMENT)
        if most is None:
            return real(self, mm_items, hf_processor_mm_kwargs, out_mm_kwargs)

        def get_image_prompt_texts(image_size: Any, image_idx: int = 0) -> Any:
            given = {ARGUMENT: most}
            return self.info.get_slice_image_placeholder(image_size, image_idx=image_idx, **given)

        own = copy.copy(self)
        own.get_image_prompt_texts = get_image_prompt_texts
        return real(own, mm_items, hf_processor_mm_kwargs, out_mm_kwargs)

    processor._get_prompt_updates = _get_prompt_updates
