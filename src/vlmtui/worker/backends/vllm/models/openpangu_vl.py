"""openPangu-VL: vLLM 0.32's class refuses every vision attention but FlashAttention's, and so every CPU; and it turns
the pixels of an image into bfloat16, whatever the model's own number format is.

Its layers take a CPU's attention as well: they leave it to vLLM's `MMEncoderAttention`, which reads the same lengths of
sequences. Nothing else in the class asks which one it is. Report to send: docs/upstream/vllm-openpangu-vl.md; look at
vLLM 0.34.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from vllm.model_executor.models import openpangu_vl
from vllm.platforms import current_platform
from vllm.v1.attention.backends.registry import AttentionBackendEnum


class OpenPanguVLForConditionalGeneration(openpangu_vl.OpenPanguVLForConditionalGeneration):  # type: ignore[misc]
    """The installed class, without that refusal on a CPU, and with pixels in the format of the weights."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        if current_platform.is_cpu():
            with patch.object(openpangu_vl, "get_vit_attn_backend", lambda **_: AttentionBackendEnum.FLASH_ATTN):
                super().__init__(vllm_config=vllm_config, prefix=prefix)
        else:
            super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.visual.patch_embed.register_forward_pre_hook(_in_format_of_weights)


def _in_format_of_weights(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (inputs[0].to(module.proj.weight.dtype), *inputs[1:])
