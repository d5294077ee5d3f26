"""Messages about failures, from texts that vLLM, torch and the hub really print."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.vllm.engine_args import engine_arguments
from vlmtui.worker.backends.vllm.failures import explain_death, explain_load, explain_request
from vlmtui.worker.health import MemoryKills, ProcessExits

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
        ("No module named 'vllm'", ErrorKind.NO_ENGINE),
        ("Found no NVIDIA driver on your system.", ErrorKind.NO_GPU),
        ("Failed to infer device type, please set the environment variable", ErrorKind.NO_GPU),
        ("CUDA out of memory. Tried to allocate 20.00 MiB.", ErrorKind.OUT_OF_MEMORY),
        ("Free memory on device cuda:0 (3.1/79.1 GiB) on startup is less than desired", ErrorKind.OUT_OF_MEMORY),
        ("libcudart.so.12: cannot open shared object file: No such file or directory", ErrorKind.NO_GPU),
        ("Cannot find any model weights with `/models/x`", ErrorKind.WEIGHTS_MISSING),
        (
            "SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
            ErrorKind.WEIGHTS_MISSING,
        ),
        (
            "It looks like the config file at '/models/x/config.json' is not a valid JSON file.",
            ErrorKind.WEIGHTS_MISSING,
        ),
        ("Cannot access gated repo for url https://example.org/x", ErrorKind.GATED_REPO),
        ("We couldn't connect to 'https://example.org' to load the files", ErrorKind.NO_NETWORK),
        ("x is not a local folder and is not a valid model identifier listed on", ErrorKind.MODEL_UNKNOWN),
        (
            "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/no/such/folder'.",
            ErrorKind.MODEL_UNKNOWN,
        ),
        ("Value error, Invalid repository ID or local directory specified: '/models'.", ErrorKind.MODEL_UNKNOWN),
        ("Model architectures ['Foo'] are not supported for now.", ErrorKind.ARCHITECTURE_UNSUPPORTED),
        ("Please pass the argument `trust_remote_code=True` to allow custom code", ErrorKind.REMOTE_CODE_REFUSED),
        (
            "The repository /models/x contains custom code which must be executed to correctly load the model.",
            ErrorKind.REMOTE_CODE_REFUSED,
        ),
        ("EngineArgs.__init__() got an unexpected keyword argument 'foo'", ErrorKind.BAD_ENGINE_ARGUMENT),
        (
            "1 validation error for ModelConfig: User-specified max_model_len (10000000) is greater than the derived"
            " max_model_len [input_value=ArgsKwargs((), {'model': 'x', 'trust_remote_code': False})]",
            ErrorKind.BAD_ENGINE_ARGUMENT,
        ),
        ("something nobody has seen before", ErrorKind.INTERNAL),
    ],
)
def test_a_failed_load_is_explained(text: str, kind: ErrorKind) -> None:
    told = explain_load(ValueError(text), [], name="x")
    assert told.kind is kind
    assert text in told.detail
    assert "\n" not in told.message
    assert told.hint


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "thinking_token_budget is set but reasoning_config is not configured. Please set --reasoning-parser",
            ErrorKind.UNSUPPORTED,
        ),
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            ErrorKind.CONTEXT_TOO_LONG,
        ),
        ("At most 8 image(s) may be provided in one prompt.", ErrorKind.BAD_INPUT),
        ("Failed to apply prompt replacement for mm_items['image'][0]", ErrorKind.PLACEHOLDER_MISMATCH),
        ("CUDA out of memory. Tried to allocate 20.00 MiB.", ErrorKind.OUT_OF_MEMORY),
        ("Generation is paused. Please retry after it resumes.", ErrorKind.ENGINE_BUSY),
        ("something nobody has seen before", ErrorKind.INTERNAL),
    ],
)
def test_a_failed_request_is_explained(text: str, kind: ErrorKind) -> None:
    told = explain_request(ValueError(text))
    assert told.kind is kind
    assert text in told.detail
    assert "\n" not in told.message
    assert kind is ErrorKind.INTERNAL or told.hint


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        (
            "The engine is currently busy and cannot accept new requests. "
            "Please try again later or on a different instance.",
            "max_num_queued_reqs",
        ),
        (
            "The engine has reached its prefill token backlog limit. "
            "Please try again later or on a different instance.",
            "max_num_queued_tokens",
        ),
    ],
)
def test_a_full_queue_names_the_argument_that_limits_it(text: str, argument: str) -> None:
    told = explain_request(RuntimeError(text))
    assert told.kind is ErrorKind.ENGINE_BUSY and told.hint.endswith(f"a higher {argument}.")


def test_vllms_own_classes_of_refusals_are_the_requests_fault() -> None:
    class VLLMValidationError(Exception):
        pass

    said = "Invalid structured outputs: Unsupported JSON schema feature."
    refused = explain_request(VLLMValidationError(said))
    assert (refused.kind, refused.message) == (ErrorKind.BAD_INPUT, "vLLM rejects the request.")
    assert said in refused.detail
    at_most = explain_request(VLLMValidationError("At most 2 image(s) may be provided in one prompt."))
    assert at_most.message == "More images or videos than this engine was started with."


def test_the_cause_of_an_exception_is_read() -> None:
    try:
        try:
            raise ValueError("CUDA out of memory.")
        except ValueError as cause:
            raise RuntimeError("") from cause
    except RuntimeError as error:
        assert explain_request(error).kind is ErrorKind.OUT_OF_MEMORY


def test_the_engine_cores_own_words_are_found_in_the_log() -> None:
    error, log = core_failed(
        "ValueError: To serve at least one request with the model's max seq len (131072), 12 GiB KV cache is needed,"
        " which is larger than the available KV cache memory (3.2 GiB). The estimated maximum model length is 34000."
    )
    told = explain_load(error, log, name="x")
    assert told.kind is ErrorKind.OUT_OF_MEMORY
    assert "at most 34000" in told.hint
    assert "all is well" not in told.detail


def test_a_load_that_fails_without_a_known_cause_shows_the_engine_cores_words() -> None:
    error, log = core_failed("AssertionError: Not enough allowed NUMA nodes to bind threads of 3 local CPUWorkers.")
    told = explain_load(error, log, name="Tiny")
    assert told.message == "Tiny could not be loaded."
    assert told.detail == "AssertionError: Not enough allowed NUMA nodes to bind threads of 3 local CPUWorkers."


def test_a_killed_load_is_reported_as_killed() -> None:
    said = "Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': -9}"
    log = ["(EngineCore pid=8) INFO 11-21 05:22:33 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: x"]
    told = explain_load(RuntimeError(said), log, name="Tiny")
    assert told.message == "Tiny could not be loaded. EngineCore was killed by signal 9 (SIGKILL)."
    assert "Initializing" not in told.detail


def test_a_death_names_its_cause() -> None:
    told = explain_death(
        ["(EngineCore pid=8) ERROR 11-21 05:22:33 [core.py:9] torch.OutOfMemoryError: CUDA out of memory."]
    )
    assert told.kind is ErrorKind.ENGINE_DIED
    assert "memory" in told.message
    assert "max_model_len" in told.hint


def test_a_silent_death_is_not_explained_by_earlier_log_lines() -> None:
    told = explain_death(["INFO 11-21 05:22:33 [x.py:1] Triton is not installed"])
    assert (told.kind, told.detail, told.hint) == (ErrorKind.ENGINE_DIED, "", "")


def test_a_death_is_reported_with_the_end_of_each_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter, clock = tmp_path / "vmstat", [0.0]
    counter.write_text("nr_free_pages 5\noom_kill 3\n")
    kills = MemoryKills(counter, lambda: clock[0])
    monkeypatch.setattr("vlmtui.worker.health.memory_kills", kills)
    ends = ProcessExits()
    context = multiprocessing.get_context("spawn")
    killed, left = (context.Process(target=time.sleep, args=(600,), name=name) for name in ("EngineCore", "Other"))
    for process in (killed, left):
        process.start()
    ends.begin()
    died = VlmtuiError(ErrorKind.ENGINE_DIED, "The engine died.", detail="d", hint="h")
    assert ends.add_exits(died).message == "The engine died."
    killed.kill()
    killed.join()
    told = ends.add_exits(died)
    assert told.message == "The engine died. EngineCore was killed by signal 9 (SIGKILL)."
    assert (told.kind, told.detail, told.hint) == (ErrorKind.ENGINE_DIED, "d", "h")
    left.terminate()
    left.join()
    counter.write_text("oom_kill 4\n")
    clock[0] = 2.0
    told = ends.add_exits(died)
    assert "(SIGKILL), probably by the kernel: its out-of-memory killer ended a process in these seconds." in str(told)
    assert "Other was killed by signal 15 (SIGTERM)." in str(told), "which the kernel does not send for that"
    for clock[0] in (3.0, 6.0, 8.0, 60.0):
        kills.look()
    assert "out-of-memory" not in str(ends.add_exits(died)), "it ended another process, a while before"
    counter.write_text("oom_kill 5\n")
    clock[0] = 90.0
    assert "out-of-memory" not in str(ends.add_exits(died)), "nobody looked for half a minute"
    other = VlmtuiError(ErrorKind.BAD_INPUT, "x")
    assert ends.add_exits(other) is other


def test_a_death_is_not_explained_by_the_config_dump_or_an_earlier_request() -> None:
    told = explain_death(
        [
            "(vlmtui pid=7) ValueError: The decoder prompt is longer than the maximum model length of 4096.",
            "(vlmtui pid=7) torch.OutOfMemoryError: CUDA out of memory.",
            "(EngineCore pid=8) ERROR 11-21 05:22:33 [dump_input.py:72] Dumping input data for V1 LLM engine (v0.32.0)"
            " with config: model='x', hint='Please pass the argument `trust_remote_code=True`'",
            "(EngineCore pid=8) ERROR 11-21 05:22:33 [core.py:9] RuntimeError: device-side assert triggered",
            "(MainProcess pid=7) ERROR 11-21 05:22:33 [async_llm.py:7] EngineDeadError: EngineCore died.",
        ]
    )
    assert (told.kind, told.message) == (ErrorKind.ENGINE_DIED, "The engine died.")
    assert told.detail == "RuntimeError: device-side assert triggered"


def test_a_vlmtui_error_is_not_explained_again() -> None:
    error = VlmtuiError(ErrorKind.BAD_INPUT, "x")
    assert explain_load(error, [], name="x") is error
    assert explain_request(error) is error


def test_an_unknown_engine_argument_names_the_nearest() -> None:
    spec = LoadSpec(model="m", name="m", engine_args={"max_model_length": 5})
    with pytest.raises(VlmtuiError) as caught:
        engine_arguments(spec, known={"max_model_len", "dtype"}, on_cpu=False)
    assert caught.value.kind is ErrorKind.BAD_ENGINE_ARGUMENT
    assert "'max_model_len'" in caught.value.hint


def test_a_cpu_gets_extra_arguments_and_a_gpu_the_given_ones() -> None:
    spec = LoadSpec(model="m", name="m", engine_args={"gpu_memory_utilization": 0.05, "max_num_seqs": 2})
    known = {"gpu_memory_utilization", "max_num_seqs"}
    on_cpu = engine_arguments(spec, known=known, on_cpu=True)
    assert (on_cpu["dtype"], on_cpu["gpu_memory_utilization"], on_cpu["max_num_seqs"]) == ("float32", 0.3, 2)
    on_gpu = engine_arguments(spec, known=known, on_cpu=False)
    assert "dtype" not in on_gpu
    assert on_gpu["gpu_memory_utilization"] == 0.05
    assert on_gpu["trust_remote_code"] is False
