"""Phi-4 Multimodal as Microsoft publishes it: processor and configuration are code of the repository, and sight and
hearing are LoRA adapters in folders of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.zoo.kit import recipe, text_model, write_tokenizer
from tests.zoo.recipes.newer_shims import write_remote_config, write_remote_processor
from tests.zoo.templates import chat_template

IMAGE, AUDIO = 200_010, 200_011
"""The ids of the placeholder tokens, which vLLM's class has as constants."""
RANK = 8
PROCESSOR = '''
import numpy as np
from transformers import (
    AutoTokenizer, BatchFeature, Phi4MultimodalFeatureExtractor, Phi4MultimodalImageProcessor, ProcessorMixin,
)


class Phi4MMProcessor(ProcessorMixin):
    """The published one has the same pixels and features under these names, and the crops' number as an argument."""

    def __init__(self, image_processor=None, audio_processor=None, tokenizer=None, **facts):
        self.image_processor, self.audio_processor = image_processor, audio_processor
        self.tokenizer, self.chat_template = tokenizer, None

    @classmethod
    def from_pretrained(cls, path, dynamic_hd=36, **facts):
        images = Phi4MultimodalImageProcessor(
            size={"height": 448, "width": 448}, patch_size=14, dynamic_hd=dynamic_hd
        )
        return cls(images, Phi4MultimodalFeatureExtractor(), AutoTokenizer.from_pretrained(path))

    def __call__(self, text=None, images=None, audios=None, **facts):
        data = dict(self.tokenizer(text, return_tensors="pt")) if text else {}
        data["image_sizes"] = []
        if images:
            found = self.image_processor(images, return_tensors="pt")
            data["input_image_embeds"] = found.pop("image_pixel_values")
            data |= found
        if audios:
            sounds = [np.asarray(sound, dtype=np.float32) for sound, _ in audios]
            found = self.audio_processor(sounds, sampling_rate=audios[0][1], return_tensors="pt")
            data["input_audio_embeds"] = found["audio_input_features"]
        return BatchFeature(data)
'''


def prepare() -> None:
    """Make vLLM's vision tower, whose size is fixed in its class, with one of its 27 layers."""
    from vllm.model_executor.models import phi4mm

    whole = phi4mm.get_navit_vision_model
    phi4mm.get_navit_vision_model = lambda layer_idx=-1, **facts: whole(0, **facts)


def write_adapters(folder: Path, strengths: Mapping[str, float]) -> None:
    """Save a LoRA in each of these subfolders."""
    for number, (name, strength) in enumerate(strengths.items()):
        write_adapter(folder / name, seed=number, strength=strength)


def write_adapter(folder: Path, *, seed: int, strength: float) -> None:
    """Save a LoRA on the attention of both layers, as PEFT saves it; of strength 0 it changes nothing."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Any] = {}
    for layer in range(2):
        for name, (inputs, outputs) in {"qkv_proj": (64, 128), "o_proj": (64, 64)}.items():
            base = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{base}.lora_A.weight"] = torch.randn(RANK, inputs, generator=generator)
            weights[f"{base}.lora_B.weight"] = torch.randn(outputs, RANK, generator=generator) * strength
    save_file(weights, folder / "adapter_model.safetensors")
    facts = {"peft_type": "LORA", "r": RANK, "lora_alpha": 16, "target_modules": ["qkv_proj", "o_proj"]}
    text = json.dumps({**facts, "bias": "none", "base_model_name_or_path": "phi4_mm"})
    (folder / "adapter_config.json").write_text(text, encoding="utf-8")


@recipe(
    "phi4_mm",
    audio=True,
    remote_code=True,
    prepare=prepare,
    engine_args={
        "max_lora_rank": RANK,
        "max_loras": 3,
        "max_model_len": 4096,
        "mm_processor_kwargs": {"dynamic_hd": 1},
    },
    note="with its adapters; its tower of sight, whose size is fixed in vLLM, with one layer of 27",
)
def phi4_mm(folder: Path) -> None:
    """Phi-4 Multimodal: its placeholder tokens are known by number, so the vocabulary is large."""
    roles = ("system", "user", "assistant")
    template = chat_template({role: f"<|{role}|>" for role in roles}, "<|end|>", "<|assistant|>")
    special = ["<|endoftext|>", "<|end|>", *(f"<|{role}|>" for role in roles)]
    places = {"<|endoftext10|>": IMAGE, "<|endoftext11|>": AUDIO}
    ids = write_tokenizer(
        folder, [*places, *special], bos="<|endoftext|>", eos="<|endoftext|>", unk="<|endoftext|>", places=places,
        chat_template=template,
    )  # fmt: skip
    ears = {
        "activation": "swish", "attention_dim": 32, "attention_heads": 2, "causal": True, "chunk_size": -1,
        "left_chunk": 18, "conv_activation": "swish", "conv_glu_type": "swish", "depthwise_seperable_out_channel": 32,
        "ext_pw_kernel_size": 1, "ext_pw_out_channel": 32, "input_layer": "nemo_conv", "input_size": 80,
        "kernel_size": 3, "linear_units": 32, "num_blocks": 1, "time_reduction": 8, "bias_in_glu": True,
        "nemo_conv_settings": {"conv_channels": 32},
        "encoder_embedding_config": {"input_size": 80},
        "relative_attention_bias_args": {"type": "t5", "t5_bias_max_distance": 500},
    }  # fmt: skip
    layer = {"embedding_cls": "audio", "compression_rate": 8, "downsample_rate": 1, "projection_cls": "mlp"}
    config = {
        "model_type": "phi4mm",
        **text_model(ids[""], partial_rotary_factor=0.75, pad_token_id=None, bos_token_id=None, eos_token_id=None),
        "original_max_position_embeddings": 4096,
        "img_processor": None,
        "audio_processor": {"name": "cascades", "config": ears},
        "embd_layer": {"embedding_cls": "image_audio", "audio_embd_layer": layer},
        "tie_word_embeddings": True,
    }
    auto_map = write_remote_processor(folder, "Phi4MMProcessor", PROCESSOR)
    write_remote_config(folder, "Phi4MMConfig", config, "Phi4MMForCausalLM", base="Phi3Config", **auto_map)
    write_adapters(folder, {"vision-lora": 0.3, "speech-lora": 0.3, "idle-lora": 0.0})
