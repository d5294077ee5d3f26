"""Intern-S1-Pro. vLLM 0.32's class reads `self.model_config` but never sets it, so that no model of this architecture
loads.

vLLM 0.33 sets the attribute: docs/upstream/vllm-interns1-pro.md.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.models import interns1_pro


class InternS1ProForConditionalGeneration(interns1_pro.InternS1ProForConditionalGeneration):  # type: ignore[misc]
    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        self.model_config = vllm_config.model_config
        super().__init__(vllm_config=vllm_config, prefix=prefix)
