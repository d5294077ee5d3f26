"""Families whose class in vLLM does not load, and that vlmtui mends."""

from __future__ import annotations

from pathlib import Path

from tests.zoo.kit import recipe, text_model, write_tokenizer
from tests.zoo.recipes.native_qwen import (
    IMAGE,
    VIDEO,
    deep_tower,
    rope,
    save_qwen3_processor,
    token_ids,
    tokenizer,
    window_tower,
)  # fmt: skip
from tests.zoo.recipes.newer_shims import write_remote_config, write_remote_processor
from tests.zoo.templates import chat_template, chatml

PANGU_PROCESSOR = """
from transformers import AutoTokenizer, Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

SIZE = {"shortest_edge": 56 * 56, "longest_edge": 112 * 112}


class OpenPanguVLImageProcessor(Qwen2VLImageProcessor):
    # Rescaling and normalising are left to the model, and a patch is given once, not twice.
    def preprocess(self, images, **facts):
        found = super().preprocess(images, **facts | {"do_rescale": False, "do_normalize": False})
        patches = found["pixel_values"].reshape(-1, 3, self.temporal_patch_size, self.patch_size**2)
        found["pixel_values"] = patches[:, :, 0].flatten(1)
        return found


class OpenPanguVLProcessor(Qwen2_5_VLProcessor):
    vision_start_token, vision_end_token = "[unused18]", "[unused20]"

    @classmethod
    def from_pretrained(cls, path, **facts):
        images, videos = OpenPanguVLImageProcessor(size=SIZE), Qwen2VLVideoProcessor(size=SIZE)
        return cls(images, AutoTokenizer.from_pretrained(path), videos)
"""


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


@recipe("openpangu_vl", video=True, remote_code=True, note="with stand-ins for its configuration and its processor")
def openpangu_vl(folder: Path) -> None:
    """openPangu-VL: a tower with windows, of which two layers are used, and positions in three interleaved axes."""
    template = chat_template(
        {"system": "[unused9]系统：", "user": "[unused9]用户：", "assistant": "[unused9]助手："}, "[unused10]",
        "[unused9]助手：", image="[unused18][unused19][unused20]", video="[unused18][unused32][unused20]", start="<s>",
        default_system="[unused9]系统：[unused10]",
    )  # fmt: skip
    special = ["<unk>", "<s>", "</s>", *(f"[unused{number}]" for number in (9, 10, 18, 19, 20, 32))]
    ids = write_tokenizer(
        folder, special, bos="<s>", eos="[unused10]", pad="<unk>", unk="<unk>", chat_template=template,
        image_token="[unused19]", video_token="[unused32]",
    )  # fmt: skip
    tower = window_tower(
        depth=3, fullatt_block_indexes=[2], hidden_act="gelu", in_channels=3, patch_size=14, temporal_patch_size=2,
        spatial_merge_size=2,
    )  # fmt: skip
    config = {
        "model_type": "openpangu_vl",
        **text_model(ids[""], rope_parameters=rope(6, 5, 5, mrope_interleaved=True)),
        "vision_config": tower,
        "image_token_id": ids["[unused19]"],
        "video_token_id": ids["[unused32]"],
        "vision_start_token_id": ids["[unused18]"],
        "vision_end_token_id": ids["[unused20]"],
        "tie_word_embeddings": False,
    }
    auto_map = write_remote_processor(folder, "OpenPanguVLProcessor", PANGU_PROCESSOR)
    write_remote_config(
        folder, "OpenPanguVLConfig", config, "OpenPanguVLForConditionalGeneration", base="LlamaConfig", **auto_map
    )
