"""Families whose processors stand in their checkpoints: images go to the engine as patches and a grid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.zoo.kit import recipe, text_model, vision_model, write_config, write_json, write_tokenizer
from tests.zoo.recipes.newer_shims import write_remote_config, write_remote_processor
from tests.zoo.templates import chat_template, chatml

PATCHES = """
import numpy as np
import torch
from transformers import AutoTokenizer, BaseImageProcessor, BatchFeature, ProcessorMixin


class PatchImageProcessor(BaseImageProcessor):
    \"\"\"Makes an image a multiple of two patches in each direction and cuts it up.\"\"\"

    patch_size = 14
    merge_size = 2
    merge_kernel_size = (2, 2)
    in_token_limit = 64
    size = {"min_pixels": 28 * 28, "max_pixels": 112 * 112}

    def cut(self, image, rows, columns):
        side = self.patch_size
        pixels = np.asarray(image.convert("RGB").resize((columns * side, rows * side)), dtype=np.float32) / 127.5 - 1
        tiles = pixels.reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3)
        return torch.from_numpy(np.ascontiguousarray(tiles)).reshape(-1, 3, side, side)
"""

KIMI = (
    PATCHES
    + """

class KimiVLProcessor(ProcessorMixin):
    image_token = "<|media_pad|>"

    def __init__(self, image_processor=None, tokenizer=None, **facts):
        super().__init__(image_processor, tokenizer, **facts)

    @classmethod
    def from_pretrained(cls, path, **facts):
        return cls(PatchImageProcessor(), AutoTokenizer.from_pretrained(path))

    def grid(self, width, height):
        images = self.image_processor
        side, limit = images.patch_size, images.in_token_limit
        patches = (width // side) * (height // side)
        if patches > limit:
            scale = (limit / patches) ** 0.5
            width, height = int(width * scale), int(height * scale)
        return 2 * -(-height // (2 * side)), 2 * -(-width // (2 * side))

    def __call__(self, text=None, images=None, **facts):
        data = dict(self.tokenizer(text, return_tensors="pt")) if text is not None else {}
        if images:
            images = images if isinstance(images, list) else [images]
            grids = [self.grid(*image.size) for image in images]
            cuts = [self.image_processor.cut(image, *grid) for image, grid in zip(images, grids)]
            data |= {"pixel_values": torch.cat(cuts), "image_grid_hws": torch.tensor(grids)}
        return BatchFeature(data)
"""
)

KEYE = (
    PATCHES
    + """
from PIL import Image
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize


class KeyeProcessor(ProcessorMixin):
    image_token, video_token = "<|image_pad|>", "<|video_pad|>"
    frame_token, fast_start, fast_end = "<|frame|>", "<|fast_start|>", "<|fast_end|>"

    def __init__(self, image_processor=None, tokenizer=None, **facts):
        super().__init__(image_processor, tokenizer, **facts)

    @classmethod
    def from_pretrained(cls, path, **facts):
        return cls(PatchImageProcessor(), AutoTokenizer.from_pretrained(path))

    def grid(self, image):
        size = self.image_processor.size
        side = self.image_processor.patch_size
        height, width = smart_resize(image.height, image.width, 2 * side, size["min_pixels"], size["max_pixels"])
        return height // side, width // side

    def cut_all(self, images):
        grids = [self.grid(image) for image in images]
        return torch.cat([self.image_processor.cut(image, *grid) for image, grid in zip(images, grids)]), grids[0]

    def __call__(self, text=None, images=None, videos=None, **facts):
        data = dict(self.tokenizer(text, return_tensors="pt")) if text is not None else {}
        for kind, items in (("image", images), ("video", videos)):
            if not items:
                continue
            stacks = [[item] if kind == "image" else [Image.fromarray(frame) for frame in item] for item in items]
            cuts, grids = zip(*(self.cut_all(stack) for stack in stacks))
            pixels = "pixel_values" if kind == "image" else "pixel_values_videos"
            data[pixels] = torch.cat(cuts)
            data[f"{kind}_grid_thw"] = torch.tensor([(len(stack), *grid) for stack, grid in zip(stacks, grids)])
            if kind == "video":
                data["num_frames"] = torch.tensor([len(stack) for stack in stacks])
        return BatchFeature(data)
"""
)


def deepseek_text(vocabulary: int) -> dict[str, Any]:
    """The config of a tiny DeepSeek V3: latent attention, four experts."""
    return text_model(
        vocabulary, model_type="deepseek_v3", num_key_value_heads=2, moe_intermediate_size=64, n_routed_experts=4,
        n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=1, n_group=1, topk_group=1,
        kv_lora_rank=32, q_lora_rank=None, qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=32, head_dim=64,
        topk_method="noaux_tc", scoring_func="sigmoid", norm_topk_prob=True, routed_scaling_factor=1.0,
    )  # fmt: skip


@recipe("kimi_vl", remote_code=True, environment={"VLLM_MLA_DISABLE": "1"})
def kimi_vl(folder: Path) -> None:
    """Kimi-VL: MoonViT and a DeepSeek decoder with experts."""
    media = ("<|media_start|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>")
    turns = ("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>")
    template = chat_template(
        {role: f"<|im_{role}|>{role}<|im_middle|>" for role in ("system", "user", "assistant")}, "<|im_end|>",
        "<|im_assistant|>assistant<|im_middle|>",
        image="<|media_start|>image<|media_content|><|media_pad|><|media_end|>",
        default_system="<|im_system|>system<|im_middle|>You are a helpful assistant<|im_end|>",
    )  # fmt: skip
    ids = write_tokenizer(
        folder, ["[BOS]", "[EOS]", "[PAD]", *turns, *media], bos="[BOS]", eos="[EOS]", pad="[PAD]",
        chat_template=template,
    )  # fmt: skip
    text = deepseek_text(ids[""])
    tower = vision_model(model_type="moonvit", init_pos_emb_height=8, init_pos_emb_width=8, merge_kernel_size=[2, 2])
    auto_map = write_remote_processor(folder, "KimiVLProcessor", KIMI)
    config = {
        "model_type": "kimi_vl",
        "media_placeholder_token_id": ids["<|media_pad|>"],
        "text_config": text,
        "vision_config": tower,
    }
    write_config(folder, config, "KimiVLForConditionalGeneration", auto_map=auto_map)


def keye(folder: Path, model_type: str, name: str) -> None:
    """Write a Keye-VL."""
    start, end = "<|vision_start|>", "<|vision_end|>"
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", start, end, "<|image_pad|>", "<|video_pad|>"]
    special += ["<|frame|>", "<|fast_start|>", "<|fast_end|>", "<think>", "</think>"]
    template = chatml(f"{start}<|image_pad|>{end}", f"{start}<|video_pad|>{end}")
    ids = write_tokenizer(folder, special, eos="<|im_end|>", pad="<|endoftext|>", chat_template=template)
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [4, 6, 6]}
    tower = vision_model(
        112, spatial_merge_size=2, temporal_patch_size=1, num_channels=3, layer_norm_eps=1e-6,
        hidden_act="gelu_pytorch_tanh", attention_dropout=0.0, tokens_per_second=2,
    )  # fmt: skip
    config = {
        "model_type": model_type,
        **text_model(ids[""], rope_parameters=rope),
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids[start],
        "vision_end_token_id": ids[end],
        "vision_config": tower,
    }
    auto_map = write_remote_processor(folder, "KeyeProcessor", KEYE)
    write_remote_config(
        folder, f"{name}Config", config, f"{name}ForConditionalGeneration", base="Qwen3Config", **auto_map
    )


@recipe("keye_vl", video=True, remote_code=True)
def keye_vl(folder: Path) -> None:
    """Keye-VL Preview."""
    keye(folder, "Keye", "Keye")


@recipe("keye_vl1_5", video=True, remote_code=True)
def keye_vl1_5(folder: Path) -> None:
    """Keye-VL 1.5: every frame of a video is announced."""
    keye(folder, "KeyeVL1_5", "KeyeVL1_5")


@recipe("dots_ocr", remote_code=True)
def dots_ocr(folder: Path) -> None:
    """dots.ocr: a tower of its own, Qwen2."""
    from transformers import Qwen2VLImageProcessor

    image = "<|img|><|imgpad|><|endofimg|>"
    template = chat_template(
        {role: f"<|{role}|>" for role in ("system", "user", "assistant")},
        {role: f"<|endof{role}|>" for role in ("system", "user", "assistant")},
        "<|assistant|>", image=image,
    )  # fmt: skip
    special = ["<|endoftext|>", "<|img|>", "<|imgpad|>", "<|endofimg|>", "<|video_pad|>"]
    special += [f"<|{mark}{role}|>" for role in ("system", "user", "assistant") for mark in ("", "endof")]
    ids = write_tokenizer(folder, special, eos="<|endofassistant|>", pad="<|endoftext|>", chat_template=template)
    tower = vision_model(
        embed_dim=64, num_channels=3, spatial_merge_size=2, temporal_patch_size=1, rms_norm_eps=1e-5, use_bias=False,
        post_norm=True, is_causal=False,
    )  # fmt: skip
    config = {
        "model_type": "dots_ocr",
        **text_model(ids[""]),
        "image_token_id": ids["<|imgpad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_config": tower,
    }
    write_remote_config(folder, "DotsOCRConfig", config, "DotsOCRForCausalLM", base="Qwen2Config")
    sizes = {"shortest_edge": 56 * 56, "longest_edge": 112 * 112}
    Qwen2VLImageProcessor(size=sizes, temporal_patch_size=1).save_pretrained(folder)
    write_json(folder, "video_preprocessor_config.json", {"video_processor_type": "Qwen2VLVideoProcessor"})
    write_json(folder, "processor_config.json", {"processor_class": "Qwen2VLProcessor"})


@recipe("deepseek_vl_v2", needs=("timm",), note="slow: its tower has one size only, 0.4 billion parameters")
def deepseek_vl_v2(folder: Path) -> None:
    """DeepSeek-VL2 tiny."""
    special = [
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "<｜▁pad▁｜>",
        "<image>",
        "<|User|>",
        "<|Assistant|>",
    ]
    special += ["<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>"]
    ids = write_tokenizer(folder, special, bos=special[0], eos=special[1], pad=special[2], add_bos=True)
    text = text_model(
        ids[""], model_type="deepseek_v2", architectures=["DeepseekV2ForCausalLM"], use_mla=False,
        num_key_value_heads=2, moe_intermediate_size=64, n_routed_experts=4, n_shared_experts=1,
        num_experts_per_tok=2, first_k_dense_replace=1, topk_method="greedy", n_group=1, topk_group=1,
        kv_lora_rank=None, q_lora_rank=None, qk_nope_head_dim=0, qk_rope_head_dim=0, v_head_dim=0,
    )  # fmt: skip
    config: dict[str, Any] = {
        "model_type": "deepseek_vl_v2",
        "tile_tag": "2D",
        "global_view_pos": "head",
        "candidate_resolutions": [[384, 384]],
        "language_config": text,
        "projector_config": {"input_dim": 1152, "n_embed": 64},
        "vision_config": {"image_size": 384, "patch_size": 14, "width": 1152},
    }
    write_config(folder, config, "DeepseekVLV2ForCausalLM")
    processor = {"candidate_resolutions": [[384, 384]], "patch_size": 14, "downsample_ratio": 2}
    write_json(folder, "processor_config.json", {"processor_class": "DeepseekVLV2Processor", **processor})


OVIS_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", *(f"<unused{number}>" for number in range(10)), "<think>", "</think>",
    "<image>", "<video>", "<ovis_visual_atom>", "<ovis_image_start>", "<ovis_image_end>", "<ovis_video_start>",
    "<ovis_video_end>",
)  # fmt: skip
FIRST_OVIS_TOKEN = 151643


def begin_special_tokens_at(folder: Path, first: int) -> int:
    """Fill the tokenizer's vocabulary with words, so that its first special token has a certain id; by how much."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    moved = first - len(vocabulary)
    vocabulary.update({f"word{number}": number for number in range(len(vocabulary), first)})
    for token in tokenizer["added_tokens"]:
        token["id"] += moved
    write_json(folder, path.name, tokenizer)
    return moved


@recipe("ovis2_5", video=True, remote_code=True, engine_args={"max_model_len": 4096})
def ovis2_5(folder: Path) -> None:
    """Ovis 2.5: the engine knows the ids of its special tokens by heart, so they are the real ones."""
    from transformers import SiglipImageProcessor

    ids = write_tokenizer(folder, OVIS_TOKENS, eos="<|im_end|>", pad="<|endoftext|>", chat_template=chatml())
    size = ids[""] + begin_special_tokens_at(folder, FIRST_OVIS_TOKEN)
    tower = vision_model(
        112, 16, model_type="siglip2_navit", hidden_stride=2, temporal_patch_size=1, num_channels=3, num_patches=-1,
        window_size=64, fullatt_block_indexes=None, use_rope=True, preserve_original_pe=True, layer_norm_eps=1e-6,
        hidden_act="gelu_pytorch_tanh", attention_dropout=0.0,
    )  # fmt: skip
    config = {
        "model_type": "ovis2_5",
        "llm_config": text_model(size, model_type="qwen3"),
        "vit_config": tower,
        "visual_vocab_size": 128,
        "hidden_size": 64,
    }
    write_remote_config(folder, "Ovis2_5_Config", config, "Ovis2_5")
    SiglipImageProcessor().save_pretrained(folder)
    write_json(folder, "processor_config.json", {"processor_class": "Ovis2_5Processor"})
