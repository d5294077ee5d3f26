"""Finding an engine by the name that a user gives it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from vlmtui.config.settings import EngineSettings
from vlmtui.errors import VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.session.lanes import find_engine

REGISTRY = Registry.bundled()
SHAPES = resolve(REGISTRY, "shapes")


def test_here_takes_other_engine_arguments() -> None:
    assert find_engine("here", SHAPES, REGISTRY, {}) == SHAPES
    other = find_engine("here dtype=bfloat16 max_model_len=512", SHAPES, REGISTRY, {})
    assert other.spec.engine_args == {**SHAPES.spec.engine_args, "dtype": "bfloat16", "max_model_len": 512}


def test_a_backend_runs_the_same_model() -> None:
    other = find_engine("transformers", SHAPES, REGISTRY, {})
    assert (other.spec.backend, other.spec.model) == ("transformers", SHAPES.spec.model)
    pinned = find_engine("vllm==0.23.0", resolve(REGISTRY, "Qwen/Qwen-VL-Chat"), REGISTRY, {})
    assert (pinned.spec.backend, pinned.spec.pinned) == ("pinned", "0.23.0")
    assert find_engine("vllm", other, REGISTRY, {}).spec.backend == "vllm"


def test_a_backend_keeps_the_permission_for_the_models_own_code() -> None:
    spec = msgspec.structs.replace(SHAPES.spec, trust_remote_code=True, code_sha256="ab" * 32)
    trusted = msgspec.structs.replace(SHAPES, spec=spec)
    assert find_engine("transformers", trusted, REGISTRY, {}).spec.code_sha256 == "ab" * 32
    assert not find_engine("qwen2_vl", trusted, REGISTRY, {}).spec.trust_remote_code


def test_another_checkpoint_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen2VLForConditionalGeneration"]}')
    assert find_engine(str(tmp_path), SHAPES, REGISTRY, {}).spec.model == str(tmp_path)
    loaded = [("cat", resolve(REGISTRY, "qwen3_vl"))]
    assert find_engine("cat", SHAPES, REGISTRY, {}, loaded=loaded).family.family == "qwen3_vl"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "Unknown engine or model"),
        ("here dtype", "is not an engine argument"),
        ("vllm==newest", "is not a backend"),
        ("box dtype=half", "has its own engine arguments"),
    ],
)
def test_an_unknown_engine_is_reported(name: str, words: str) -> None:
    with pytest.raises(VlmtuiError, match=words):
        find_engine(name, SHAPES, REGISTRY, {"box": EngineSettings(url="http://box:8000")})


def test_here_needs_a_model() -> None:
    with pytest.raises(VlmtuiError, match="needs a model"):
        find_engine("transformers", None, REGISTRY, {})
