"""Several loaded engines have names that tell them apart."""

from __future__ import annotations

from vlmtui.domain.engine import REMOTE_BACKEND, TRANSFORMERS_BACKEND, BackendName, LoadSpec, can_serve, kind_of, labels


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


def test_an_engine_with_lora_is_named_by_the_adapters_that_it_takes() -> None:
    found = [spec(enable_lora=True, max_lora_rank=64, max_loras=4), spec(enable_lora=True, max_lora_rank=64), spec()]
    assert labels(found) == [
        "shapes (LoRA up to rank 64, 4 at a time)",
        "shapes (LoRA up to rank 64, 1 at a time)",
        "shapes",
    ]


def test_an_engine_serves_what_it_can_do_more_than() -> None:
    lora = {"enable_lora": True, "max_lora_rank": 16, "max_loras": 2}
    for has, wants, serves in (
        ({}, {}, True),
        (lora, {}, True),
        ({}, lora, False),
        (lora, {"enable_lora": True}, True),
        (lora, {"enable_lora": True, "max_loras": 3}, False),
        (lora, {"enable_lora": True, "max_lora_rank": 32}, False),
        ({"max_model_len": 8192}, {"max_model_len": 4096}, True),
        ({"max_model_len": 4096}, {"max_model_len": 8192}, False),
        ({"max_model_len": 4096}, {}, False),
        ({}, {"max_model_len": 4096}, True),
        ({"max_model_len": 4096}, {"max_model_len": -1}, False),
        ({"max_model_len": -1}, {"max_model_len": 4096}, False),
        ({"limit_mm_per_prompt": {"image": 8}}, {"limit_mm_per_prompt": {"image": 2}}, True),
        ({"limit_mm_per_prompt": {"image": 2}}, {"limit_mm_per_prompt": {"image": 8}}, False),
        ({"limit_mm_per_prompt": {"image": 8}}, {"limit_mm_per_prompt": {"image": 2, "video": 1}}, False),
        ({"dtype": "float32"}, {}, False),
        ({"seed": 1, **lora}, {"seed": 1}, True),
    ):
        assert can_serve(spec(**has), spec(**wants)) is serves, (has, wants)
    assert not can_serve(spec(), spec(backend=TRANSFORMERS_BACKEND))


def test_a_server_is_called_so() -> None:
    assert kind_of(spec(backend=REMOTE_BACKEND, url="http://a")) == "server"


def test_two_families_at_one_server_are_named_by_family() -> None:
    found = [
        LoadSpec(
            model="m", name="m at box", backend=REMOTE_BACKEND, family=family,
            engine_args={"url": "http://box", "placeholders": {"image": (placeholder,)}},
        )
        for family, placeholder in (("qwen2_vl", "<|image_pad|>"), (None, "<image>"))
    ]  # fmt: skip
    assert labels(found) == ["m at box (family=qwen2_vl)", "m at box (family=unknown)"]
