"""Tarsier and Tarsier2, which vLLM has dropped.

Tarsier is a LLaVA with a token after each row of patches, and another after the last row. Both are ordinary tokens of
the vocabulary (`image_newline_idx`, `image_new_idx` in config.json), whose embeddings stand between those of the
patches. Source: the authors' `add_split_tokens` (github.com/bytedance/tarsier).

Tarsier2 is a Qwen2-VL with the configuration of a LLaVA around it, which `as_qwen2_vl` removes. The report, not sent
yet: docs/upstream/vllm-tarsier.md. Check with vLLM 0.34 whether these classes are still needed.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import torch
from vllm.model_executor.models.llava import (
    LlavaDummyInputsBuilder,
    LlavaForConditionalGeneration,
    LlavaMultiModalProcessor,
    LlavaProcessingInfo,
)
from vllm.model_executor.models.qwen2_vl import Qwen2VLForConditionalGeneration
from vllm.model_executor.models.utils import WeightsMapper
from vllm.multimodal import MULTIMODAL_REGISTRY


class TarsierProcessingInfo(LlavaProcessingInfo):  # type: ignore[misc]
    """LLaVA's processing information, with another number of tokens per image."""

    def get_num_image_tokens(self, *, image_width: int, image_height: int) -> int:
        """Return the number of patches, plus a token for each row, plus one at the end."""
        patches = int(super().get_num_image_tokens(image_width=image_width, image_height=image_height))
        return patches + isqrt(patches) + 1


@MULTIMODAL_REGISTRY.register_processor(
    LlavaMultiModalProcessor, info=TarsierProcessingInfo, dummy_inputs=LlavaDummyInputsBuilder
)
class TarsierForConditionalGeneration(LlavaForConditionalGeneration):  # type: ignore[misc]
    """LLaVA with an additional token after each row of patches, and one after the last."""

    def _process_image_input(self, image_input: Any) -> torch.Tensor:
        features = super()._process_image_input(image_input)
        return features if image_input["type"] == "image_embeds" else self._with_breaks(features)

    def _with_breaks(self, features: torch.Tensor) -> torch.Tensor:
        """Insert the embeddings of the additional tokens into `features`, shape (images, rows × columns, width)."""
        images, patches, width = features.shape
        rows = isqrt(patches)
        ids = torch.tensor([self.config.image_newline_idx, self.config.image_new_idx], device=features.device)
        row_end, image_end = self.language_model.embed_input_ids(ids).to(features.dtype)
        grid = features.view(images, rows, patches // rows, width)
        grid = torch.cat([grid, row_end.expand(images, rows, 1, width)], dim=2)
        return torch.cat([grid.flatten(1, 2), image_end.expand(images, 1, width)], dim=1)


class Tarsier2ForConditionalGeneration(Qwen2VLForConditionalGeneration):  # type: ignore[misc]
    """Qwen2-VL with LLaVA's weight names `vision_tower.…` and `language_model.…`."""

    hf_to_vllm_mapper = WeightsMapper(orig_to_new_prefix={"vision_tower.": "visual."})
