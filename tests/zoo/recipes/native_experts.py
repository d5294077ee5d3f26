"""Families whose decoder is a mixture of experts: Aria, Llama 4, Step 3 and DeepSeek-OCR."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import load_tokenizer, recipe, text_model, vision_model, write_config, write_tokenizer
from tests.zoo.templates import chat_template, chatml

VOCABULARY = 100_352
"""Aria's stop tokens are given by their number, so its vocabulary has to be as large as the real one."""


@recipe("aria")
def aria(folder: Path) -> None:
    """Aria. Images are 490 or 980 pixels wide, so the patches are large: 100 of them, which become 8 tokens."""
    from transformers import AriaConfig, AriaImageProcessor, AriaProcessor, AriaTextConfig

    special = ("<unk>", "<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>", "<fim_prefix>", "<|img|>", "<fim_suffix>")
    ids = write_tokenizer(
        folder, special, bos="<s>", eos="</s>", pad="<pad>", unk="<unk>", image_token="<|img|>",
        chat_template=chatml("<fim_prefix><|img|><fim_suffix>"),
    )  # fmt: skip
    experts = {"moe_num_experts": 4, "moe_topk": 2, "moe_num_shared_experts": 1}
    config = AriaConfig(
        vision_config=vision_model(980, 98, model_type="idefics3_vision"),
        text_config=AriaTextConfig(**text_model(VOCABULARY, **experts)),
        projector_patch_to_query_dict={25: 4, 100: 8}, image_token_index=ids["<|img|>"],
    )  # fmt: skip
    write_config(folder, config, "AriaForConditionalGeneration")
    AriaProcessor(AriaImageProcessor(), load_tokenizer(folder), size_conversion={490: 4, 980: 8}).save_pretrained(
        folder
    )


@recipe("llama4", note="an image of one tile only fails on a CPU: oneDNN refuses its patches")
def llama4(folder: Path) -> None:
    """Llama 4: four tokens a tile, and a tile for the whole. Tiles are small, so that most images have several."""
    from transformers import Llama4Config, Llama4ImageProcessor, Llama4Processor

    side = 56
    special = (
        "<|begin_of_text|>", "<|end_of_text|>", "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>",
        "<|finetune_right_pad|>", "<|image_start|>", "<|image_end|>", "<|image|>", "<|patch|>",
        "<|tile_x_separator|>", "<|tile_y_separator|>",
    )  # fmt: skip
    template = chat_template(
        {role: f"<|header_start|>{role}<|header_end|>\n\n" for role in ("system", "user", "assistant")},
        "<|eot|>",
        "<|header_start|>assistant<|header_end|>\n\n",
        image="<|image|>",
        start="<|begin_of_text|>",
    )
    ids = write_tokenizer(
        folder, special, bos="<|begin_of_text|>", eos="<|eot|>", pad="<|finetune_right_pad|>", add_bos=True,
        chat_template=template,
    )  # fmt: skip
    tower = vision_model(
        side, intermediate_size=256, vision_output_dim=64, projector_input_dim=64, projector_output_dim=64
    )
    experts = {"num_local_experts": 4, "intermediate_size": 64, "intermediate_size_mlp": 128}
    decoder = text_model(ids[""], **experts, attention_chunk_size=4096)
    config = Llama4Config(
        vision_config=tower, text_config=decoder, image_token_index=ids["<|patch|>"],
        boi_token_index=ids["<|image_start|>"], eoi_token_index=ids["<|image_end|>"],
    )  # fmt: skip
    write_config(folder, config, "Llama4ForConditionalGeneration")
    Llama4Processor(
        Llama4ImageProcessor(size={"height": side, "width": side}, max_patches=4), load_tokenizer(folder)
    ).save_pretrained(folder)


