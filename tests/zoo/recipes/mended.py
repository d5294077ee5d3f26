"""Families whose class in vLLM does not load, and that vlmtui mends."""

from __future__ import annotations

from pathlib import Path

from tests.zoo.kit import recipe, text_model
from tests.zoo.recipes.native_qwen import IMAGE, VIDEO, deep_tower, save_qwen3_processor, token_ids, tokenizer
from tests.zoo.recipes.newer_shims import write_remote_config
from tests.zoo.templates import chatml


@recipe("interns1_pro", video=True, note="with a stand-in for its configuration class")
def interns1_pro(folder: Path) -> None:
    """Intern-S1-Pro: Qwen3-VL's eyes, four experts, and rotary positions with learned frequencies."""
    from transformers import Qwen3VLMoeConfig

    ids = tokenizer(folder, chatml(IMAGE, VIDEO))
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
    positions: dict[str, object] = {"rope_type": "default", "rope_theta": 10_000.0}
    positions |= {"fope_init_factor": 0.5, "fope_sep_head": True, "num_inv_freq": 16}
    decoder = text_model(ids[""], **experts)
    facts = Qwen3VLMoeConfig(text_config=decoder, vision_config=deep_tower(), **token_ids(ids)).to_dict()
    facts["text_config"] |= {
        "rope_scaling": positions,
        "rope_parameters": positions,
        **experts,
        "model_type": "interns1_pro_text",
    }
    facts |= {"model_type": "interns1_pro", "tie_word_embeddings": False}
    write_remote_config(folder, "InternS1ProConfig", facts, "InternS1ProForConditionalGeneration")
    save_qwen3_processor(folder)
