"""A server of models that the worker starts itself: behind the true guardian, with a vLLM of three files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from tests.support.fake_vllm import STARTED, VERSION, write_fake_vllm
from tests.support.hosts import patient_host
from tests.support.processes import living, until_none_lives
from vlmtui.domain.conversation import ChatPrompt, user_turn
from vlmtui.domain.engine import EngineReady, LoadFailed, LoadSpec
from vlmtui.domain.generation import Delta, EngineEvent, Failed, Finished, GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.local.launcher import Launcher, WorkerProgram
from vlmtui.engines.serve import SERVER_VARIABLE, ServerProgram
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.worker.backends.served.engine import SOCKET

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
REQUEST = GenerateRequest(
    request_id="r", prompt=ChatPrompt(turns=(user_turn("hello"),)), sampling=Sampling(temperature=0)
)


class Served:
    """Workers whose vLLM is the fake one."""

    def __init__(self, folder: Path, *, interpreter: str = sys.executable) -> None:
        self.paths = Paths.below(folder)
        site = write_fake_vllm(folder / "site")
        program = ServerProgram(
            interpreter=interpreter, version=VERSION, is_for_cpu=True, search_path=(str(site), str(ROOT))
        )
        environment = {SERVER_VARIABLE: msgspec.json.encode(program).decode()}
        worker = WorkerProgram(environment=environment)
        self.host: WorkerHost = patient_host(self.paths, Launcher(lambda spec: worker))
        self.engines: list[WorkerClient] = []

    def spec(self, model: str) -> LoadSpec:
        arguments: dict[str, object] = {"max_model_len": 4096, "limit_mm_per_prompt": {"image": 2, "video": 0}}
        return LoadSpec(model=model, name="shapes", backend="pinned", pinned=VERSION, engine_args=arguments)

    def home(self, model: str = "good") -> Path:
        return Endpoint.of(self.paths, self.spec(model)).home

    async def load(self, model: str = "good") -> tuple[WorkerClient, EngineReady | LoadFailed]:
        engine = await self.host.open(self.spec(model), client="test", keep_alive_s=60)
        self.engines.append(engine)
        async for event in engine.load():
            if isinstance(event, EngineReady | LoadFailed):
                return engine, event
        raise AssertionError("the load has no end")

    def started(self, model: str = "good") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home(model) / STARTED).read_text())
        return found

    async def end(self) -> None:
        for engine in self.engines:
            await engine.shutdown()


@pytest.fixture
async def served(short_path: Path) -> AsyncIterator[Served]:
    found = Served(short_path)
    yield found
    await found.end()


async def answer(engine: WorkerClient) -> list[EngineEvent]:
    return [event async for event in engine.generate(REQUEST)]


def text_of(events: list[EngineEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


async def test_a_server_answers_over_a_private_socket(served: Served) -> None:
    engine, ready = await served.load()
    assert isinstance(ready, EngineReady)
    info, started = ready.info, served.started()
    assert (info.engine, info.engine_version, info.device, info.dtype) == ("vLLM", "0.32.0", "cpu", "float32")
    assert info.limits == {"image": 2}
    assert info.address == f"unix:{served.home() / SOCKET}"
    assert stat.S_IMODE(served.home().stat().st_mode) == 0o700
    words = started["words"]
    assert words[:2] == ["serve", "good"]
    assert words[words.index("--served-model-name") + 1] == "shapes"
    assert "--trust-request-chat-template" in words
    assert "--enable-scale-out" not in words, "this vLLM does not declare it"
    assert started["version"] == f"{VERSION}+cpu", "the metadata that this build lacks"
    events = await answer(engine)
    assert text_of(events) == "A red circle."
    assert isinstance(events[-1], Finished)


async def test_a_leftover_socket_is_replaced(served: Served) -> None:
    home = served.home()
    home.mkdir(mode=0o700, parents=True)
    (home / SOCKET).touch()
    _, ready = await served.load()
    assert isinstance(ready, EngineReady)
    assert not served.started()["socket_was_there"]


@pytest.mark.parametrize(
    ("model", "kind", "said"),
    [
        ("dies-loading", ErrorKind.INTERNAL, "exited with status 1"),
        ("refuses-code", ErrorKind.REMOTE_CODE_REFUSED, "needs your permission"),
        ("bad-argument", ErrorKind.BAD_ENGINE_ARGUMENT, "rejects an engine argument"),
    ],
)
async def test_a_server_that_dies_during_a_load_is_reported_with_the_cause(
    served: Served, model: str, kind: ErrorKind, said: str
) -> None:
    engine, failed = await served.load(model)
    assert isinstance(failed, LoadFailed)
    assert failed.failure.kind is kind
    assert said in failed.failure.message
    pids = served.started(model)["pids"]
    await engine.shutdown()
    assert not living(pids)
    assert not served.home(model).exists()


async def test_a_model_with_a_smaller_context_than_was_asked_for_gets_its_own(served: Served) -> None:
    engine, ready = await served.load("small-context")
    assert isinstance(ready, EngineReady), ready
    words = served.started("small-context")["words"]
    assert words[words.index("--max-model-len") + 1] == "1024"
    assert ready.info.notes == ("The model's own context is 1,024 tokens; 4,096 were asked for.",)
    assert ready.info.spec == served.spec("small-context")
    assert text_of(await answer(engine)) == "A red circle."


async def test_an_environment_without_vllm_is_reported(short_path: Path) -> None:
    served = Served(short_path, interpreter="/bin/false")
    _, failed = await served.load()
    assert isinstance(failed, LoadFailed)
    assert failed.failure.kind is ErrorKind.NO_ENGINE
    await served.end()


async def test_a_server_that_dies_during_an_answer_is_a_dead_engine(served: Served) -> None:
    engine, ready = await served.load("hangs-answering")
    assert isinstance(ready, EngineReady)
    pids = served.started("hangs-answering")["pids"]
    events: list[EngineEvent] = []
    async for event in engine.generate(REQUEST):
        events.append(event)
        if isinstance(event, Delta):
            os.kill(pids[0], signal.SIGKILL)
    assert text_of(events) == "A"
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.failure.kind is ErrorKind.ENGINE_DIED
    assert "Not enough free memory" in failed.failure.message
    await engine.closed()
    await until_none_lives(pids)


@pytest.mark.parametrize("victim", ["guardian", "worker", "server", "core"])
async def test_no_process_survives_a_kill(served: Served, victim: str) -> None:
    engine, ready = await served.load()
    assert isinstance(ready, EngineReady)
    record = Endpoint.of(served.paths, served.spec("good")).read_record()
    assert record is not None
    server, core = served.started()["pids"]
    worker = psutil.Process(server).ppid()
    os.kill({"guardian": record.pid, "worker": worker, "server": server, "core": core}[victim], signal.SIGKILL)
    if victim == "core":  # the fake server does not look after it; a real one ends
        os.kill(server, signal.SIGKILL)
    await asyncio.wait_for(engine.closed(), 60)
    await until_none_lives([record.pid, worker, server, core])
