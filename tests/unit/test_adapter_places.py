"""The places of a LoRA adapter's weights, by their names alone."""

from __future__ import annotations

import pytest

from vlmtui.worker.backends.transformers.loading import PlacedWeight, adapter_of, only_ending_alike


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("layers.3.mlp.up", "model.language_model.layers.3.mlp.up"),
        ("language_model.model.layers.3.mlp.up", "model.language_model.layers.3.mlp.up"),
        ("model.blocks.3.attn", "model.tower.blocks.3.attn"),
        ("model.layers.33.mlp.up", None),
        ("layers.3.layers.0.up", None),
        ("lm_head", "lm_head"),
        ("other_head", None),
    ],
)
def test_a_name_from_the_layers_number_on_finds_its_module(source: str, module: str | None) -> None:
    modules = (
        "model.language_model.layers.3.mlp.up", "model.tower.layers.3.mlp.up", "model.tower.blocks.3.attn", "lm_head",
        "model.deep.1.layers.0.up", "model.other.layers.0.up",
    )  # fmt: skip
    assert only_ending_alike(source, modules, "model.language_model.") == module


@pytest.mark.parametrize(
    ("part", "parameter"),
    [
        ("lora_A.weight", "model.layers.0.q_proj.lora_A.mine.weight"),
        ("lora_embedding_B", "model.layers.0.q_proj.lora_embedding_B.mine"),
    ],
)
def test_a_weights_parameter_has_the_adapters_name_in_it(part: str, parameter: str) -> None:
    weight = PlacedWeight(f"layers.0.q_proj.{part}", "layers.0.q_proj", "model.layers.0.q_proj", part)
    assert weight.parameter("mine") == parameter
    assert adapter_of(parameter) == "mine"
    assert adapter_of("model.mine_tower.layers.0.weight") == ""
