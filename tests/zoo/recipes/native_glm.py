"""The GLM line: GLM-4V with one image of a fixed size, GLM-4.1V and GLM-4.5V with images and videos of any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import load_tokenizer, recipe, text_model, write_config, write_tokenizer
from tests.zoo.templates import chat_template

PIXELS = {"shortest_edge": 2 * 56 * 56, "longest_edge": 2 * 112 * 112}
GLM_TOKENS = (
    "<|endoftext|>", "[MASK]", "[gMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>",
    "<|observation|>", "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>",
)  # fmt: skip
PIXELS_OF_FRAMES = {"shortest_edge": 2 * 56 * 56, "longest_edge": 8 * 112 * 112}


def glm_template(image: str, video: str, answer: str) -> str:
    """A template of the line, whose turns end where the next begins."""
    return chat_template(
        {"system": "<|system|>\n", "user": "<|user|>\n", "assistant": "<|assistant|>\n"},
        "",
        answer,
        image=image,
        video=video,
        start="[gMASK]<sop>",
    )


def glm_tokenizer(folder: Path) -> dict[str, int]:
    """The tokenizer of GLM-4.1V and GLM-4.5V."""
    template = glm_template(
        "<|begin_of_image|><|image|><|end_of_image|>",
        "<|begin_of_video|><|video|><|end_of_video|>",
        "<|assistant|>\n",
    )
    special = (*GLM_TOKENS, "<|image|>", "<|video|>", "<think>", "</think>")
    return write_tokenizer(folder, special, eos="<|endoftext|>", pad="<|endoftext|>", chat_template=template)


def facts(ids: dict[str, int]) -> dict[str, Any]:
    """Return the tower and the tokens, which the configs of GLM-4.1V and GLM-4.5V share."""
    tower = {
        "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 64,
        "image_size": 112, "patch_size": 14,
    }  # fmt: skip
    names = {
        "image_token_id": "<|image|>", "image_start_token_id": "<|begin_of_image|>",
        "image_end_token_id": "<|end_of_image|>", "video_token_id": "<|video|>",
        "video_start_token_id": "<|begin_of_video|>", "video_end_token_id": "<|end_of_video|>",
    }  # fmt: skip
    return {"vision_config": tower, **{name: ids[token] for name, token in names.items()}}


def decoder(ids: dict[str, int], share: float, **more: Any) -> dict[str, Any]:
    """The decoder; a share of each head has rotary positions."""
    section = [2, 3, 3] if share == 0.5 else [4, 6, 6]
    positions = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": share}
    ends = [ids["<|endoftext|>"], ids["<|user|>"], ids["<|observation|>"]]
    return text_model(
        ids[""], rope_parameters=positions | {"mrope_section": section}, eos_token_id=ends,
        pad_token_id=ids["<|endoftext|>"], **more,
    )  # fmt: skip


def save_processor(folder: Path) -> None:
    """The processor of GLM-4.1V and GLM-4.5V."""
    from transformers import Glm4vImageProcessor, Glm4vProcessor, Glm4vVideoProcessor

    Glm4vProcessor(
        Glm4vImageProcessor(size=PIXELS), load_tokenizer(folder), Glm4vVideoProcessor(size=PIXELS_OF_FRAMES)
    ).save_pretrained(folder)


@recipe("glm4_1v", video=True)
def glm4_1v(folder: Path) -> None:
    """GLM-4.1V."""
    from transformers import Glm4vConfig

    ids = glm_tokenizer(folder)
    # Transformers always has biases, vLLM where the config says so.
    config = Glm4vConfig(text_config=decoder(ids, 0.5, attention_bias=True), **facts(ids))
    write_config(folder, config, "Glm4vForConditionalGeneration")
    save_processor(folder)


@recipe("glm4_5v", video=True)
def glm4_5v(folder: Path) -> None:
    """GLM-4.5V, with four experts and one that is always asked."""
    from transformers import Glm4vMoeConfig

    ids = glm_tokenizer(folder)
    experts = {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "n_shared_experts": 1,
        "use_qk_norm": False,
    }
    config = Glm4vMoeConfig(text_config=decoder(ids, 0.5, **experts), **facts(ids))
    write_config(folder, config, "Glm4vMoeForConditionalGeneration")
    save_processor(folder)


VOCABULARY = 151_552
"""GLM-4V's stop tokens are given by their number, so its vocabulary has to be as large as the real one."""


@recipe("glm4v", images=1)
def glm4v(folder: Path) -> None:
    """GLM-4V: ChatGLM with an EVA-CLIP tower; its config class comes with vLLM, and so does its processor."""
    image = "<|begin_of_image|><|endoftext|><|end_of_image|>"
    template = glm_template(image, "", "<|assistant|>")
    ids = write_tokenizer(folder, GLM_TOKENS, eos="<|endoftext|>", pad="<|endoftext|>", chat_template=template)
    tower = {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_heads": 2, "hidden_act": "gelu",
        "layer_norm_eps": 1e-6, "dropout_prob": 0.0, "in_channels": 3, "image_size": 56, "patch_size": 14,
        "num_positions": 17, "scaling_factor": 8,
    }  # fmt: skip
    config = {
        "model_type": "chatglm", "num_layers": 2, "padded_vocab_size": VOCABULARY, "vocab_size": VOCABULARY,
        "hidden_size": 64, "ffn_hidden_size": 128, "kv_channels": 32, "num_attention_heads": 2,
        "multi_query_attention": True, "multi_query_group_num": 1, "seq_length": 4096, "add_qkv_bias": True,
        "original_rope": True, "tie_word_embeddings": False, "vision_config": tower,
        "boi_token_id": ids["<|begin_of_image|>"], "eoi_token_id": ids["<|end_of_image|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "eos_token_id": [ids["<|endoftext|>"], ids["<|user|>"], ids["<|observation|>"]],
    }  # fmt: skip
    write_config(folder, config, "ChatGLMModel")
