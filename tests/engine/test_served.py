"""The installed vLLM's own server, started by the worker (`--backend served`), as that of another version is.

It answers as the worker's own engine does, and whatever is killed, nothing of it is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support.equality import compare, prompts, report_of
from tests.support.hosts import patient_host
from tests.support.machine import Machine
from tests.support.processes import until_none_lives
from vlmtui.domain.engine import SERVED_BACKEND, EngineReady
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engines.serve import private_server_flags
from vlmtui.paths import Paths, bundled
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.match import Model

pytestmark = pytest.mark.engine
EVERY = 4
"""Each fourth of the prompts with which servers are held against the worker."""


@pytest.fixture
async def served(
    request: pytest.FixtureRequest, short_path: Path, shapes: Model
) -> AsyncIterator[tuple[WorkerClient, list[int]]]:
    """A worker that is ready, and the processes of it and its server. A parameter is the context that is asked for."""
    spec = msgspec.structs.replace(shapes.spec, backend=SERVED_BACKEND)
    if wished := getattr(request, "param", 0):
        spec = msgspec.structs.replace(spec, engine_args={**spec.engine_args, "max_model_len": wished})
    paths = Paths.below(short_path)
    client = await patient_host(paths).open(spec, client="test", keep_alive_s=60)
    events = [event async for event in client.load()]
    assert isinstance(events[-1], EngineReady), events[-1]
    record = Endpoint.of(paths, spec).read_record()
    assert record is not None
    guardian = psutil.Process(record.pid)
    yield client, [guardian.pid, *(process.pid for process in guardian.children(recursive=True))]
    await client.shutdown()


@pytest.mark.timeout(1200)
async def test_it_answers_like_the_workers_engine_and_a_killed_core_leaves_nothing(
    engine: WorkerClient, served: tuple[WorkerClient, list[int]], tmp_path: Path
) -> None:
    client, pids = served
    info = client.info
    assert info is not None
    differing = []
    for count, (name, prompt) in enumerate(list(prompts(tmp_path))[::EVERY], 1):
        here, there = await report_of(engine, prompt, count), await report_of(client, prompt, count)
        differing += [f"{name}: {what}" for what, is_same in compare(here, there).items() if not is_same]
    assert differing == []
    socket = Path(info.address.removeprefix("unix:"))
    assert stat.S_ISSOCK(socket.stat().st_mode) and stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    words = [word for pid in pids for word in psutil.Process(pid).cmdline()]
    flags = private_server_flags(info.spec, for_cpu=info.device == "cpu")
    assert [flag.words[0] for flag in flags if flag.words[0] not in words] == [], "the started line is the printed one"
    core = next(pid for pid in pids if "EngineCore" in psutil.Process(pid).name())
    os.kill(core, signal.SIGKILL)
    await asyncio.wait_for(client.closed(), 120)
    await until_none_lives(pids)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("served", [1_000_000], indirect=True)
async def test_a_small_context_is_kept_and_a_killed_guardian_leaves_no_server(
    served: tuple[WorkerClient, list[int]],
) -> None:
    client, pids = served
    info = client.info
    assert info is not None and info.max_model_len < 1_000_000
    assert info.notes == (f"The model's own context is {info.max_model_len:,} tokens; 1,000,000 were asked for.",)
    assert len(pids) >= 5, "guardian, worker, server, core, the core's own worker"
    os.kill(pids[0], signal.SIGKILL)
    await asyncio.wait_for(client.closed(), 120)
    await until_none_lives(pids)


@pytest.mark.timeout(1200)
def test_ask_uses_the_served_engine(short_path: Path) -> None:
    machine = Machine(short_path)
    picture = str(bundled("samples") / "two-shapes.png")
    words = ("--backend", "served", "--keep-alive", "0", "--image", picture, "What is in this image?")
    code, out, error = machine.run("ask", *words)
    assert code == 0 and "yellow star" in out, error
