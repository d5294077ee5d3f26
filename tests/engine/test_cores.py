"""Where the processes of an engine without a GPU run."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from vlmtui.engine.local.client import WorkerClient
from vlmtui.worker.backends.vllm.cpu_process import taken_cores
from vlmtui.worker.hf.cpu_cores import BESIDE, bound_cores

pytestmark = pytest.mark.engine


def cores_of(process: psutil.Process, name: str = "") -> set[int]:
    """Return the cores of the threads of a process, of those alone that have this name."""
    tasks = [task for task in Path(f"/proc/{process.pid}/task").iterdir() if name in (task / "comm").read_text()]
    return {core for task in tasks for core in os.sched_getaffinity(int(task.name))}


async def test_prompts_are_prepared_on_another_core_than_the_model_computes_on(engine: WorkerClient) -> None:
    assert engine.info is not None
    if engine.info.device != "cpu" or not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("vLLM binds its threads on CPUs of two cores and more")
    assert engine.pid is not None
    [server] = psutil.Process(engine.pid).children()
    [model] = [one for one in server.children(recursive=True) if one.name().startswith("VLLM::")]
    computing = bound_cores(Path(f"/proc/{model.pid}/task"))
    assert computing
    assert computing <= taken_cores()
    assert cores_of(server)
    assert not cores_of(server) & computing
    assert cores_of(model, BESIDE) == cores_of(server)  # the threads to which requests come, and from which tokens go
