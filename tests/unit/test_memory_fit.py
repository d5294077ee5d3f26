"""Whether models fit in memory: those on disk, and those known only by their record."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from vlmtui.domain.engine import FITTED
from vlmtui.engine.machine import GIB, Fit, Gpu, Machine, check_fit, estimate, fit_text
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, model_of, resolve

ONE = Machine((Gpu("L4", 22 * GIB, 24 * GIB),), 64 * GIB)
EIGHT = Machine(tuple(Gpu("H", 79 * GIB, 80 * GIB) for _ in range(8)), 64 * GIB)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.bundled()


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def sized(registry: Registry, billions: float | None, **engine_args: object) -> Model:
    family = msgspec.structs.replace(registry["qwen2_vl"], parameters_b=billions, smaller=("small/one",))
    model = model_of(family)
    return msgspec.structs.replace(model, spec=msgspec.structs.replace(model.spec, engine_args=engine_args))


@pytest.mark.parametrize(
    ("billions", "machine", "expected"),
    [
        (7.0, ONE, Fit.YES),
        (72.0, ONE, Fit.NO),
        (72.0, EIGHT, Fit.SEVERAL),
        (7.0, Machine((), 32 * GIB), Fit.YES),
        (7.0, Machine((), 4 * GIB), Fit.NO),
        (None, ONE, Fit.UNKNOWN),
        (7.0, None, Fit.UNKNOWN),
    ],
)
def test_whether_a_model_fits(
    registry: Registry, billions: float | None, machine: Machine | None, expected: Fit
) -> None:
    assert check_fit(sized(registry, billions, max_model_len=4096), machine).fit is expected


def test_an_unknown_size_is_reported(registry: Registry) -> None:
    assert fit_text(check_fit(sized(registry, None), ONE), ONE) == "Size unknown; can't tell if it fits."


def test_the_change_that_would_make_it_fit_is_named(registry: Registry) -> None:
    parallel = check_fit(sized(registry, 72.0, max_model_len=4096), EIGHT)
    assert parallel.advice == "tensor_parallel_size = 2"
    too_many = check_fit(sized(registry, 7.0, max_model_len=4096, tensor_parallel_size=4), ONE)
    assert (too_many.fit, too_many.advice) == (Fit.YES, "tensor_parallel_size = 1")
    shorter = check_fit(sized(registry, 9.0, max_model_len=131072), ONE)
    assert shorter.fit is Fit.NO
    assert shorter.advice.startswith("max_model_len = ")
    hopeless = check_fit(sized(registry, 300.0), ONE)
    assert hopeless.advice == "small/one"
    assert "small/one" in fit_text(hopeless, ONE)


def test_a_fitted_context_needs_no_room_for_all_of_it(registry: Registry) -> None:
    whole = sized(registry, 9.0, max_model_len=131072)
    fitted = sized(registry, 9.0, max_model_len=FITTED)
    assert (check_fit(whole, ONE).fit, check_fit(fitted, ONE).fit) == (Fit.NO, Fit.YES)
    found = estimate(fitted)
    assert found is not None and found.max_model_len == 8192


def test_files_are_measured(registry: Registry, tmp_path: Path) -> None:
    text = {"num_hidden_layers": 10, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 1000}
    config = {"architectures": ["Qwen2VLForConditionalGeneration"], "torch_dtype": "bfloat16", "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"x" * 5000)
    model = resolve(registry, str(tmp_path))
    found = estimate(msgspec.structs.replace(model, spec=msgspec.structs.replace(model.spec, engine_args={})))
    assert found is not None
    assert (found.weights, found.measured, found.max_model_len) == (5000, True, 1000)
    assert found.kv_cache == 2 * 10 * 2 * 64 * 1000 * 2


def test_the_bundled_model_fits_anything(registry: Registry) -> None:
    assert check_fit(resolve(registry, "shapes"), Machine((), GIB)).fit is Fit.YES
