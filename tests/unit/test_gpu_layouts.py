"""How a model may be spread over a machine's GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from vlmtui.engine.gpu_layouts import gpu_layouts
from vlmtui.engine.machine import GIB, Gpu, Machine
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve


def machine(*free: float) -> Machine:
    return Machine(gpus=tuple(Gpu("H", free=int(one * GIB), total=80 * GIB) for one in free), ram_free=64 * GIB)


@pytest.fixture
def model() -> Model:
    """A model of 3.75 billion parameters."""
    return resolve(Registry.bundled(), "qwen2_5_vl")


def names(model: Model, *free: float) -> list[str]:
    return [layout.label.partition(" · ")[0] for layout in gpu_layouts(model, machine(*free))]


def test_one_gpu_leaves_nothing_to_choose(model: Model) -> None:
    assert gpu_layouts(model, machine(79)) == gpu_layouts(model, machine()) == ()


def test_splits_and_copies_for_the_gpus_that_are_there(model: Model) -> None:
    assert names(model, 79, 79) == ["1 GPU", "DP 2", "TP 2"]
    assert names(model, 79, 79, 79, 79) == ["1 GPU", "DP 2", "TP 2", "DP 4", "TP 2 × DP 2", "TP 4"]
    assert names(model, 79, 79, 79) == ["1 GPU", "DP 2", "TP 2"]


def test_what_fits_stands_first_and_a_full_gpu_counts(model: Model) -> None:
    one_is_full = gpu_layouts(model, machine(79, 4))
    assert [(layout.label.split(" · ")[0], layout.fits) for layout in one_is_full] == [
        ("1 GPU", True),
        ("DP 2", False),
        ("TP 2", False),
    ]
    small = gpu_layouts(model, machine(8, 8))
    assert (small[0].tensor, small[0].fits) == (2, True)
    assert "on each of 2 GPUs · fits" in small[0].label


def test_a_split_that_does_not_divide_the_heads_is_left_out(model: Model, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": list(model.family.architectures), "num_attention_heads": 6, "hidden_size": 64})
    )
    spec = msgspec.structs.replace(model.spec, model=str(tmp_path))
    local = msgspec.structs.replace(model, spec=spec)
    assert names(local, 79, 79, 79, 79) == ["1 GPU", "DP 2", "TP 2", "DP 4", "TP 2 × DP 2"]


def test_settings_are_engine_arguments(model: Model) -> None:
    four = next(one for one in gpu_layouts(model, machine(79, 79, 79, 79)) if (one.tensor, one.data) == (2, 2))
    assert four.settings == ("tensor_parallel_size = 2", "data_parallel_size = 2")
