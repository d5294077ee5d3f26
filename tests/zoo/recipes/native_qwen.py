"""The Qwen-VL line: images and frames of any size, four patches to a token, positions in three axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import load_tokenizer, recipe, text_model, write_config, write_tokenizer
from tests.zoo.templates import chatml

SYSTEM = "You are a helpful assistant."
OMNI_SYSTEM = (
    "You are Qwen, a virtual human developed by the Qwen Team, Alibaba Group, capable of perceiving auditory and "
    "visual inputs, as well as generating text and speech."
)
PATCHES = {"shortest_edge": 56 * 56, "longest_edge": 112 * 112}
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"


def tokenizer(folder: Path, template: str) -> dict[str, int]:
    """The tokenizer of Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""
    special = (
        "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
        "<|image_pad|>", "<|video_pad|>",
    )  # fmt: skip
    return write_tokenizer(folder, special, eos="<|im_end|>", pad="<|endoftext|>", chat_template=template)


def token_ids(ids: dict[str, int]) -> dict[str, Any]:
    """The config's facts about the tokens."""
    return {
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }


def rope(*section: int, **facts: Any) -> dict[str, Any]:
    """Rotary positions of a head of 32, of which each axis has a section."""
    return {"rope_type": "default", "rope_theta": 1_000_000.0, "mrope_section": list(section)} | facts


def text(ids: dict[str, int], **facts: Any) -> dict[str, Any]:
    """The decoder of Qwen2, whose width and number of heads give the heads' size."""
    config = text_model(ids[""], rope_parameters=rope(4, 6, 6), **facts)
    del config["head_dim"]
    return config


def window_tower(**facts: Any) -> dict[str, Any]:
    """The tower of Qwen2.5, which looks at everything only in its second layer."""
    return {
        "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 64,
        "window_size": 56, "fullatt_block_indexes": [1],
    } | facts  # fmt: skip


def deep_tower() -> dict[str, Any]:
    """The tower of Qwen3, which also hands over what its first layer sees."""
    return {
        "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 64,
        "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
    }  # fmt: skip


@recipe("qwen2_vl", video=True)
def qwen2_vl(folder: Path) -> None:
    """Qwen2-VL."""
    from transformers import Qwen2VLConfig, Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor

    ids = tokenizer(folder, chatml(IMAGE, VIDEO, default_system=SYSTEM))
    tower = {"depth": 2, "embed_dim": 64, "num_heads": 2, "hidden_size": 64}
    config = Qwen2VLConfig(text_config=text(ids), vision_config=tower, **token_ids(ids))
    write_config(folder, config, "Qwen2VLForConditionalGeneration")
    Qwen2VLProcessor(
        Qwen2VLImageProcessor(size=PATCHES), load_tokenizer(folder), Qwen2VLVideoProcessor(size=PATCHES)
    ).save_pretrained(folder)


@recipe("qwen2_5_vl", video=True)
def qwen2_5_vl(folder: Path) -> None:
    """Qwen2.5-VL."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLProcessor, Qwen2VLImageProcessor, Qwen2VLVideoProcessor

    ids = tokenizer(folder, chatml(IMAGE, VIDEO, default_system=SYSTEM))
    config = Qwen2_5_VLConfig(text_config=text(ids), vision_config=window_tower(), **token_ids(ids))
    write_config(folder, config, "Qwen2_5_VLForConditionalGeneration")
    Qwen2_5_VLProcessor(
        Qwen2VLImageProcessor(size=PATCHES), load_tokenizer(folder), Qwen2VLVideoProcessor(size=PATCHES)
    ).save_pretrained(folder)


def save_qwen3_processor(folder: Path) -> None:
    """The processor of Qwen3-VL, whose patches are 16 pixels wide."""
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    middle = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    Qwen3VLProcessor(
        Qwen2VLImageProcessor(size=PATCHES, patch_size=16, **middle),
        load_tokenizer(folder),
        Qwen3VLVideoProcessor(size=PATCHES | {"longest_edge": 8 * 112 * 112}, patch_size=16, **middle),
    ).save_pretrained(folder)


@recipe("qwen3_vl", video=True)
def qwen3_vl(folder: Path) -> None:
    """Qwen3-VL."""
    from transformers import Qwen3VLConfig

    ids = tokenizer(folder, chatml(IMAGE, VIDEO))
    decoder = text_model(ids[""], rope_parameters=rope(6, 5, 5, mrope_interleaved=True))
    config = Qwen3VLConfig(text_config=decoder, vision_config=deep_tower(), **token_ids(ids))
    write_config(folder, config, "Qwen3VLForConditionalGeneration")
    save_qwen3_processor(folder)


@recipe("qwen3_vl_moe", video=True)
def qwen3_vl_moe(folder: Path) -> None:
    """Qwen3-VL with four experts, not square: Transformers tells by the sizes whether a checkpoint's are transposed."""
    from transformers import Qwen3VLMoeConfig

    ids = tokenizer(folder, chatml(IMAGE, VIDEO))
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": True}
    decoder = text_model(ids[""], rope_parameters=rope(6, 5, 5, mrope_interleaved=True), **experts)
    config = Qwen3VLMoeConfig(text_config=decoder, vision_config=deep_tower(), **token_ids(ids))
    write_config(folder, config, "Qwen3VLMoeForConditionalGeneration")
    save_qwen3_processor(folder)


