"""InternVL and what was built on it: a vision tower whose tiles become `<IMG_CONTEXT>` tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.zoo.kit import recipe, text_model, vision_model, write_config, write_json, write_text, write_tokenizer
from tests.zoo.recipes.newer_shims import write_remote_config
from tests.zoo.templates import chat_template, chatml

SYSTEM = "You are a helpful assistant."
CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|end|>", "<img>", "</img>", "<IMG_CONTEXT>")


def tiles(model_type: str, text: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """The config that these families share: up to four tiles of 16 patches, of which 2 × 2 become one token."""
    tower = vision_model(
        56, model_type="intern_vit_6b", hidden_act="gelu", layer_norm_eps=1e-6, norm_type="layer_norm",
        initializer_factor=1.0, qk_normalization=False, qkv_bias=True, num_channels=3,
    )  # fmt: skip
    return {
        "model_type": model_type,
        "force_image_size": 56,
        "downsample_ratio": 0.5,
        "ps_version": "v2",
        "select_layer": -1,
        "dynamic_image_size": True,
        "use_thumbnail": True,
        "min_dynamic_patch": 1,
        "max_dynamic_patch": 4,
        "llm_config": text,
        "vision_config": tower,
    } | facts


@recipe("internvl_chat", video=True, remote_code=True)
def internvl_chat(folder: Path) -> None:
    """InternVL 3 on Qwen2."""
    special = (*CHATML_TOKENS, "<|video_pad|>")
    ids = write_tokenizer(folder, special, eos="<|im_end|>", pad="<|endoftext|>", chat_template=chatml())
    config = tiles("internvl_chat", text_model(ids[""], model_type="qwen2"))
    write_remote_config(folder, "InternVLChatConfig", config, "InternVLChatModel")


@recipe("qianfan_ocr")
def qianfan_ocr(folder: Path) -> None:
    """Qianfan-OCR: InternVL on Qwen3, whose config comes with vLLM."""
    ids = write_tokenizer(folder, CHATML_TOKENS, eos="<|im_end|>", pad="<|endoftext|>", chat_template=chatml())
    facts = {"text_config": text_model(ids[""], model_type="qwen3"), "image_token_id": ids["<IMG_CONTEXT>"]}
    config = tiles("qianfan_ocr", {}) | facts
    del config["llm_config"]
    write_config(folder, config, "QianfanOCRForConditionalGeneration")


@recipe("h2ovl_chat", remote_code=True)
def h2ovl_chat(folder: Path) -> None:
    """H2OVL Mississippi: tiles are cut in two passes."""
    template = chat_template(
        {"user": "<|prompt|>", "assistant": "<|answer|>", "system": "<|system|>"}, "<|end|>", "<|answer|>"
    )
    special = ["<unk>", "<s>", "</s>", "<|system|>", "<|prompt|>", "<|end|>", "<|answer|>", *CHATML_TOKENS[-3:]]
    ids = write_tokenizer(folder, special, bos="<s>", eos="<|end|>", pad="</s>", unk="<unk>", chat_template=template)
    config = tiles("h2ovl_chat", text_model(ids[""], model_type="llama"), use_msac=True)
    write_remote_config(folder, "H2OVLChatConfig", config, "H2OVLChatModel")


@recipe("NVLM_D", remote_code=True)
def nvlm_d(folder: Path) -> None:
    """NVLM-D: every tile is announced by its number."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_pad|>"]
    words = ["<Image>", "</Image>", *(f"<tile_{number}>" for number in range(1, 7)), "<tile_global_thumbnail>"]
    ids = write_tokenizer(
        folder, special, words=words, eos="<|im_end|>", pad="<|endoftext|>",
        chat_template=chatml(default_system=SYSTEM),
    )  # fmt: skip
    config = tiles("NVLM_D", text_model(ids[""], model_type="qwen2"))
    write_remote_config(folder, "NVLM_D_Config", config, "NVLM_D")


@recipe("skywork_chat", remote_code=True)
def skywork_chat(folder: Path) -> None:
    """Skywork R1V: the marks of DeepSeek-R1, an answer that begins with thought."""
    begin, end = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
    template = chat_template(
        {"system": "", "user": "<｜User｜>", "assistant": "<｜Assistant｜>"},
        {"system": "", "user": "", "assistant": end},
        "<｜Assistant｜><think>\n", start=begin,
    )  # fmt: skip
    special = [begin, end, "<｜User｜>", "<｜Assistant｜>", "<|endoftext|>", "<think>", "</think>", *CHATML_TOKENS[-3:]]
    ids = write_tokenizer(folder, special, bos=begin, eos=end, chat_template=template)
    config = tiles("skywork_chat", text_model(ids[""], model_type="qwen2"))
    write_remote_config(folder, "SkyworkChatConfig", config, "SkyworkR1VChatModel")


RADIO = '''"""Stands in for the vision tower and the image processor of the real checkpoint."""

from types import SimpleNamespace

from torch import nn
from transformers import BaseImageProcessor, PreTrainedConfig, PreTrainedModel


class RADIOModel(PreTrainedModel):
    config_class = PreTrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.patches = nn.Conv2d(3, config.hidden_size, config.patch_size, stride=config.patch_size)

    def forward(self, x):
        features = self.patches(x.to(self.patches.weight.dtype)).flatten(2).transpose(1, 2)
        return SimpleNamespace(features=features.contiguous())


class TileProcessor(BaseImageProcessor):
    image_size, max_num_tiles, use_thumbnail = 64, 4, True
'''


@recipe("nemotron_vl", remote_code=True, engine_args={"dtype": "bfloat16"}, note="its tower is a stand-in too")
def nemotron_vl(folder: Path) -> None:
    """Llama Nemotron Nano VL. The engine turns what its tower sees into bfloat16, whatever else it computes in."""
    roles = ("system", "user", "assistant")
    template = chat_template(
        {role: f"<|start_header_id|>{role}<|end_header_id|>\n\n" for role in roles}, "<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n", start="<|begin_of_text|>",
    )  # fmt: skip
    turns = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
    ids = write_tokenizer(
        folder, [*turns, *CHATML_TOKENS, "<image>"], bos="<|begin_of_text|>", eos="<|eot_id|>", chat_template=template
    )
    write_text(folder, "radio_shim.py", RADIO)
    write_json(folder, "preprocessor_config.json", {"auto_map": {"AutoImageProcessor": "radio_shim.TileProcessor"}})
    text = text_model(ids[""], model_type="llama", architectures=["LlamaForCausalLM"])
    config = tiles(
        "Llama_Nemotron_Nano_VL", text, force_image_size=64, vit_hidden_size=64, projector_hidden_size=64,
        vision_config={
            "hidden_size": 64, "patch_size": 16, "image_size": 64,
            "auto_map": {"AutoModel": f"{folder.resolve()}--radio_shim.RADIOModel"},
        },
    )  # fmt: skip
    write_remote_config(folder, "Llama_Nemotron_Nano_VL_Config", config, "Llama_Nemotron_Nano_VL")
