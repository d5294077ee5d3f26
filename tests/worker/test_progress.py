"""Progress and log reading, on lines that vLLM really prints."""

from __future__ import annotations

import logging
from pathlib import Path

from vlmtui.domain.engine import LoadStage
from vlmtui.worker.backends.vllm.engine import BACKEND
from vlmtui.worker.log_file import RING_LINES, LineFormatter, LoadObserver, LogFile

CPU_LOAD = """\
(MainProcess pid=7) INFO 11-21 05:21:53 [model.py:733] Resolved architecture: Qwen2VLForConditionalGeneration
(MainProcess pid=7) INFO 11-21 05:21:53 [model.py:2152] Using max model len 4096
(EngineCore pid=8) INFO 11-21 05:22:16 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='x'
(Worker pid=9) INFO 11-21 05:22:33 [cpu_model_runner.py:68] Starting to load model /models/x...
Loading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]
Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01, 1.0it/s]
(Worker pid=9) INFO 11-21 05:22:33 [default_loader.py:501] Loading weights took 0.02 seconds
(EngineCore pid=8) INFO 11-21 05:22:34 [kv_cache_utils.py:2327] CPU KV cache size: 524,288 tokens, Maximum concurrency
(EngineCore pid=8) INFO 11-21 05:22:38 [core.py:402] init engine (profile, create kv cache, warmup model) took 3.24 s
"""
CUDA_LOAD = """\
(EngineCore pid=8) INFO 11-21 05:22:33 [gpu_model_runner.py:2602] Starting to load model x...
model-00001-of-00002.safetensors:  45%|████▌     | 2.21G/4.90G [00:10<00:12, 220MB/s]
(EngineCore pid=8) INFO 11-21 05:22:40 [gpu_model_runner.py:2653] Model loading took 7.7 GiB and 9.1 seconds
(EngineCore pid=8) INFO 11-21 05:22:45 [backends.py:559] Dynamo bytecode transform time: 4.63 s
(EngineCore pid=8) INFO 11-21 05:22:49 [gpu_worker.py:298] Available KV cache memory: 55.11 GiB
Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|████      | 27/67 [00:01<00:02, 17.8it/s]
(EngineCore pid=8) INFO 11-21 05:22:55 [gpu_model_runner.py:3480] Graph capturing finished in 5 secs, took 0.58 GiB
"""


def stages(log: str) -> list[tuple[LoadStage, float | None]]:
    observer = LoadObserver(BACKEND)
    found = [observer.feed(line) for line in log.splitlines()]
    return [(item.stage, item.fraction) for item in found if item is not None]


def test_the_stages_of_a_load_on_a_cpu_are_read() -> None:
    assert stages(CPU_LOAD) == [
        (LoadStage.CONFIG, None),
        (LoadStage.CONFIG, None),
        (LoadStage.WEIGHTS, None),
        (LoadStage.WEIGHTS, 0.0),
        (LoadStage.WEIGHTS, 0.5),
        (LoadStage.MEMORY, None),
        (LoadStage.MEMORY, None),
        (LoadStage.WARMUP, None),
    ]


def test_a_load_on_a_gpu_never_goes_back_a_stage() -> None:
    assert stages(CUDA_LOAD) == [
        (LoadStage.WEIGHTS, None),
        (LoadStage.WEIGHTS, 0.45),
        (LoadStage.MEMORY, None),
        (LoadStage.COMPILE, None),
        (LoadStage.COMPILE, 0.4),
        (LoadStage.COMPILE, None),
    ]


def test_the_detail_of_a_stage_is_read() -> None:
    observer = LoadObserver(BACKEND)
    for line in CPU_LOAD.splitlines()[:1]:
        observer.feed(line)
    assert observer.progress.detail == "Qwen2VLForConditionalGeneration"


def test_the_log_follows_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    log = LogFile(path)
    assert log.read_new() == []
    with path.open("ab") as file:
        file.write(b"one\nbar  5%\rbar 10%\rtw")
        file.flush()
        assert log.read_new() == ["one", "bar  5%", "bar 10%"]
        file.write(b"o\n\xff\x1b[31m\n")
        file.flush()
        assert log.read_new() == ["two", "\ufffd\x1b[31m"]


def test_the_log_ring_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    path.write_text("".join(f"{i}\n" for i in range(RING_LINES + 10)) + "x" * 100_000)
    log = LogFile(path)
    log.read_new()
    assert len(log.ring) == RING_LINES
    assert len(log.ring.newest(1)[0]) <= 4000


def test_every_line_of_the_workers_records_is_marked() -> None:
    record = logging.LogRecord("x", logging.ERROR, "x.py", 1, "one\ntwo", None, None)
    first, second = LineFormatter("%(levelname)s %(message)s").format(record).split("\n")
    assert first.startswith("(vlmtui pid=")
    assert first.endswith(") ERROR one")
    assert second.startswith("(vlmtui pid=")


def test_only_the_end_of_a_long_unread_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    path.write_text("first\n")
    log = LogFile(path)
    assert log.read_new() == ["first"]
    with path.open("a") as file:
        file.write("x" * (RING_LINES * 4000) + "\nlast\n")
    assert log.read_new()[-1] == "last"
    assert log.read_new() == []
