"""Families of 2026."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

from tests.zoo.kit import load_tokenizer, recipe, text_model, vision_model, write_config, write_json, write_tokenizer
from tests.zoo.recipes.native_qwen import PATCHES, deep_tower
from tests.zoo.recipes.newer_qwen import (
    BFLOAT16,
    linear_attention,
    merging_processor,
    merging_tower,
    qwen3_5_checkpoint,
)
from tests.zoo.recipes.newer_shims import write_remote_config, write_remote_processor
from tests.zoo.recipes.newer_small import gemma4_tokenizer
from tests.zoo.recipes.special_patches import deepseek_text
from tests.zoo.templates import chat_template, chatml
from vlmtui.domain.engine import TRANSFORMERS_BACKEND


@recipe("gemma4_unified", video=True, audio=True)
def gemma4_unified(folder: Path) -> None:
    """Gemma 4 12B: no towers; patches of 48 pixels and 640 samples of sound go straight into the decoder."""
    ids = gemma4_tokenizer(folder)
    text = text_model(
        ids[""], model_type="gemma4_unified_text", layer_types=["sliding_attention", "full_attention"],
        sliding_window=512, global_head_dim=64, final_logit_softcapping=30.0,
    )  # fmt: skip
    config = {
        "model_type": "gemma4_unified",
        "image_token_id": ids["<|image|>"],
        "video_token_id": ids["<|video|>"],
        "boi_token_id": ids["<|image>"],
        "eoi_token_id": ids["<image|>"],
        "audio_token_id": ids["<|audio|>"],
        "boa_token_id": ids["<|audio>"],
        "eoa_token_id": ids["<audio|>"],
        "eoa_token_index": ids["<audio|>"],
        "audio_config": {"model_type": "gemma4_unified_audio", "audio_embed_dim": 640},
        "text_config": text,
        "vision_config": {
            "model_type": "gemma4_unified_vision", "mm_embed_dim": 64, "mm_posemb_size": 128, "output_proj_dims": 64,
            "num_soft_tokens": 70,
        },
    }  # fmt: skip
    write_config(folder, config, "Gemma4UnifiedForConditionalGeneration")
    processor = {
        "processor_class": "Gemma4UnifiedProcessor",
        "image_seq_length": 70,
        "audio_seq_length": 750,
        "image_processor": {"image_processor_type": "Gemma4UnifiedImageProcessor", "max_soft_tokens": 70},
        "video_processor": {
            "video_processor_type": "Gemma4UnifiedVideoProcessor", "max_soft_tokens": 70, "num_frames": 4,
        },
        "feature_extractor": {"feature_extractor_type": "Gemma4UnifiedAudioFeatureExtractor"},
    }  # fmt: skip
    write_json(folder, "processor_config.json", processor)


def minicpmv(folder: Path, kind: str, architecture: str, **more: Any) -> None:
    """Write a MiniCPM-V on Qwen3.5's decoder; its tower merges 2 × 2 patches twice."""
    marks = {
        "image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "image_start_token": "<image>",
        "image_end_token": "</image>", "slice_start_token": "<slice>", "slice_end_token": "</slice>",
        "image_id_start_token": "<image_id>", "image_id_end_token": "</image_id>",
    }  # fmt: skip
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *marks.values(), "<think>", "</think>"]
    ids = write_tokenizer(
        folder, special, eos="<|im_end|>", pad="<|endoftext|>", words=["\n"],
        chat_template=chatml("<|image_pad|>", "<|video_pad|>"), extra_special_tokens=marks,
    )  # fmt: skip
    tower = {
        "model_type": f"{kind}_vision", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": 112, "patch_size": 14,
    }  # fmt: skip
    config = {
        "model_type": kind,
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "insert_layer_id": 0,
        "image_size": 112,
        "max_slice_nums": 4,
        "text_config": text_model(ids[""], model_type="qwen3_5_text", **linear_attention()),
        "vision_config": tower,
        "uses_mrope_canvas": bool(more),
        **{name: ids[token] for name, token in more.items()},
    }
    write_config(folder, config, architecture)
    cut = {"max_slice_nums": 4, "scale_resolution": 112}
    processor = f"MiniCPMV{kind.removeprefix('minicpmv')}"
    write_json(
        folder, "preprocessor_config.json",
        {"processor_class": f"{processor}Processor", "image_processor_type": "MiniCPMV4_6ImageProcessor", **cut},
    )  # fmt: skip
    write_json(
        folder, "video_preprocessor_config.json",
        {"processor_class": f"{processor}Processor", "video_processor_type": "MiniCPMV4_6VideoProcessor", **cut},
    )  # fmt: skip
    write_json(folder, "processor_config.json", {"processor_class": f"{processor}Processor"})