@recipe("qwen2_5_omni", video=True, audio=True)
def qwen2_5_omni(folder: Path) -> None:
    """The thinker of Qwen2.5-Omni, which also has ears."""
    from transformers import (
        Qwen2_5OmniConfig,
        Qwen2_5OmniProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        WhisperFeatureExtractor,
    )

    special = (
        "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_bos|>", "<|vision_eos|>", "<|vision_pad|>",
        "<|IMAGE|>", "<|VIDEO|>", "<|audio_bos|>", "<|audio_eos|>", "<|AUDIO|>",
    )  # fmt: skip
    template = chatml(
        "<|vision_bos|><|IMAGE|><|vision_eos|>",
        "<|vision_bos|><|VIDEO|><|vision_eos|>",
        audio="<|audio_bos|><|AUDIO|><|audio_eos|>",
        default_system=OMNI_SYSTEM,
    )
    names: dict[str, Any] = {
        "image_token": "<|IMAGE|>", "video_token": "<|VIDEO|>", "audio_token": "<|AUDIO|>",
        "vision_bos_token": "<|vision_bos|>", "vision_eos_token": "<|vision_eos|>",
        "audio_bos_token": "<|audio_bos|>", "audio_eos_token": "<|audio_eos|>",
    }  # fmt: skip
    ids = write_tokenizer(folder, special, eos="<|im_end|>", pad="<|endoftext|>", chat_template=template, **names)
    ears = {
        "d_model": 64, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 128, "output_dim": 64,
        "num_mel_bins": 128,
    }  # fmt: skip
    thinker = {
        "text_config": text(ids), "vision_config": window_tower(), "audio_config": ears,
        "image_token_index": ids["<|IMAGE|>"], "video_token_index": ids["<|VIDEO|>"],
        "audio_token_index": ids["<|AUDIO|>"], "audio_start_token_id": ids["<|audio_bos|>"],
        "audio_end_token_id": ids["<|audio_eos|>"], "vision_start_token_id": ids["<|vision_bos|>"],
        "vision_end_token_id": ids["<|vision_eos|>"], "pad_token_id": ids["<|endoftext|>"],
    }  # fmt: skip
    config = Qwen2_5OmniConfig(thinker_config=thinker, enable_audio_output=False)
    write_config(folder, config, "Qwen2_5OmniForConditionalGeneration")
    Qwen2_5OmniProcessor(
        Qwen2VLImageProcessor(size=PATCHES),
        Qwen2VLVideoProcessor(size=PATCHES),
        WhisperFeatureExtractor(feature_size=128),
        load_tokenizer(folder),
    ).save_pretrained(folder)


@recipe("tarsier2", video=True, note="a Qwen2-VL in a LLaVA's shell")
def tarsier2(folder: Path) -> None:
    """Tarsier2."""
    from transformers import Qwen2VLConfig, Qwen2VLImageProcessor, Qwen2VLProcessor, Qwen2VLVideoProcessor

    ids = tokenizer(folder, chatml(IMAGE, VIDEO, default_system=SYSTEM))
    tower = {"depth": 2, "embed_dim": 64, "num_heads": 2, "hidden_size": 64}
    inner = Qwen2VLConfig(text_config=text(ids), vision_config=tower, **token_ids(ids)).to_dict()
    shell = {"model_type": "llava", "text_config": inner, "image_token_index": ids["<|image_pad|>"]}
    write_config(folder, shell, "TarsierForConditionalGeneration")
    Qwen2VLProcessor(
        Qwen2VLImageProcessor(size=PATCHES), load_tokenizer(folder), Qwen2VLVideoProcessor(size=PATCHES)
    ).save_pretrained(folder)
