"""LoRA adapters in a real model of Transformers: names of the weights, files that do not fit, switching."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.adapters import write_adapter
from tests.support.engine_site import watch_for_torchvision
from vlmtui.domain.conversation import RawPrompt
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import bundled
from vlmtui.worker.backends.transformers.loading import AdapterSwitch

watch_for_torchvision()
pytest.importorskip("peft")
OLD, NEW = "model.layers", "model.language_model.layers"
"""The names of the decoder's layers in Transformers before and after 4.52."""
Scores = Callable[[Path | None], list[float]]


@pytest.fixture(scope="module")
def model() -> Any:
    import torch
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(str(bundled("shapes")), dtype=torch.float32)


@pytest.fixture(scope="module")
def switch(model: Any) -> AdapterSwitch:
    return AdapterSwitch(model, LoadSpec(model=str(bundled("shapes")), name="shapes"), None)


@pytest.fixture
def scores(model: Any, switch: AdapterSwitch) -> Scores:
    """The model's next token's scores with the adapter in a folder, or without one."""
    import torch

    def ask(folder: Path | None) -> list[float]:
        prompt = RawPrompt(text="")
        switch.use(GenerateRequest(request_id="1", prompt=prompt, sampling=Sampling(), adapter=str(folder or "")))
        with torch.inference_mode():
            found = model(input_ids=torch.tensor([[5, 6, 7, 8]])).logits[0, -1]
        numbers: list[float] = found.tolist()
        return numbers

    return ask


def test_each_request_gets_its_own_adapter_for_every_naming_of_weights(scores: Scores, tmp_path: Path) -> None:
    without = scores(None)
    old, new = (renamed(tmp_path / name, name) for name in (OLD, NEW))
    strong = scores(old)
    assert apart(strong, without) > 1
    assert apart(scores(new), strong) < 1e-5
    assert apart(scores(write_adapter(tmp_path / "idle", strength=0.0)), without) < 1e-5
    assert apart(scores(old), strong) < 1e-5
    assert apart(scores(None), without) < 1e-5


def test_an_adapter_adds_the_product_of_its_matrices(model: Any, scores: Scores, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    folder = write_adapter(tmp_path / "strong", strength=0.3)
    config = json.loads((folder / "adapter_config.json").read_text()) | {"alpha_pattern": {"layers.1.*.q_proj": 4}}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    adapted, weights = scores(folder), load_file(folder / "adapter_model.safetensors")
    scores(None)
    changed = {}
    with torch.no_grad():
        for key in [key for key in weights if "lora_A" in key]:
            name = key.removeprefix("base_model.model.model.").partition(".lora_")[0]
            base = model.get_submodule(f"model.language_model.{name}").get_base_layer().weight
            alpha = 4 if "layers.1." in name and "q_proj" in name else 16
            changed[base] = weights[key.replace("lora_A", "lora_B")] @ weights[key] * alpha / 8
            base += changed[base]
        merged = scores(None)
        for base, change in changed.items():
            base -= change
    assert apart(merged, adapted) < 1e-3
    assert apart(scores(None), adapted) > 1


def test_a_rewritten_adapter_is_read_again_and_the_oldest_is_unloaded(
    model: Any, scores: Scores, tmp_path: Path
) -> None:
    folder = write_adapter(tmp_path / "trained", strength=0.3)
    before = scores(folder)
    (folder / "adapter_model.safetensors").unlink()
    (folder / "adapter_config.json").unlink()
    folder.rmdir()
    file = write_adapter(folder, strength=0.1) / "adapter_model.safetensors"
    os.utime(file, ns=(1, 1))
    assert apart(scores(folder), before) > 1e-2
    for number in range(12):
        scores(write_adapter(tmp_path / str(number), strength=0.1))
    assert len(model.peft_config) == 8
    assert apart(scores(write_adapter(tmp_path / "again", strength=0.3)), before) < 1e-5


def with_layer_77(folder: Path) -> None:
    rewrite(folder, lambda key: key.replace("layers.0", "layers.77"))


def without_one(folder: Path) -> None:
    rewrite(folder, lambda key: None if key.endswith("layers.2.self_attn.q_proj.lora_B.weight") else key)


def of_another_size(folder: Path) -> None:
    rewrite(folder, lambda key: key, lambda weight: weight.repeat(1, 2))


def of_a_norm(folder: Path) -> None:
    rewrite(folder, lambda key: key.replace("self_attn.q_proj", "input_layernorm"))


def cut_short(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])


def gone(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()


def configured(**facts: object) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        file = folder / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | facts))

    return write


@pytest.mark.parametrize(
    ("spoil", "message", "detail"),
    [
        (with_layer_77, "Can't load the LoRA adapter 'bad'.", "4 weights fit nowhere or are missing: "),
        (without_one, "Can't load the LoRA adapter 'bad'.", "1 weights fit nowhere or are missing: "),
        (of_another_size, "Can't load the LoRA adapter 'bad'.", "RuntimeError"),
        (of_a_norm, "Can't load the LoRA adapter 'bad'.", "input_layernorm"),
        (cut_short, "Can't load the LoRA adapter 'bad'.", "cut off"),
        (gone, "The folder 'bad' has no LoRA adapter.", "adapter_model.safetensors"),
        (configured(modules_to_save=["lm_head"]), "The adapter 'bad' has more than LoRA matrices.", "lm_head"),
        (configured(init_lora_weights="pissa"), "The adapter 'bad' has more than LoRA matrices.", "pissa"),
        (configured(peft_type="IA3"), "The adapter 'bad' has more than LoRA matrices.", "IA3"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_and_changes_nothing(
    scores: Scores, tmp_path: Path, spoil: Callable[[Path], None], message: str, detail: str
) -> None:
    without, good = scores(None), write_adapter(tmp_path / "good", strength=0.3)
    with_it = scores(good)
    bad = write_adapter(tmp_path / "bad", strength=0.3)
    spoil(bad)
    for _ in range(2):
        with pytest.raises(VlmtuiError) as caught:
            scores(bad)
        assert caught.value.message == message
        assert detail in str(caught.value.detail)
        assert caught.value.kind in {ErrorKind.BAD_INPUT, ErrorKind.UNSUPPORTED}
    assert apart(scores(None), without) < 1e-5
    assert apart(scores(good), with_it) < 1e-5


def apart(one: list[float], other: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def renamed(folder: Path, layers: str) -> Path:
    """The same adapter with other names of its weights."""
    write_adapter(folder, strength=0.3)
    rewrite(folder, lambda key: key.replace(OLD, layers))
    return folder


def rewrite(
    folder: Path, name: Callable[[str], str | None], change: Callable[[Any], Any] = lambda weight: weight
) -> None:
    """Write an adapter's weights with other names; None leaves one out."""
    from safetensors.torch import load_file, save_file

    file = folder / "adapter_model.safetensors"
    weights = {name(key): change(weight).contiguous() for key, weight in load_file(file).items()}
    save_file({key: weight for key, weight in weights.items() if key is not None}, file)