@recipe("minicpmv4_6", video=True, engine_args=BFLOAT16)
def minicpmv4_6(folder: Path) -> None:
    """MiniCPM-V 4.6."""
    minicpmv(folder, "minicpmv4_6", "MiniCPMV4_6ForConditionalGeneration")


@recipe("minicpmv4_7", video=True, engine_args=BFLOAT16)
def minicpmv4_7(folder: Path) -> None:
    """MiniCPM-V 4.7, whose positions follow a canvas of slices."""
    minicpmv(
        folder, "minicpmv4_7", "MiniCPMV4_7ForConditionalGeneration", image_start_id="<image>",
        image_end_id="</image>", slice_start_id="<slice>", slice_end_id="</slice>", newline_id="\n",
    )  # fmt: skip


@recipe("qwen3_omni", video=True, audio=True)
def qwen3_omni(folder: Path) -> None:
    """The thinker of Qwen3-Omni: Qwen3-VL's eyes, ears of convolutions and windows, and four experts."""
    names: dict[str, Any] = {
        "image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "audio_token": "<|audio_pad|>",
        "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>",
        "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>",
    }  # fmt: skip
    template = chatml(
        "<|vision_start|><|image_pad|><|vision_end|>",
        "<|vision_start|><|video_pad|><|vision_end|>",
        audio="<|audio_start|><|audio_pad|><|audio_end|>",
    )
    ids = write_tokenizer(
        folder, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *names.values()], eos="<|im_end|>",
        pad="<|endoftext|>", chat_template=template, **names,
    )  # fmt: skip
    ears = {
        "d_model": 64, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 128, "output_dim": 64,
        "num_mel_bins": 128, "downsample_hidden_size": 16,
    }  # fmt: skip
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
    positions = {
        "rope_type": "default", "rope_theta": 1_000_000.0, "mrope_section": [6, 5, 5], "mrope_interleaved": True,
    }  # fmt: skip
    thinker = {
        "audio_config": ears,
        "text_config": text_model(ids[""], rope_parameters=positions, **experts) | {"tie_word_embeddings": False},
        "vision_config": deep_tower() | {"image_size": 128, "apply_vit_abs_pos_embed": True},
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "audio_token_id": ids["<|audio_pad|>"],
        "audio_start_token_id": ids["<|audio_start|>"],
        "audio_end_token_id": ids["<|audio_end|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
    }
    config = {"model_type": "qwen3_omni_moe", "thinker_config": thinker, "enable_audio_output": False}
    write_config(folder, config, "Qwen3OmniMoeForConditionalGeneration")
    cut = {"patch_size": 16, "merge_size": 2, "temporal_patch_size": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    write_json(
        folder, "preprocessor_config.json",
        {
            "processor_class": "Qwen3OmniMoeProcessor", "image_processor_type": "Qwen2VLImageProcessor",
            "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128, "size": PATCHES, **cut,
        },
    )  # fmt: skip
    write_json(
        folder, "video_preprocessor_config.json",
        {
            "processor_class": "Qwen3OmniMoeProcessor", "video_processor_type": "Qwen2VLVideoProcessor",
            "size": PATCHES, **cut,
        },
    )  # fmt: skip
    write_json(folder, "processor_config.json", {"processor_class": "Qwen3OmniMoeProcessor"})


@recipe("interns2_preview", video=True, remote_code=True, engine_args=BFLOAT16)
def interns2_preview(folder: Path) -> None:
    """Intern-S2-Preview: Qwen3.5 with experts. Its tower for time series, which vLLM leaves out, is missing."""
    qwen3_5_checkpoint(
        folder, "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration",
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64,
    )  # fmt: skip
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_remote_config(
        folder, "InternS2PreviewConfig", config | {"model_type": "interns2_preview"},
        "InternS2PreviewForConditionalGeneration",
    )  # fmt: skip


@recipe("step3p7", remote_code=True, note="169 tokens an image, whatever its size")
def step3p7(folder: Path) -> None:
    """Step-3.7: a perception encoder, and experts below gated attention with a sliding window in every other layer.

    A softmax chooses the experts: vLLM's router for CPUs has no sigmoid without groups.
    """
    special = [
        "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<im_start>", "<im_end>", "<patch_start>", "<patch_end>",
        "<patch_newline>", "<im_patch>", "<think>", "</think>",
    ]  # fmt: skip
    template = chatml("<im_patch>", answer="<|im_start|>assistant\n<think>\n")
    ids = write_tokenizer(folder, special, eos="<|im_end|>", pad="<|endoftext|>", chat_template=template)
    heads = {"num_attention_heads": 4, "num_attention_groups": 2, "head_dim": 32}
    text = text_model(ids[""], **heads, num_key_value_heads=2) | {
        "model_type": "step3p5_text", "architectures": ["Step3p5ForCausalLM"], "att_impl_type": "GQA",
        "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 512,
        "attention_other_setting": {"attention_type": "sliding_attention", **heads},
        "partial_rotary_factors": [0.5, 1.0], "rope_theta": [1e6, 1e4], "use_head_wise_attn_gate": True,
        "moe_num_experts": 4, "moe_top_k": 2, "moe_intermediate_size": 64, "moe_layers_enum": "1",
        "share_expert_dim": 64, "use_moe_router_bias": True, "need_fp32_gate": True, "norm_expert_weight": True,
        "moe_router_activation": "softmax", "moe_router_scaling_factor": 3.0, "swiglu_limits": None,
        "swiglu_limits_shared": None, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    }  # fmt: skip
    tower = {
        "image_size": 728, "patch_size": 14, "width": 32, "layers": 2, "heads": 1, "mlp_ratio": 2.0,
        "output_dim": None, "hidden_act": "quick_gelu", "ls_init_value": 0.1, "use_abs_posemb": True,
        "use_cls_token": False, "use_rope2d": True, "use_ln_pre": True, "use_ln_post": False,
    }  # fmt: skip
    config = {
        "model_type": "step3p7",
        "image_token_id": ids["<im_patch>"],
        "projector_bias": False,
        "understand_projector_stride": 2,
        "text_config": text,
        "vision_config": tower,
    }
    write_remote_config(folder, "Step3p7Config", config, "Step3p7ForConditionalGeneration")


def without_names_of_functions() -> None:
    """Lets vLLM's CPU worker read `__dict__` of all that lies in a module.

    Kimi's class imports numba into a forked engine, and llvmlite's library, which is no namespace, takes any name for
    that of a function.
    """
    from llvmlite.binding import ffi  # type: ignore[import-untyped]

    functions = ffi._lib_wrapper.__getattr__

    def only_functions(library: object, name: str) -> object:
        if name == "__dict__":
            raise AttributeError(name)
        return functions(library, name)

    ffi._lib_wrapper.__getattr__ = only_functions


@recipe("kimi_k25", remote_code=True, environment={"VLLM_MLA_DISABLE": "1"}, prepare=without_names_of_functions)
def kimi_k25(folder: Path) -> None:
    """Kimi-K2.5: MoonViT in space and time, and a DeepSeek decoder with experts."""
    media = ("<|media_begin|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>")
    turns = ("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>")
    template = chat_template(
        {role: f"<|im_{role}|>{role}<|im_middle|>" for role in ("system", "user", "assistant")}, "<|im_end|>",
        "<|im_assistant|>assistant<|im_middle|><think>",
        image="<|media_begin|>image<|media_content|><|media_pad|><|media_end|>\n",
    )  # fmt: skip
    ids = write_tokenizer(
        folder, ["[BOS]", "[EOS]", "[PAD]", *turns, *media], bos="[BOS]", eos="[EOS]", pad="[PAD]",
        chat_template=template, words=["<think>", "</think>"],
    )  # fmt: skip
    config = {
        "model_type": "kimi_k25",
        "image_token_id": ids["<|media_pad|>"],
        "use_unified_vision_chunk": True,
        "video_placeholder": "<|kimi_k25_video_placeholder|>",
        "text_config": deepseek_text(ids[""]),
        "vision_config": vision_model(pos_emb_height=8, pos_emb_width=8, pos_emb_time=4),
    }
    write_config(folder, config, "KimiK25ForConditionalGeneration")
    limits = {
        "in_patch_limit": 64, "patch_limit_on_one_side": 16, "patch_size": 14, "merge_kernel_size": 2,
        "fixed_output_tokens": None, "in_patch_limit_each_frame": 64, "in_patch_limit_video": None,
        "temporal_merge_kernel_size": 4, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    }  # fmt: skip
    write_json(folder, "preprocessor_config.json", {"media_proc_cfg": limits})


@recipe(
    "nano_nemotron_vl",
    video=True,
    remote_code=True,
    # What leaves the tower is bfloat16, always; and with a cache of prefixes vLLM looks for Mamba's states.
    engine_args={**BFLOAT16, "enable_prefix_caching": False},
    note="its smallest tower has 22 million parameters",
)
def nano_nemotron_vl(folder: Path) -> None:
    """Nemotron Nano VL: RADIO, and a Nemotron-H of attention alone, since vLLM's Mamba layers need a GPU."""
    special = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<image>"]
    ids = write_tokenizer(
        folder, special, bos="<s>", eos="<|im_end|>", pad="</s>", unk="<unk>", words=["<video>", "<think>", "</think>"],
        chat_template=chatml("<image>\n", "<video>\n"),
    )  # fmt: skip
    text = text_model(ids[""]) | {
        "model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"], "hybrid_override_pattern": "*-*-",
        "dtype": "bfloat16",
        "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2,
    }  # fmt: skip
    del text["num_hidden_layers"]
    config = {
        "model_type": "NemotronH_Nano_VL_V2",
        "force_image_size": 64,
        "patch_size": 16,
        "downsample_ratio": 0.5,
        "use_thumbnail": True,
        "norm_mean": [0.5] * 3,
        "norm_std": [0.5] * 3,
        "template": "chatml",
        "ps_version": "v2",
        "image_tag_type": "internvl",
        "vit_hidden_size": 384,
        "projector_hidden_size": 64,
        "text_config": text,
        "vision_config": {"patch_size": 16, "args": {"model": "vit_small_patch16_224", "cpe_max_size": 256}},
    }
    write_remote_config(folder, "NemotronNanoVLConfig", config, "NemotronH_Nano_VL_V2")


@recipe("minimax_m3", video=True, backend=TRANSFORMERS_BACKEND, note="in Transformers; vLLM's class is for GPUs")
def minimax_m3(folder: Path) -> None:
    """MiniMax-M3: a dense layer, and one of experts whose attention reads the blocks that an index chooses."""
    marks = ("]<]image[>[", "]<]video[>[", "]<]start of image[>[", "]<]end of image[>[")
    turns = ("<bos>", "<eos>", "<pad>", "<|im_start|>", "<|im_end|>", "<mm:think>", "</mm:think>")
    ids = write_tokenizer(
        folder, [*turns, *marks], bos="<bos>", eos="<eos>", pad="<pad>", chat_template=chatml(marks[0], marks[1])
    )
    text = text_model(
        ids[""], num_local_experts=4, num_experts_per_tok=2, dense_intermediate_size=128, shared_intermediate_size=64,
        rotary_dim=16, mlp_layer_types=["dense", "sparse"], layer_types=["full_attention", "minimax_m3_sparse"],
        index_n_heads=1, index_head_dim=32, index_block_size=16, index_topk_blocks=4,
        bos_token_id=ids["<bos>"], eos_token_id=ids["<eos>"], pad_token_id=ids["<pad>"],
    )  # fmt: skip
    config = {
        "model_type": "minimax_m3_vl",
        "text_config": text,
        "vision_config": vision_model(112, spatial_merge_size=2, temporal_patch_size=2, num_channels=3),
        "image_token_index": ids[marks[0]],
        "video_token_index": ids[marks[1]],
        "projector_hidden_size": 64,
    }
    write_config(folder, config, "MiniMaxM3SparseForConditionalGeneration")
    merging_processor(folder, "MiniMaxM3VLProcessor", 14, "MiniMaxM3VL", "MiniMaxM3VL")


@recipe("glm5_next", video=True, backend=TRANSFORMERS_BACKEND, note="in Transformers; vLLM's class is for GPUs")
def glm5_next(folder: Path) -> None:
    """GLM-5.3-Flash: a layer of linear attention and one of latent attention with an index, four streams wide."""
    roles = ("system", "user", "assistant")
    media = ("begin_of_image", "end_of_image", "image", "begin_of_video", "end_of_video", "video")
    template = chat_template(
        {"system": "<|system|>", "user": "<|user|>", "assistant": "<|assistant|><think></think>"}, "",
        "<|assistant|><think>",
        start="[gMASK]<sop><|system|>Reasoning Effort: Max",
        image="<|begin_of_image|><|image|><|end_of_image|>", video="<|begin_of_video|><|video|><|end_of_video|>",
    )  # fmt: skip
    special = ["<|endoftext|>", "[gMASK]", "<sop>", *(f"<|{name}|>" for name in (*roles, "observation", *media))]
    ids = write_tokenizer(folder, [*special, "<think>", "</think>"], eos="<|endoftext|>", chat_template=template)
    text = text_model(
        ids[""], num_key_value_heads=2, moe_intermediate_size=64, n_routed_experts=4, num_experts_per_tok=2,
        kv_lora_rank=32, q_lora_rank=32, v_head_dim=32, qk_nope_head_dim=32, index_topk=64, index_head_dim=32,
        index_n_heads=2, linear_head_dim=32, linear_num_heads=2, hc_mult=2, pad_token_id=ids["<|endoftext|>"],
        layer_types=["linear_attention", "indexed_attention"], mlp_layer_types=["dense", "sparse"],
    )  # fmt: skip
    del text["head_dim"]
    config = {
        "model_type": "glm5_next",
        "image_token_id": ids["<|image|>"],
        "video_token_id": ids["<|video|>"],
        "image_start_token_id": ids["<|begin_of_image|>"],
        "image_end_token_id": ids["<|end_of_image|>"],
        "video_start_token_id": ids["<|begin_of_video|>"],
        "video_end_token_id": ids["<|end_of_video|>"],
        "text_config": text,
        "vision_config": merging_tower(14, image_size=112, projection_intermediate_size=128),
    }
    write_config(folder, config, "Glm5NextForConditionalGeneration")
    merging_processor(folder, "Glm5NextProcessor", 14, "Glm5Next", "Glm5Next")


@recipe("qwen4_exp", video=True, backend=TRANSFORMERS_BACKEND, note="in Transformers; vLLM's class is for GPUs")
def qwen4_exp(folder: Path) -> None:
    """Qwen3.8-Flash-Next: Qwen3.5 with experts, sparse attention, and several streams between its layers."""
    qwen3_5_checkpoint(
        folder, "qwen4_exp", "Qwen4ExpForConditionalGeneration",
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, shared_expert_intermediate_size=64,
        hc_count=2, hc_lowrank=16, indexer_n_heads=2, indexer_kv_heads=1, indexer_head_dim=32, indexer_budget=64,
        indexer_compress_ratio=16,
    )  # fmt: skip


@recipe("mimo_v2", video=True, remote_code=True)
def mimo_v2(folder: Path) -> None:
    """MiMo-V2.5 without its ears: a tower of full attention, since its windows need a GPU, and experts."""
    media = ("<|vision_start|>", "<|image_pad|>", "<|video_pad|>", "<|vision_end|>", "<|video_start|>", "<|video_end|>")
    template = chatml("<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>")
    ids = write_tokenizer(
        folder, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *media], eos="<|im_end|>", pad="<|endoftext|>",
        words=["<think>", "</think>"], chat_template=template,
    )  # fmt: skip
    tower = {
        "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "num_key_value_heads": 1,
        "num_query_groups": 1, "kv_channels": 32, "qk_channels": 32, "out_hidden_size": 64, "patch_size": 16,
        "fullatt_block_indexes": [0, 1], "vit_window_attn_types": [-1, -1], "use_sink": False, "hidden_act": "silu",
        "in_channels": 3, "spatial_merge_size": 2, "temporal_patch_size": 2, "tokens_per_second": 2,
        "window_size": 128, "visual_token_window_size": 64,
    }  # fmt: skip
    heads = {"swa_num_attention_heads": 2, "swa_num_key_value_heads": 1, "swa_head_dim": 32, "swa_v_head_dim": 32}
    config = {
        "model_type": "mimo_v2",
        **text_model(ids[""]),
        **heads,
        "v_head_dim": 32,
        "hidden_act": "silu",
        "layernorm_epsilon": 1e-5,
        "attention_bias": False,
        "rope_theta": 1e6,
        "partial_rotary_factor": 0.5,
        "sliding_window_size": 512,
        "hybrid_layer_pattern": [0, 1],
        "moe_layer_freq": [0, 1],
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
        "n_group": 1,
        "topk_group": 1,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "routed_scaling_factor": 1.0,
        "tie_word_embeddings": False,
        "vision_config": tower,
        "processor_config": {
            "image_min_pixels": 64 * 64, "image_max_pixels": 128 * 128, "video_min_pixels": 64 * 64,
            "video_max_pixels": 128 * 128,
            **{f"{name.strip('<|>')}_token_id".replace("_pad_", "_"): ids[name] for name in media},
        },
    }  # fmt: skip
    write_remote_config(folder, "MiMoV2Config", config, "MiMoV2OmniForCausalLM")


