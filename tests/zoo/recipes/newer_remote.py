"""Newer families whose real checkpoints bring a configuration (and some a processor) of their own."""

from __future__ import annotations

from pathlib import Path

from tests.zoo.kit import (
    load_tokenizer,
    recipe,
    text_model,
    vision_model,
    write_json,
    write_tokenizer,
)
from tests.zoo.recipes.newer_qwen import THINKING, merging_tower
from tests.zoo.recipes.newer_shims import write_remote_config, write_remote_processor
from tests.zoo.templates import chat_template, chatml


@recipe("eagle2_5", remote_code=True)
def eagle2_5(folder: Path) -> None:
    """Eagle 2.5: SigLIP and Qwen2, tiles as for InternVL."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>"]
    template = chatml(default_system="You are a helpful assistant.")
    ids = write_tokenizer(folder, special, eos="<|im_end|>", pad="<|endoftext|>", chat_template=template)
    config = {
        "model_type": "eagle_2_5_vl",
        "force_image_size": 56,
        "downsample_ratio": 0.5,
        "select_layer": -1,
        "min_dynamic_patch": 1,
        "max_dynamic_patch": 4,
        "dynamic_image_size": True,
        "use_thumbnail": True,
        "image_token_index": ids["<IMG_CONTEXT>"],
        "text_config": text_model(ids[""], model_type="qwen2"),
        "vision_config": vision_model(56, model_type="siglip_vision_model"),
    }
    write_remote_config(folder, "Eagle2_5_VLConfig", config, "Eagle2_5_VLForConditionalGeneration")


@recipe("phi4_siglip", remote_code=True)
def phi4_siglip(folder: Path) -> None:
    """Phi-4 with SigLIP 2: its image token is fixed at 100256, so the vocabulary is large."""
    from transformers import Siglip2ImageProcessor, Siglip2Processor

    roles = ("system", "user", "assistant")
    template = chat_template({role: f"<|{role}|>\n" for role in roles}, "<|end|>\n", "<|assistant|>\n")
    special = ["<|endoftext|>", "<|end|>", *(f"<|{role}|>" for role in roles), *THINKING]
    write_tokenizer(
        folder, special, bos="<|endoftext|>", eos="<|end|>", pad="<|endoftext|>", words=["<image>"],
        chat_template=template,
    )  # fmt: skip
    config = {
        "model_type": "phi4-siglip",
        **text_model(100352, pad_token_id=0, bos_token_id=None, eos_token_id=None),
        "mm_hidden_size": 64,
        "min_num_patches": 16,
        "max_num_patches": 64,
        "vision_config": vision_model(model_type="siglip2_vision_model", patch_size=16, num_patches=64),
    }
    write_remote_config(folder, "Phi4VisionR", config, "Phi4ForCausalLMV", base="Phi3Config")
    images = Siglip2ImageProcessor(patch_size=16, max_num_patches=64)
    Siglip2Processor(images, load_tokenizer(folder)).save_pretrained(folder)


@recipe("stepvl", remote_code=True, note="169 tokens an image, whatever its size")
def stepvl(folder: Path) -> None:
    """Step3-VL: a perception encoder and Qwen3."""
    marks = ["<im_start>", "<im_end>", "<patch_start>", "<patch_end>", "<patch_newline>", "<im_patch>"]
    turns = ["<|BOT|>", "<|EOT|>", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"]
    template = chat_template(
        {role: f"<|BOT|>{role}\n" for role in ("system", "user", "assistant")}, "<|EOT|>",
        "<|BOT|>assistant\n<think>\n", start="<｜begin▁of▁sentence｜>", image="<im_patch>",
    )  # fmt: skip
    ids = write_tokenizer(
        folder, [*turns, *marks, *THINKING], bos=turns[2], eos="<|EOT|>", pad=turns[3], chat_template=template
    )
    tower = {
        "image_size": 728, "patch_size": 14, "width": 32, "layers": 2, "heads": 1, "mlp_ratio": 2.0,
        "output_dim": None, "hidden_act": "quick_gelu", "ls_init_value": 0.1, "use_abs_posemb": True,
        "use_cls_token": False, "use_rope2d": True, "use_ln_pre": True, "use_ln_post": False,
    }  # fmt: skip
    config = {
        "model_type": "step_robotics",
        "image_token_id": ids["<im_patch>"],
        "projector_bias": False,
        "understand_projector_stride": 2,
        "text_config": text_model(ids[""], model_type="qwen3", architectures=["Qwen3ForCausalLM"]),
        "vision_config": tower,
    }
    write_remote_config(folder, "StepRoboticsConfig", config, "StepVLForConditionalGeneration")


KANANA_PROCESSOR = """
from transformers import AutoTokenizer, ProcessorMixin, Qwen2VLImageProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize


