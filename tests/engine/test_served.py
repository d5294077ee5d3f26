"""The installed vLLM's own server, started by the worker as `vlmtui serve shapes --run` does.

It answers as the worker's own engine does, and whatever is killed, nothing of it is left.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support.equality import compare, prompts, told
from tests.support.hosts import patient_host
from tests.support.processes import until_none_lives
from vlmtui.cli.serve_here import served_here
from vlmtui.domain.engine import EngineReady
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.serve_plan import RankLayout
from vlmtui.engines.serve_flags import private_server_flags
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
    spec = served_here(shapes, RankLayout()).spec
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
async def test_it_answers_as_the_workers_own_engine_and_a_killed_core_leaves_nothing(
    engine: WorkerClient, served: tuple[WorkerClient, list[int]], tmp_path: Path
) -> None:
    client, pids = served
    info = client.info
    assert info is not None
    differing = []
    for count, (name, prompt) in enumerate(list(prompts(tmp_path))[::EVERY], 1):
        here, there = await told(engine, prompt, count), await told(client, prompt, count)
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
async def test_a_model_gets_its_own_smaller_context_and_a_killed_guardian_leaves_nothing_of_the_server(
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
def test_the_command_tells_the_address_and_ends_its_server(short_path: Path) -> None:
    command = [sys.executable, "-m", "vlmtui", "serve", "shapes", "--run", "--json"]
    environment = {**os.environ, "VLMTUI_DATA_DIR": str(short_path)}
    environment.pop("PYTHONUNBUFFERED", None)  # whoever reads the address has not told Python to hurry
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process,
        ExitStack() as ending,
    ):
        ending.callback(process.kill)  # or a failure would wait for it
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended before it served"
        told_by_it = json.loads("".join(lines))
        children = [one.pid for one in psutil.Process(process.pid).children(recursive=True)]
        asked = subprocess.run(
            [sys.executable, "-m", "vlmtui", "ask", "--engine", told_by_it["url"], "--keep-alive", "0", "--image",
             bundled("samples") / "two-shapes.png", "What is in this image?"],
            env=environment, capture_output=True, text=True, check=True, timeout=400,
        )  # fmt: skip
        assert "yellow star" in asked.stdout
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
    asyncio.run(until_none_lives(children))
    assert told_by_it["url"].startswith("unix:")