@recipe("pixtral", modes=("chat",), note="Mistral's own files: params.json and tekken.json")
def pixtral(folder: Path) -> None:
    """Pixtral in Mistral's format, with a tokenizer of bytes and Mistral's first special tokens."""
    written = [b64encode(bytes([byte])).decode() for byte in range(256)]
    tokens = [{"rank": rank, "token_bytes": one, "token_str": None} for rank, one in enumerate(written)]
    special = 1000
    config = {
        "pattern": "(?s:.)", "num_vocab_tokens": 256, "default_vocab_size": 256 + special,
        "default_num_special_tokens": special, "version": "v7",
    }  # fmt: skip
    tekken = {"config": config, "vocab": tokens, "special_tokens": None}
    write_json(folder, "tekken.json", tekken | {"multimodal": {"image_patch_size": 14, "max_image_size": 56}})
    tower = vision_model(56, num_channels=3, rope_theta=10_000.0, image_token_id=10)
    params = {
        "dim": 64, "n_layers": 2, "head_dim": 32, "hidden_dim": 128, "n_heads": 2, "n_kv_heads": 1, "norm_eps": 1e-5,
        "vocab_size": 256 + special, "rope_theta": 1e6, "max_position_embeddings": 4096, "vision_encoder": tower,
    }  # fmt: skip
    write_json(folder, "params.json", params)