class KananaVImageProcessor(Qwen2VLImageProcessor):
    min_pixels, max_pixels = 56 * 56, 112 * 112

    def __call__(self, images, **facts):
        cut = super().__call__(images, return_tensors="pt")
        frames, rows, columns = cut["image_grid_thw"][0].tolist()
        size = self.merge_size
        grids = {
            "vision_grid_thw": (frames, rows, columns),
            "image_token_thw": (frames, rows // size, columns // size),
        }
        return {"pixel_values": cut["pixel_values"], "image_meta": grids}


class KananaVProcessor(ProcessorMixin):
    def __init__(self, image_processor=None, tokenizer=None, **facts):
        super().__init__(image_processor, tokenizer, **facts)

    @classmethod
    def from_pretrained(cls, path, **facts):
        sizes = {"shortest_edge": 56 * 56, "longest_edge": 112 * 112}
        tokenizer = AutoTokenizer.from_pretrained(path)
        return cls(KananaVImageProcessor(size=sizes), tokenizer, chat_template=tokenizer.chat_template)
"""


@recipe("kanana_v", needs=("timm",), remote_code=True)
def kanana_v(folder: Path) -> None:
    """Kanana V: Qwen2-VL's tower, a convolutional projector, Llama. The token after the last one marks an image."""
    special = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|image_pad|>"]
    template = chat_template(
        {role: f"<|start_header_id|>{role}<|end_header_id|>\n\n" for role in ("system", "user", "assistant")},
        "<|eot_id|>", "<|start_header_id|>assistant<|end_header_id|>\n\n", start="<|begin_of_text|>",
    )  # fmt: skip
    ids = write_tokenizer(folder, special, bos="<|begin_of_text|>", eos="<|eot_id|>", words=["<image>"],
                          chat_template=template)  # fmt: skip
    projector = {
        "depth": 1, "mlp_depth": 2, "pos_emb": True, "pos_emb_size": 64, "merge_size": 2, "feature_layer_index": -1,
        "encoder_hidden_size": 64, "hidden_size": 64, "output_hidden_size": 64,
    }  # fmt: skip
    config = {
        "model_type": "kanana-1.5-v",
        "text_config": text_model(ids[""], model_type="llama", eos_token_id=ids["<|eot_id|>"]),
        "vision_config": merging_tower(14, embed_dim=64, mlp_ratio=2, in_channels=3),
        "projector_config": projector,
    }
    auto_map = write_remote_processor(folder, "KananaVProcessor", KANANA_PROCESSOR)
    write_remote_config(folder, "KananaVConfig", config, "KananaVForConditionalGeneration", **auto_map)


@recipe("deepseek_ocr2", images=1, note="slow: its towers have one size only, 0.6 billion parameters")
def deepseek_ocr2(folder: Path) -> None:
    """DeepSeek-OCR 2."""
    special = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<image>", "<td>", "</td>"]
    ids = write_tokenizer(folder, special, bos=special[0], eos=special[1], pad=special[2], add_bos=True)
    text = text_model(
        ids[""], model_type="deepseek_v2", architectures=["DeepseekV2ForCausalLM"], use_mla=False,
        num_key_value_heads=2, moe_intermediate_size=64, n_routed_experts=4, n_shared_experts=1,
        num_experts_per_tok=2, first_k_dense_replace=1, topk_method="greedy", n_group=1, topk_group=1,
        kv_lora_rank=None, q_lora_rank=None, qk_nope_head_dim=0, qk_rope_head_dim=0, v_head_dim=0,
    )  # fmt: skip
    config = {
        "model_type": "deepseek_vl_v2",
        "architectures": ["DeepseekOCR2ForCausalLM"],
        "tile_tag": "2D",
        "global_view_pos": "head",
        "candidate_resolutions": [[1024, 1024]],
        "language_config": text,
        "projector_config": {"projector_type": "linear", "input_dim": 896, "n_embed": 64},
        "vision_config": {"image_size": 1024, "model_name": "deepencoderv2"},
    }
    write_json(folder, "config.json", config)
