"""Newer families that transformers knows itself, each with a tower of its own kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import load_tokenizer, recipe, text_model, vision_model, write_config, write_json, write_tokenizer
from tests.zoo.templates import chat_template, chatml


@recipe("lfm2_vl")
def lfm2_vl(folder: Path) -> None:
    """LFM2-VL: a decoder of short convolutions and attention; large images are cut into tiles."""
    from transformers import Lfm2VlImageProcessor, Lfm2VlProcessor

    tiles = [f"<|img_row_{row}_col_{column}|>" for row in range(1, 5) for column in range(1, 5)]
    special = ["<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    special += ["<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", *tiles]
    ids = write_tokenizer(
        folder, special, bos="<|startoftext|>", eos="<|im_end|>", pad="<|pad|>", add_bos=True,
        chat_template="{{- bos_token -}}" + chatml("<image>"), image_token="<image>",
    )  # fmt: skip
    layers = {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}
    config = {
        "model_type": "lfm2_vl",
        "image_token_id": ids["<image>"],
        "downsample_factor": 2,
        "projector_hidden_size": 64,
        "text_config": text_model(ids[""], model_type="lfm2", conv_dim=64, block_dim=64, **layers),
        "vision_config": vision_model(model_type="siglip2_vision_model", patch_size=16, num_patches=64),
    }
    write_config(folder, config, "Lfm2VlForConditionalGeneration")
    images = Lfm2VlImageProcessor(
        max_tiles=4, min_image_tokens=4, max_image_tokens=16, tile_size=64, size={"height": 64, "width": 64},
        max_num_patches=64,
    )  # fmt: skip
    Lfm2VlProcessor(images, load_tokenizer(folder)).save_pretrained(folder)


@recipe("gemma4_e", video=True, audio=True)
def gemma4_e(folder: Path) -> None:
    """The smaller Gemma 4, which hear, too: a conformer of one layer.

    Its first convolution has as many channels as the sound has mel bins, 128: the library computes the width of the
    next layer from the former, and with other numbers vLLM's linear layer for CPUs writes beyond its memory.
    """
    from transformers import Gemma4AudioConfig

    ears = Gemma4AudioConfig(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=2, subsampling_conv_channels=[128, 8],
        output_proj_dims=64,
    )  # fmt: skip
    _gemma4(folder, ears.to_dict())


@recipe("gemma4", video=True)
def gemma4(folder: Path) -> None:
    """Gemma 4: 70 tokens an image at most, embeddings for every layer."""
    _gemma4(folder, None)


def gemma4_tokenizer(folder: Path) -> dict[str, int]:
    """Write the tokenizer of Gemma 4, with its chat template."""
    marks = {
        "image_token": "<|image|>", "boi_token": "<|image>", "eoi_token": "<image|>",
        "audio_token": "<|audio|>", "boa_token": "<|audio>", "eoa_token": "<audio|>",
    }  # fmt: skip
    turns = ("<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<start_of_turn>", "<end_of_turn>")
    template = chat_template(
        {"system": "<|turn>system\n", "user": "<|turn>user\n", "assistant": "<|turn>model\n"},
        "<turn|>\n", "<|turn>model\n", start="<bos>", image="<|image|>", video="<|video|>", audio="<|audio|>",
    )  # fmt: skip
    return write_tokenizer(
        folder, ["<pad>", "<eos>", "<bos>", "<unk>", *marks.values(), "<|video|>", *turns],
        bos="<bos>", eos="<eos>", pad="<pad>", unk="<unk>", words=["\n", "\n\n"], chat_template=template,
        extra_special_tokens=marks,
    )  # fmt: skip


def _gemma4(folder: Path, ears: dict[str, Any] | None) -> None:
    ids = gemma4_tokenizer(folder)
    text = text_model(
        ids[""], model_type="gemma4_text", layer_types=["sliding_attention", "full_attention"], sliding_window=512,
        global_head_dim=64, vocab_size_per_layer_input=ids[""], hidden_size_per_layer_input=16,
        final_logit_softcapping=30.0,
    )  # fmt: skip
    vision = vision_model(
        model_type="gemma4_vision", patch_size=16, pooling_kernel_size=3, position_embedding_size=128,
        num_key_value_heads=2, head_dim=32, default_output_length=70,
    )  # fmt: skip
    config = {
        "model_type": "gemma4",
        "image_token_id": ids["<|image|>"],
        "video_token_id": ids["<|video|>"],
        "boi_token_id": ids["<|image>"],
        "eoi_token_id": ids["<image|>"],
        "audio_token_id": ids["<|audio|>"],
        "boa_token_id": ids["<|audio>"],
        "eoa_token_id": ids["<audio|>"],
        "eoa_token_index": ids["<audio|>"],
        "audio_config": ears,
        "text_config": text,
        "vision_config": vision,
        "vision_soft_tokens_per_image": 70,
    }
    write_config(folder, config, "Gemma4ForConditionalGeneration")
    processor = {
        "processor_class": "Gemma4Processor",
        "image_seq_length": 70,
        "audio_seq_length": 100,
        "image_processor": {"image_processor_type": "Gemma4ImageProcessor", "max_soft_tokens": 70},
        "video_processor": {"video_processor_type": "Gemma4VideoProcessor", "max_soft_tokens": 70, "num_frames": 4},
        "feature_extractor": {"feature_extractor_type": "Gemma4AudioFeatureExtractor"},
    }
    write_json(folder, "processor_config.json", processor)


@recipe("paddleocr_vl")
def paddleocr_vl(folder: Path) -> None:
    """PaddleOCR-VL: any size of image, 2 × 2 patches a token."""
    from transformers import PaddleOCRVLImageProcessor, PaddleOCRVLProcessor

    start, end, image = "<|IMAGE_START|>", "<|IMAGE_END|>", "<|IMAGE_PLACEHOLDER|>"
    begin = "<|begin_of_sentence|>"
    template = chat_template(
        {"system": "", "user": "User: ", "assistant": "Assistant: "},
        {"system": "\n", "user": "\n", "assistant": "</s>"},
        "Assistant: ", start=begin, image=f"{start}{image}{end}", media_first=True,
    )  # fmt: skip
    ids = write_tokenizer(
        folder, ["<unk>", "<s>", "</s>", "<|end_of_sentence|>", begin, start, image, end], bos="<s>", eos="</s>",
        pad="<unk>", unk="<unk>", chat_template=template, extra_special_tokens={"image_token": image},
        image_token=image,
    )  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 500000, "mrope_section": [4, 6, 6]}
    config = {
        "model_type": "paddleocr_vl",
        "image_token_id": ids[image],
        "video_token_id": ids["<unk>"],
        "vision_start_token_id": ids[start],
        "vision_end_token_id": ids[end],
        "text_config": text_model(ids[""], model_type="paddleocr_vl_text", rope_parameters=rope),
        "vision_config": vision_model(112, model_type="paddleocr_vl_vision"),
    }
    write_config(folder, config, "PaddleOCRVLForConditionalGeneration")
    sizes = {"shortest_edge": 56 * 56, "longest_edge": 112 * 112}
    PaddleOCRVLProcessor(
        PaddleOCRVLImageProcessor(size=sizes), load_tokenizer(folder), chat_template=template
    ).save_pretrained(folder)


@recipe("granite4_vision")
def granite4_vision(folder: Path) -> None:
    """Granite Vision 4: features of several layers of the tower, each put into a layer of the decoder."""
    from transformers import Granite4VisionProcessor, LlavaNextImageProcessor

    grids = [[64, 128], [128, 64], [128, 128]]
    special = ["<|end_of_text|>", "<|pad|>", "<|start_of_role|>", "<|end_of_role|>", "<image>"]
    roles = ("system", "user", "assistant")
    template = chat_template(
        {role: f"<|start_of_role|>{role}<|end_of_role|>" for role in roles}, "<|end_of_text|>\n",
        "<|start_of_role|>assistant<|end_of_role|>", image="<image>\n",
    )  # fmt: skip
    ids = write_tokenizer(
        folder, special, bos="<|end_of_text|>", eos="<|end_of_text|>", pad="<|pad|>", chat_template=template,
        image_token="<image>",
    )  # fmt: skip
    granite = {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.125}
    config = {
        "model_type": "granite4_vision",
        "image_token_index": ids["<image>"],
        "image_grid_pinpoints": grids,
        "downsample_rate": "1/2",
        "deepstack_layer_map": [[-2, 0], [-1, 1]],
        "spatial_vision_layer": -1,
        "spatial_target_layers": [2, 3, 4, 5],
        "vision_feature_select_strategy": "full",
        "text_config": text_model(ids[""], model_type="granite4_vision_text", num_hidden_layers=6, **granite),
        "vision_config": vision_model(64, 16, model_type="siglip_vision_model"),
    }
    write_config(folder, config, "Granite4VisionForConditionalGeneration")
    side = {"height": 64, "width": 64}
    Granite4VisionProcessor(
        LlavaNextImageProcessor(size={"shortest_edge": 64}, crop_size=side, image_grid_pinpoints=grids),
        load_tokenizer(folder), patch_size=16, vision_feature_select_strategy="full", downsample_rate="1/2",
    ).save_pretrained(folder)  # fmt: skip


@recipe("bagel")
def bagel(folder: Path) -> None:
    """BAGEL, the half that sees: always as many tokens as the tower has patches."""
    from transformers import SiglipImageProcessor

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
    ids = write_tokenizer(folder, special, eos="<|im_end|>", pad="<|endoftext|>", chat_template=chatml())
    config = {
        "model_type": "bagel",
        "llm_config": text_model(ids[""], model_type="qwen2"),
        "vit_config": vision_model(56, model_type="siglip_vision_model"),
        "vit_max_num_patch_per_side": 4,
    }
    write_config(folder, config, "BagelForConditionalGeneration")
    SiglipImageProcessor(size={"height": 56, "width": 56}).save_pretrained(folder)
