"""Several loaded engines have names that tell them apart."""

from __future__ import annotations

from vlmtui.domain.engine import REMOTE_BACKEND, TRANSFORMERS_BACKEND, BackendName, LoadSpec, kind_of, labels


def spec(name: str = "shapes", backend: BackendName = "vllm", **arguments: object) -> LoadSpec:
    return LoadSpec(model=f"/models/{name}", name=name, backend=backend, engine_args=arguments)


def test_names_that_differ_are_enough() -> None:
    assert labels([spec(dtype="float32"), spec("other", dtype="bfloat16")]) == ["shapes", "other"]
    assert labels([spec()]) == ["shapes"] and labels([]) == []


def test_engines_of_one_model_are_named_by_their_backend() -> None:
    found = [spec(dtype="float32"), spec(backend=TRANSFORMERS_BACKEND)]
    assert labels(found) == ["shapes (vLLM)", "shapes (Transformers)"]


def test_engines_of_one_kind_are_named_by_their_arguments() -> None:
    found = [spec(max_model_len=4096, seed=1), spec(dtype="bfloat16", seed=1)]
    assert labels(found) == ["shapes (max_model_len=4096)", "shapes (dtype=bfloat16)"]
    assert labels([*found, spec(seed=1)]) == ["shapes (max_model_len=4096)", "shapes (dtype=bfloat16)", "shapes"]


def test_a_server_is_called_so() -> None:
    assert kind_of(spec(backend=REMOTE_BACKEND, url="http://a")) == "server"


def test_two_families_at_one_server_are_named_by_family() -> None:
    found = [
        LoadSpec(
            model="m", name="m at box", backend=REMOTE_BACKEND, family=family,
            engine_args={"url": "http://box", "limit_mm_per_prompt": {"image": most}, "placeholders": {}},
        )
        for family, most in (("qwen2_vl", 16), (None, 8))
    ]  # fmt: skip
    assert labels(found) == ["m at box (family=qwen2_vl)", "m at box (family=unknown)"]
