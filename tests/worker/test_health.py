"""Signs of life of an engine, on a clock that the test turns."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.worker.hosted import EchoEngine
from tests.worker.stage import ready, request, serving
from vlmtui.domain.engine import LoadSpec
from vlmtui.processes import python_command
from vlmtui.worker import health
from vlmtui.worker.backends.remote.engine import BACKEND
from vlmtui.worker.backends.transformers.engine import BACKEND as TRANSFORMERS
from vlmtui.worker.backends.vllm.engine import BACKEND as VLLM
from vlmtui.worker.health import EngineHealth
from vlmtui.worker.server import Limits


class Patient:
    """An engine whose signs of life the test gives."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cpu = 0.0
        self.asked: list[Callable[[], None]] = []
        self.answers = True
        self.health = EngineHealth(self._ask, shortest_s=4.0, clock=lambda: self.now, cpu_seconds=lambda: self.cpu)

    def _ask(self, answer: Callable[[], None]) -> None:
        self.asked.append(answer)
        if self.answers:
            answer()

    async def pass_time(self, seconds: int, *, share: float = 0.0, generating: bool = True) -> float:
        """Let seconds go by in which the processes use that share of a core; for how long they are silent then."""
        heard_at = self.now
        for _ in range(seconds):
            self.now += 1
            self.cpu += share
            await self.health.check(generating=generating, last_event_at=heard_at)
        return self.health.silent_s


@pytest.fixture
def patient() -> Patient:
    return Patient()


async def test_a_long_prefill_is_not_a_hang(patient: Patient) -> None:
    assert await patient.pass_time(120, share=0.5) == 0


async def test_idle_processes_that_should_answer_count_as_hung(patient: Patient) -> None:
    assert await patient.pass_time(60, share=0.001) > 50
    assert await patient.pass_time(3, share=0.5) == 0, "it goes on"


async def test_an_engine_with_nothing_to_do_may_sleep(patient: Patient) -> None:
    assert await patient.pass_time(600, generating=False) == 0


async def test_a_blocked_event_loop_is_a_hang(patient: Patient) -> None:
    patient.answers = False
    assert await patient.pass_time(30, generating=False) >= 29
    assert len(patient.asked) == 1
    patient.asked[0]()
    patient.answers = True
    assert await patient.pass_time(1, generating=False) == 0


async def test_the_status_reports_a_stuck_engine_thread(short_path: Path) -> None:
    stuck = threading.Event()

    async def load(spec: LoadSpec) -> EchoEngine:
        return EchoEngine(lambda: stuck.wait(60))

    async with serving(short_path, load, limits=Limits(shortest_silence_s=0.0)) as stage:
        client = await ready(await stage.client())
        events = client.generate(request("hold"))
        await anext(events)
        while (await client.status()).engine_silent_s <= 0:
            pass
        stuck.set()
        while (await client.status()).engine_silent_s > 0:
            pass
        await events.aclose()
        await client.close()


def test_the_processor_time_of_children_is_read() -> None:
    assert health.children_cpu_seconds() >= 0


async def test_a_long_computation_in_the_worker_is_not_a_hang(short_path: Path) -> None:
    """In Transformers on a CPU, a long prompt or many pictures give no token for minutes."""
    computes, ended = threading.Event(), threading.Event()

    def compute() -> None:
        computes.wait()
        while not ended.is_set():
            sum(range(10_000))

    async def load(spec: LoadSpec) -> EchoEngine:
        threading.Thread(target=compute, daemon=True).start()
        return EchoEngine(ended.is_set)

    limits = Limits(shortest_silence_s=0.5)
    async with serving(short_path, load, limits=limits, computes_in_worker=True) as stage:
        client = await ready(await stage.client())
        events = client.generate(request("hold"))
        await anext(events)
        while (await client.status()).engine_silent_s <= 0:
            pass
        computes.set()
        while (await client.status()).engine_silent_s > 0:
            pass
        ended.set()
        await events.aclose()
        await client.close()
    assert TRANSFORMERS.computes_in_worker and not VLLM.computes_in_worker


async def test_idle_processes_are_not_a_hang_if_another_machine_computes(short_path: Path) -> None:
    async def load(spec: LoadSpec) -> EchoEngine:
        return EchoEngine()

    async with serving(short_path, load, limits=Limits(shortest_silence_s=0.5)) as stage:
        client = await ready(await stage.client())
        events = client.generate(request("wait"))
        await anext(events)
        while (await client.status()).engine_silent_s <= 0:
            pass
        stage.server.backend = msgspec.structs.replace(stage.server.backend, computes_here=False)
        while (await client.status()).engine_silent_s > 0:
            pass
        await events.aclose()
        await client.close()
    assert not BACKEND.computes_here, "a server's worker only waits"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is Linux's")
def test_no_process_of_a_cpu_engine_allocates_more_than_is_free() -> None:
    """Only address space is asked for: none of it is used."""
    tries = (
        "import mmap, psutil; from vlmtui.worker.health import limit_memory\n"
        "limit_memory()\n"
        "memory, swap = psutil.virtual_memory(), psutil.swap_memory()\n"
        "private, without_reserve = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0x4000\n"
        "mmap.mmap(-1, memory.available // 4, flags=private | without_reserve)\n"
        "print('fits', flush=True)\n"
        "mmap.mmap(-1, 2 * (memory.available + swap.free), flags=private | without_reserve)\n"
    )
    ended = subprocess.run(python_command(sys.executable, "-c", tries), capture_output=True, text=True, check=False)
    assert ended.stdout == "fits\n"
    assert "Cannot allocate memory" in ended.stderr
