"""Which cores an engine without a GPU binds its model to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vlmtui.worker.backends.vllm.cpu_process import free_cores, taken_cores

_TITLED = """
import os, sys
open("/proc/self/comm", "w").write("VLLM::EngineCore")
os.sched_setaffinity(0, {int(sys.argv[1])})
print("bound", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("wanted", "allowed", "taken", "expected"),
    [
        ([0], [0, 1], set(), [0]),
        ([0], [0, 1], {0}, [1]),
        ([0], [0, 1], {0, 1}, [0]),
        ([1], [0, 1, 2, 3], {1}, [3]),
        ([0, 1, 2], [0, 1, 2, 3], {0}, [1, 2, 3]),
        ([0, 1, 2], [0, 1, 2, 3], {0, 1}, [0, 1, 2]),
        ([0, 1], [0, 1, 2, 3], {3}, [0, 1]),
    ],
)
def test_an_engine_beside_another_takes_other_cores_if_there_are_enough(
    wanted: list[int], allowed: list[int], taken: set[int], expected: list[int]
) -> None:
    assert free_cores(wanted, allowed, taken) == expected


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/comm").exists(), reason="needs Linux")
def test_cores_of_engines_are_found_by_their_processes() -> None:
    core = max(os.sched_getaffinity(0))
    others = taken_cores()
    command = [sys.executable, "-c", _TITLED, str(core)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == b"bound\n"
        assert taken_cores() == others | {core}
        engine.communicate()