@recipe("granite_vision")
def granite_vision(folder: Path) -> None:
    """Granite Vision 3: LLaVA-NeXT with SigLIP, two of whose layers go to a Granite decoder."""
    from transformers import (
        GraniteConfig,
        LlavaNextConfig,
        LlavaNextImageProcessor,
        LlavaNextProcessor,
        SiglipVisionConfig,
    )

    roles = ("system", "user", "assistant")
    template = chat_template({role: f"<|{role}|>\n" for role in roles}, "\n", "<|assistant|>\n", image="<image>\n")
    special = ("<|end_of_text|>", "<|system|>", "<|user|>", "<|assistant|>", "<image>")
    ids = write_tokenizer(folder, special, eos="<|end_of_text|>", chat_template=template, image_token="<image>")
    grids = [[56, 112], [112, 56], [112, 112]]
    text = text_model(ids[""])
    del text["head_dim"]
    config = LlavaNextConfig(
        vision_config=SiglipVisionConfig(**vision_model(56)), text_config=GraniteConfig(**text),
        image_token_index=ids["<image>"], image_grid_pinpoints=grids, image_seq_length=16,
        vision_feature_layer=[-2, -1], vision_feature_select_strategy="full",
    )  # fmt: skip
    write_config(folder, config, "LlavaNextForConditionalGeneration")
    sizes = {"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}}
    LlavaNextProcessor(
        LlavaNextImageProcessor(**sizes, image_grid_pinpoints=grids), load_tokenizer(folder), patch_size=14,
        vision_feature_select_strategy="full", num_additional_image_tokens=0,
    ).save_pretrained(folder)  # fmt: skip


PARSE = """
import numpy as np
import torch
from transformers import AutoTokenizer, BaseImageProcessor, BatchFeature, ProcessorMixin


class ParseImageProcessor(BaseImageProcessor):
    navit_packing, do_normalize, image_mean, image_std = True, True, [0.5] * 3, [0.5] * 3
    navit_coordinate_frame, navit_padding_mode = "content_normalized", "top_left_white"
    side, rows, columns = 16, 4, 8


class ParseProcessor(ProcessorMixin):
    def __init__(self, image_processor=None, tokenizer=None, **facts):
        super().__init__(image_processor, tokenizer, **facts)

    @classmethod
    def from_pretrained(cls, path, **facts):
        return cls(ParseImageProcessor(), AutoTokenizer.from_pretrained(path))

    def cut(self, image):
        side, rows, columns = self.image_processor.side, self.image_processor.rows, self.image_processor.columns
        pixels = np.asarray(image.convert("RGB").resize((columns * side, rows * side)), np.float32) / 127.5 - 1
        tiles = pixels.reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3)
        return torch.from_numpy(np.ascontiguousarray(tiles)).reshape(rows * columns, -1)

    def __call__(self, text=None, images=None, **facts):
        data = dict(self.tokenizer(text, return_tensors="pt", add_special_tokens=False)) if text else {}
        if images:
            images = images if isinstance(images, list) else [images]
            side, rows, columns = self.image_processor.side, self.image_processor.rows, self.image_processor.columns
            sizes = torch.tensor([[rows * side, columns * side]] * len(images))
            cut = torch.cat([self.cut(image) for image in images])
            data |= {"pixel_values": cut, "image_sizes": sizes, "content_sizes": sizes.clone()}
        return BatchFeature(data)
"""


@recipe("nemotron_parse", images=1, remote_code=True, note="from vLLM 0.33")
def nemotron_parse(folder: Path) -> None:
    """Nemotron Parse 3.5: RADIO before a decoder without positions. The engine knows its padding token as 1."""
    marks = ["<predict_bbox>", "<predict_classes>", "<output_markdown>", "<predict_text_in_pic>"]
    ids = write_tokenizer(folder, ["<pad>", "<s>", "</s>", *marks], bos="<s>", eos="</s>", pad="<pad>")
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    (moved,) = (letter for letter, number in vocabulary.items() if number == 1)
    tokenizer["model"]["vocab"] = vocabulary | {moved: ids["<pad>"], "<pad>": 1}
    tokenizer["added_tokens"][0]["id"] = 1
    write_json(folder, "tokenizer.json", tokenizer)
    text = {"num_attention_heads": 2, "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": ids[""]}
    text["max_position_embeddings"] = 4096
    decoder = text | {
        "d_model": 64, "decoder_attention_heads": 2, "decoder_ffn_dim": 128, "decoder_layers": 2,
        "activation_function": "gelu", "scale_embedding": False, "vocab_size": ids[""], "causal_vision_prefix": True,
        "add_cross_attention": False, "attention_dropout": 0.0, "activation_dropout": 0.0, "dropout": 0.0,
    }  # fmt: skip
    config = {
        "model_type": "nemotron_parse",
        **text,
        "image_size": [64, 128],
        "navit_packing": True,
        "vision_spatial_dim": 384,
        "vision_summary_dim": 384,
        "tie_word_embeddings": False,
        "decoder": decoder,
        "encoder": {"patch_size": 16, "args": {"model": "vit_small_patch16_224", "cpe_max_size": 256}},
    }
    auto_map = write_remote_processor(folder, "ParseProcessor", PARSE)
    write_remote_config(folder, "NemotronParseConfig", config, "RadioMBartPrefixForCausalLM", **auto_map)
