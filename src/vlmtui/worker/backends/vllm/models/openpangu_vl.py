"""openPangu-VL: vLLM 0.32's class requires FlashAttention, which no CPU has, and casts pixels to bfloat16 whatever the
dtype of the weights.

FlashAttention is not needed: the class's layers call vLLM's `MMEncoderAttention`, which also runs on CPUs. The fault's
report, not sent yet: docs/upstream/vllm-openpangu-vl.md. Check with vLLM 0.34 whether this class is still needed.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from vllm.model_executor.models import openpangu_vl
from vllm.platforms import current_platform
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class OpenPanguVLForConditionalGeneration(openpangu_vl.OpenPanguVLForConditionalGeneration):  # type: ignore[misc]
    """vLLM's class, which also runs on a CPU, with pixels in the dtype of the weights."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        if current_platform.is_cpu():
            with patch.object(openpangu_vl, "get_vit_attn_backend", lambda **_: AttentionBackendEnum.FLASH_ATTN):
                super().__init__(vllm_config=vllm_config, prefix=prefix)
        else:
            super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.visual.patch_embed.register_forward_pre_hook(_in_format_of_weights)


def _in_format_of_weights(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (inputs[0].to(module.proj.weight.dtype), *inputs[1:])