@recipe("step3")
def step3(folder: Path) -> None:
    """Step 3: 169 tokens an image, always; its config and processor come with vLLM."""
    special = (
        "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<|BOT|>", "<|EOT|>", "<im_patch>", "<im_start>",
        "<im_end>", "<patch_start>", "<patch_end>", "<patch_newline>", "<think>", "</think>",
    )  # fmt: skip
    template = chat_template(
        {"system": " ", "user": "<|BOT|>user\n ", "assistant": "<|BOT|>assistant\n "},
        {"system": " ", "user": " <|EOT|>", "assistant": "<|EOT|>"},
        "<|BOT|>assistant\n<think>\n",
        image="<im_patch>",
        start="<｜begin▁of▁sentence｜>",
        default_system=" You are a helpful assistant. ",
    )
    ids = write_tokenizer(
        folder,
        special,
        bos="<｜begin▁of▁sentence｜>",
        eos="<|EOT|>",
        pad="<｜end▁of▁sentence｜>",
        chat_template=template,
    )
    tower = vision_model(728, 14, output_hidden_size=64)
    decoder = text_model(ids[""]) | {
        "num_attention_groups": 1, "max_seq_len": 4096, "max_position_embedding": 4096, "moe_intermediate_size": 64,
        "moe_num_experts": 4, "moe_top_k": 2, "share_expert_dim": 64, "share_q_dim": 64, "moe_layers_enum": "1",
        "architectures": ["Step3TextForCausalLM"],
    }  # fmt: skip
    config = {
        "model_type": "step3_vl", "vision_config": tower, "text_config": decoder, "understand_projector_stride": 2,
        "projector_bias": False, "image_token_id": ids["<im_patch>"], "bos_token_id": ids["<｜begin▁of▁sentence｜>"],
        "eos_token_id": ids["<|EOT|>"],
    }  # fmt: skip
    write_config(folder, config, "Step3VLForConditionalGeneration")


@recipe("deepseek_ocr", note="slow on a CPU, about half a minute an image: its two towers have one size only")
def deepseek_ocr(folder: Path) -> None:
    """DeepSeek-OCR: SAM and CLIP in full size on a tiny decoder. It has no chat template."""
    write_deepseek_ocr(folder, "deepseek_vl_v2", "DeepseekOCRForCausalLM")


@recipe("unlimited_ocr", engine_args={"mm_encoder_attn_backend": "TORCH_SDPA"}, note="slow on a CPU, as deepseek_ocr")
def unlimited_ocr(folder: Path) -> None:
    """Unlimited-OCR: DeepSeek-OCR that keeps a window of what it wrote."""
    write_deepseek_ocr(folder, "unlimited-ocr", "UnlimitedOCRForCausalLM", rswa_window=128)


def write_deepseek_ocr(folder: Path, model_type: str, architecture: str, **facts: Any) -> None:
    special = (
        "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<image>", "<|User|>", "<|Assistant|>",
        "<|grounding|>", "<td>", "</td>",
    )  # fmt: skip
    ids = write_tokenizer(
        folder, special, bos="<｜begin▁of▁sentence｜>", eos="<｜end▁of▁sentence｜>", pad="<｜▁pad▁｜>", add_bos=True
    )
    decoder = text_model(ids[""]) | {
        "model_type": "deepseek_v2", "use_mla": False, "kv_lora_rank": None, "q_lora_rank": None, "v_head_dim": 32,
        "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "moe_intermediate_size": 64, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "num_key_value_heads": 2, "topk_method": "greedy", "scoring_func": "softmax", "n_group": 1, "topk_group": 1,
        "norm_topk_prob": False, "routed_scaling_factor": 1.0,
    }  # fmt: skip
    config = {
        "model_type": model_type, "language_config": decoder, "tile_tag": "2D", "global_view_pos": "head",
        "candidate_resolutions": [[1024, 1024]], "vocab_size": ids[""], "bos_token_id": ids["<｜begin▁of▁sentence｜>"],
        "eos_token_id": ids["<｜end▁of▁sentence｜>"], "vision_config": {"model_type": "vision", "image_size": 1024},
        "projector_config": {
            "model_type": "mlp_projector", "projector_type": "linear", "input_dim": 2048, "n_embed": 64,
        },
    } | facts  # fmt: skip
    write_config(folder, config, architecture)
