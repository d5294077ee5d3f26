"""Newer families built like Qwen-VL: a tower that merges patches, and a wrapped `<|…_pad|>` where a picture goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import recipe, text_model, write_config, write_json, write_tokenizer
from tests.zoo.templates import chat_template, chatml

VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
QWEN_IMAGE = f"{VISION_START}<|image_pad|>{VISION_END}"
QWEN_VIDEO = f"{VISION_START}<|video_pad|>{VISION_END}"
QWEN_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", VISION_START, VISION_END, "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
THINKING = ("<think>", "</think>")


def merging_tower(patch: int, **facts: Any) -> dict[str, Any]:
    """The config of a tiny tower like Qwen2-VL's: 2 layers of width 64, of which 2 × 2 patches become one token."""
    return {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "out_hidden_size": 64,
        "patch_size": patch,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    } | facts


def merging_processor(folder: Path, name: str, patch: int, image: str = "Qwen2VL", video: str = "") -> None:
    """The processor's files where images and frames are cut into patches as for Qwen2-VL."""
    cut = {"patch_size": patch, "merge_size": 2, "temporal_patch_size": 2}
    least, most = (2 * patch) ** 2, (8 * patch) ** 2
    write_json(
        folder,
        "preprocessor_config.json",
        {
            "processor_class": name,
            "image_processor_type": f"{image}ImageProcessor",
            "size": {"shortest_edge": least, "longest_edge": most},
            "do_normalize": True,
            "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711],
            **cut,
        },
    )
    if video:
        write_json(
            folder,
            "video_preprocessor_config.json",
            {
                "processor_class": name,
                "video_processor_type": f"{video}VideoProcessor",
                "size": {"shortest_edge": least, "longest_edge": 8 * most},
                **cut,
            },
        )
    write_json(folder, "processor_config.json", {"processor_class": name})


def linear_attention(**facts: Any) -> dict[str, Any]:
    """Return the settings that Qwen3.5's decoder adds: a layer of linear attention before each full one."""
    return {
        "head_dim": 64,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000,
            "partial_rotary_factor": 0.5,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
    } | facts


def qwen3_5_checkpoint(folder: Path, kind: str, architecture: str, **text: Any) -> None:
    """Write Qwen3.5, dense or with experts."""
    template = chatml(QWEN_IMAGE, QWEN_VIDEO, answer="<|im_start|>assistant\n<think>\n")
    ids = write_tokenizer(
        folder, (*QWEN_TOKENS, *THINKING), eos="<|im_end|>", pad="<|endoftext|>", chat_template=template
    )
    config = {
        "model_type": kind,
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids[VISION_START],
        "vision_end_token_id": ids[VISION_END],
        "text_config": text_model(ids[""], model_type=f"{kind}_text", **linear_attention(**text)),
        "vision_config": merging_tower(16, model_type=f"{kind}_vision", num_position_embeddings=64),
    }
    write_config(folder, config, architecture)
    merging_processor(folder, "Qwen3VLProcessor", 16, video="Qwen3VL")


BFLOAT16 = {"dtype": "bfloat16"}
"""The CPU's kernel for this linear attention takes nothing else."""


@recipe("qwen3_5", video=True, engine_args=BFLOAT16)
def qwen3_5(folder: Path) -> None:
    """Qwen3.5."""
    qwen3_5_checkpoint(folder, "qwen3_5", "Qwen3_5ForConditionalGeneration")


@recipe("qwen3_5_moe", video=True, engine_args=BFLOAT16)
def qwen3_5_moe(folder: Path) -> None:
    """Qwen3.5 with experts."""
    qwen3_5_checkpoint(
        folder, "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration",
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64,
    )  # fmt: skip


@recipe("glm_ocr", video=True)
def glm_ocr(folder: Path) -> None:
    """GLM-OCR."""
    roles = ("system", "user", "assistant")
    media = ("begin_of_image", "end_of_image", "image", "begin_of_video", "end_of_video", "video")
    template = chat_template(
        {role: f"<|{role}|>\n" for role in roles}, "", "<|assistant|>\n", start="[gMASK]<sop>",
        image="<|begin_of_image|><|image|><|end_of_image|>", video="<|begin_of_video|><|video|><|end_of_video|>",
    )  # fmt: skip
    special = ["<|endoftext|>", "[gMASK]", "<sop>", *(f"<|{name}|>" for name in (*roles, "observation", *media))]
    ids = write_tokenizer(folder, [*special, *THINKING], eos="<|endoftext|>", chat_template=template)
    rope = {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 1.0, "mrope_section": [8, 4, 4]}
    # Its merger is as wide as the decoder's layers in vLLM, and three times its output in Transformers.
    text = text_model(ids[""], model_type="glm_ocr_text", rope_parameters=rope, intermediate_size=192)
    config = {
        "model_type": "glm_ocr",
        "image_token_id": ids["<|image|>"],
        "video_token_id": ids["<|video|>"],
        "image_start_token_id": ids["<|begin_of_image|>"],
        "image_end_token_id": ids["<|end_of_image|>"],
        "video_start_token_id": ids["<|begin_of_video|>"],
        "video_end_token_id": ids["<|end_of_video|>"],
        "text_config": text,
        "vision_config": merging_tower(14, model_type="glm_ocr_vision", image_size=112),
    }
    write_config(folder, config, "GlmOcrForConditionalGeneration")
    merging_processor(folder, "Glm46VProcessor", 14, "Glm46V", "Glm46V")


@recipe("exaone4_5", video=True)
def exaone4_5(folder: Path) -> None:
    """EXAONE 4.5: windows of attention in the tower and in the decoder."""
    roles = ("system", "user", "assistant", "tool")
    image, video = "<vision><|image_pad|></vision>", "<vision><|video_pad|></vision>"
    template = chat_template(
        {role: f"<|{role}|>\n" for role in roles}, "<|endofturn|>\n", "<|assistant|>\n", image=image, video=video
    )
    special = ["[PAD]", "[BOS]", "<|endofturn|>", *(f"<|{role}|>" for role in roles)]
    special += ["<vision>", "</vision>", "<|image_pad|>", "<|video_pad|>", *THINKING]
    ids = write_tokenizer(folder, special, bos="[BOS]", eos="<|endofturn|>", pad="[PAD]", chat_template=template)
    windows = {"num_hidden_layers": 4, "sliding_window": 512, "sliding_window_pattern": 4}
    config = {
        "model_type": "exaone4_5",
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "text_config": text_model(ids[""], model_type="exaone4", **windows),
        "vision_config": merging_tower(
            14, model_type="exaone4_5_vision", num_key_value_heads=1, window_size=56, fullatt_block_indexes=[1]
        ),
    }
    write_config(folder, config, "Exaone4_5_ForConditionalGeneration")
    merging_processor(folder, "Exaone4_5_Processor", 14, video="Qwen2VL")
