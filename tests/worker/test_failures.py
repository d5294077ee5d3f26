"""What a person is told about a failure, from texts that vLLM, torch and the hub really print."""

from __future__ import annotations

import pytest

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.engine_args import engine_arguments
from vlmtui.worker.failures import explain, explain_death

SPEC = LoadSpec(model="m", name="m")


def core_failed(line: str) -> tuple[Exception, list[str]]:
    error = RuntimeError(
        "Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
    )
    return error, [
        "(EngineCore pid=8) INFO 11-21 05:22:33 [core.py:1] all is well",
        f"(EngineCore pid=8) ERROR 11-21 05:22:33 [core.py:772] {line}",
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("No module named 'vllm'", ErrorKind.NO_VLLM),
        ("Found no NVIDIA driver on your system.", ErrorKind.NO_GPU),
        ("Failed to infer device type, please set the environment variable", ErrorKind.NO_GPU),
        ("CUDA out of memory. Tried to allocate 20.00 MiB.", ErrorKind.OUT_OF_MEMORY),
        ("Free memory on device cuda:0 (3.1/79.1 GiB) on startup is less than desired", ErrorKind.OUT_OF_MEMORY),
        ("Cannot find any model weights with `/models/x`", ErrorKind.WEIGHTS_MISSING),
        ("Cannot access gated repo for url https://example.org/x", ErrorKind.GATED_REPO),
        ("We couldn't connect to 'https://example.org' to load the files", ErrorKind.NO_NETWORK),
        ("x is not a local folder and is not a valid model identifier listed on", ErrorKind.MODEL_UNKNOWN),
        ("Model architectures ['Foo'] are not supported for now.", ErrorKind.ARCHITECTURE_UNSUPPORTED),
        ("Please pass the argument `trust_remote_code=True` to allow custom code", ErrorKind.REMOTE_CODE_REFUSED),
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            ErrorKind.CONTEXT_TOO_LONG,
        ),
        ("EngineArgs.__init__() got an unexpected keyword argument 'foo'", ErrorKind.BAD_ENGINE_ARGUMENT),
        ("At most 8 image(s) may be provided in one prompt.", ErrorKind.BAD_INPUT),
        ("Failed to apply prompt replacement for mm_items['image'][0]", ErrorKind.PLACEHOLDER_MISMATCH),
        ("something nobody has seen before", ErrorKind.INTERNAL),
    ],
)
def test_an_exception_is_explained(text: str, kind: ErrorKind) -> None:
    told = explain(ValueError(text))
    assert told.kind is kind
    assert text in told.detail
    assert "\n" not in told.message
    assert kind is ErrorKind.INTERNAL or told.hint


def test_the_cause_counts_too() -> None:
    try:
        try:
            raise ValueError("CUDA out of memory.")
        except ValueError as cause:
            raise RuntimeError("") from cause
    except RuntimeError as error:
        assert explain(error).kind is ErrorKind.OUT_OF_MEMORY


def test_the_engine_cores_own_words_are_found_in_the_log() -> None:
    error, log = core_failed(
        "ValueError: To serve at least one request with the model's max seq len (131072), 12 GiB KV cache is needed,"
        " which is larger than the available KV cache memory (3.2 GiB). The estimated maximum model length is 34000."
    )
    told = explain(error, log)
    assert told.kind is ErrorKind.OUT_OF_MEMORY
    assert "at most 34000" in told.hint
    assert "all is well" not in told.detail


def test_a_death_without_words_shows_the_end_of_the_log() -> None:
    told = explain_death(["INFO 11-21 05:22:33 [x.py:1] last thing it said"])
    assert told.kind is ErrorKind.ENGINE_DIED
    assert told.detail == "last thing it said"


def test_what_is_told_already_is_left_alone() -> None:
    error = VlmtuiError(ErrorKind.BAD_INPUT, "x")
    assert explain(error) is error


def test_an_unknown_engine_argument_names_the_nearest() -> None:
    spec = LoadSpec(model="m", name="m", engine_args={"max_model_length": 5})
    with pytest.raises(VlmtuiError) as caught:
        engine_arguments(spec, known={"max_model_len", "dtype"}, on_cpu=False)
    assert caught.value.kind is ErrorKind.BAD_ENGINE_ARGUMENT
    assert "'max_model_len'" in caught.value.hint


def test_a_cpu_gets_what_it_needs_and_a_gpu_what_was_said() -> None:
    spec = LoadSpec(model="m", name="m", engine_args={"gpu_memory_utilization": 0.05, "max_num_seqs": 2})
    known = {"gpu_memory_utilization", "max_num_seqs"}
    on_cpu = engine_arguments(spec, known=known, on_cpu=True)
    assert (on_cpu["dtype"], on_cpu["gpu_memory_utilization"], on_cpu["max_num_seqs"]) == ("float32", 0.3, 2)
    on_gpu = engine_arguments(spec, known=known, on_cpu=False)
    assert "dtype" not in on_gpu
    assert on_gpu["gpu_memory_utilization"] == 0.05
    assert on_gpu["trust_remote_code"] is False
