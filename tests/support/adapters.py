"""LoRA adapters for the bundled model, saved as PEFT saves them."""

from __future__ import annotations

import json
from pathlib import Path

from vlmtui.paths import bundled


def write_adapter(folder: Path, *, strength: float, rank: int = 8) -> Path:
    """Save an adapter with random matrices for queries and values of every layer. Strength 0 changes nothing."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    config = json.loads((bundled("shapes") / "config.json").read_text())
    text = config.get("text_config", config)
    size, heads = text["hidden_size"], text["num_attention_heads"]
    side = text.get("head_dim", size // heads)
    outputs = {"q_proj": heads * side, "v_proj": text["num_key_value_heads"] * side}
    torch.manual_seed(0)
    weights = {}
    for layer in range(text["num_hidden_layers"]):
        for name, output in outputs.items():
            base = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{base}.lora_A.weight"] = torch.randn(rank, size)
            weights[f"{base}.lora_B.weight"] = torch.randn(output, rank) * strength
    save_file(weights, folder / "adapter_model.safetensors")
    facts = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "target_modules": list(outputs), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps({**facts, "base_model_name_or_path": "shapes"}))
    return folder
