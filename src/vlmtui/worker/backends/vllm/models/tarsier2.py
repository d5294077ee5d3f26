"""Tarsier2: a Qwen2-VL that calls itself LLaVA. `configs.as_qwen2_vl` takes its configuration out of that shell.

Report to send: docs/upstream/vllm-tarsier.md; look at vLLM 0.34.
"""

from __future__ import annotations

from vllm.model_executor.models.qwen2_vl import Qwen2VLForConditionalGeneration
from vllm.model_executor.models.utils import WeightsMapper


class Tarsier2ForConditionalGeneration(Qwen2VLForConditionalGeneration):  # type: ignore[misc]
    """As Qwen2-VL, with the weights named as in a LLaVA: `vision_tower.` and `language_model.`."""

    hf_to_vllm_mapper = WeightsMapper(orig_to_new_prefix={"vision_tower.": "visual."})
