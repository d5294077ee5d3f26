"""Random weights for tiny checkpoints, large enough that an image changes the answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from zlib import crc32


def fill(model: Any, seed: int = 0) -> Any:
    """Fill a torch model: matrices with 1.5 over the root of their inputs, norms and gates with 1, the rest with small
    numbers; those of a parameter depend on its name and the seed alone. Returns the model.

    Gemma scales its embeddings up, and its head is the same matrix: with larger numbers one token has all the
    probability, whatever comes before it."""
    import torch

    of_tokens = 0.1 if "gemma" in type(model).__name__.lower() else 0.5
    with torch.no_grad():
        for name, value in model.named_parameters():
            generator = torch.Generator().manual_seed(crc32(name.encode()) + seed)
            if value.ndim >= 2 and "embed" in name:
                value.copy_(torch.randn(value.shape, generator=generator) * (of_tokens if "tokens" in name else 0.5))
            elif value.ndim >= 2:
                inputs = value[0].numel()
                value.copy_(torch.randn(value.shape, generator=generator) * 1.5 / inputs**0.5)
            elif name.endswith("bias"):
                value.copy_(torch.randn(value.shape, generator=generator) * 0.1)
            else:
                value.fill_(1.0)
    return model


def save_with_weights(folder: Path, seed: int = 0) -> Any:
    """Give a checkpoint without weights random ones, by Transformers; its `config.json` stays. Returns the model."""
    from transformers import AutoConfig

    from vlmtui.worker.backends.transformers.loading import auto_class

    config = AutoConfig.from_pretrained(folder)
    text = (folder / "config.json").read_bytes()
    model = fill(auto_class(config).from_config(config).float().eval(), seed)
    model.save_pretrained(folder)
    (folder / "config.json").write_bytes(text)
    _lay_out_as_published(folder / "model.safetensors", config)
    return model


def _lay_out_as_published(file: Path, config: Any) -> None:
    """Save the weights as published checkpoints have them, and as vLLM reads them: CLIP and SigLIP towers have a
    prefix, Qwen3-VL's experts are transposed."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    if config.model_type == "qwen3_vl_moe":
        for name in tensors:
            if name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
                tensors[name] = tensors[name].transpose(1, 2).contiguous()
    if getattr(getattr(config, "vision_config", None), "model_type", "").startswith(("clip", "siglip")):
        tower = re.compile(r"(vision_tower\.)(?=embeddings|encoder|pre_layrnorm|post_layernorm|head)")
        tensors = {tower.sub(r"\1vision_model.", name): value for name, value in tensors.items()}
    save_file(tensors, file, {"format": "pt"})
