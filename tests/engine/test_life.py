"""The life and death of a real worker: whatever is killed, the client knows, nothing is left, the next one works."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support.hosts import patient_host
from tests.support.open_things import opened_by
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import EngineReady, LoadFailed, LoadStage
from vlmtui.domain.generation import Delta, Failed, Finished, GenerateRequest, PromptReady
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.processes import worker_processes
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.match import Model
from vlmtui.session.generation import make_request

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


class Life:
    """A worker of the test's own."""

    def __init__(self, paths: Paths, model: Model) -> None:
        self.model = model
        self.host = patient_host(paths)
        self.endpoint = Endpoint.of(paths, model.spec)
        self.made: set[Path] = set()
        """Sockets, shared memory and temporary files that its processes had open, but no code: `tools/other_vllm.py`
        puts a release of vLLM into the temporary folder."""

    async def open(self, keep_alive_s: float = 0) -> WorkerClient:
        return await self.host.open(self.model.spec, client="tests", keep_alive_s=keep_alive_s)

    async def ready(self, keep_alive_s: float = 0) -> WorkerClient:
        client = await self.open(keep_alive_s)
        events = [event async for event in client.load()]
        assert isinstance(events[-1], EngineReady), events[-1]
        return client

    def request(self, text: str) -> GenerateRequest:
        return make_request(self.model.family, [user_turn(text)], Sampling())

    def endless(self) -> GenerateRequest:
        """A request whose answer does not end before the context does."""
        request = self.request("Count to 200.")
        sampling = Sampling(max_tokens=None, extra={"ignore_eos": True}, skip_special_tokens=False)
        return msgspec.structs.replace(request, sampling=sampling)

    def remember_what_is_open(self) -> None:
        found = opened_by(worker_processes(self.endpoint))
        places = ("/dev/shm", "/tmp", str(self.endpoint.runtime))
        code = tuple(f"{folder}/" for folder in sys.path if folder)
        there = {path for path in found.files if str(path).startswith(places) and not str(path).startswith(code)}
        self.made |= there - {self.endpoint.log}
        self.made |= {Path(name) for name in found.listening}

    def files_left(self) -> list[Path]:
        """Return these processes and the files in the runtime folder, without the lock, which others may hold."""
        there = {path for path in self.endpoint.runtime.iterdir() if path != self.endpoint.lock}
        return sorted(there | {path for path in self.made if path.exists()})

    async def nothing_is_left(self, within_s: float = 20) -> bool:
        for _ in range(int(within_s / 0.1)):
            if not worker_processes(self.endpoint):
                return True
            await asyncio.sleep(0.1)
        return False


@pytest.fixture
async def life(short_path: Path, shapes: Model) -> AsyncIterator[Life]:
    found = Life(Paths.below(short_path), shapes)
    yield found
    await found.host.stop(found.endpoint)


def process(endpoint: Endpoint, wanted: Callable[[psutil.Process], bool]) -> psutil.Process:
    return next(item for item in worker_processes(endpoint) if wanted(item))


def is_server(item: psutil.Process) -> bool:
    return "vlmtui.worker.serve" in item.cmdline()


def is_guardian(item: psutil.Process) -> bool:
    return "vlmtui.worker" in item.cmdline()


def is_engine_core(item: psutil.Process) -> bool:
    return any("EngineCore" in part for part in item.cmdline())


async def kill_while_answering(life: Life, client: WorkerClient, wanted: Callable[[psutil.Process], bool]) -> Failed:
    """Kill a process of the worker in the middle of an endless answer; how that answer ended."""
    last: object = None
    killed = False
    async for event in client.generate(life.endless()):
        last = event
        if isinstance(event, Delta) and not killed:
            killed = True
            life.remember_what_is_open()
            process(life.endpoint, wanted).send_signal(signal.SIGKILL)
    assert killed
    assert isinstance(last, Failed)
    return last


async def test_after_a_kill_nothing_is_left_and_a_restart_works(life: Life) -> None:
    for victim in (is_engine_core, is_server, is_guardian):
        client = await life.ready()
        failed = await kill_while_answering(life, client, victim)
        assert failed.failure.kind is ErrorKind.ENGINE_DIED
        if victim is is_engine_core:
            assert "killed by signal 9 (SIGKILL)" in failed.failure.message
        else:
            assert failed.failure.hint
        assert await client.closed() is not None
        assert await life.nothing_is_left()
        if victim is not is_guardian:
            assert life.files_left() == []
    client = await life.ready()
    assert not [path for path in life.made if path.exists() and path != life.endpoint.socket], "what a guardian left"
    events = [event async for event in client.generate(life.request("hello"))]
    assert isinstance(events[-1], Finished)
    life.remember_what_is_open()
    assert any(path.is_relative_to(life.endpoint.home) for path in life.made), "vLLM's own sockets"
    await client.close()
    assert await life.nothing_is_left(), "keep-alive is 0, so the last client's leaving ends the worker"
    assert life.files_left() == []


async def test_an_answer_continues_without_its_client_and_the_model_stays(life: Life) -> None:
    client = await life.ready(keep_alive_s=60)  # the answer may be done before the next client comes
    sampling = msgspec.structs.replace(life.endless().sampling, max_tokens=300)
    request = msgspec.structs.replace(life.endless(), sampling=sampling, keep=True)
    pid = client.pid
    events = client.generate(request)
    async for event in events:
        if isinstance(event, Delta):
            break
    await client.close()
    again = await life.open()
    assert again.attached
    assert again.pid == pid
    resumed = [event async for event in again.resume(request.request_id)]
    assert isinstance(resumed[0], PromptReady)
    assert isinstance(resumed[-1], Finished)
    tokens = sum(event.tokens for event in resumed if isinstance(event, Delta))
    assert tokens == resumed[-1].usage.completion_tokens > 50
    await again.forget(request.request_id)
    await again.shutdown()
    assert await life.nothing_is_left()


async def test_a_stopped_engine_core_counts_as_hung_until_it_continues(life: Life) -> None:
    client = await life.ready()
    core = process(life.endpoint, is_engine_core)
    events = client.generate(life.endless())
    async for event in events:
        if isinstance(event, Delta):
            core.suspend()
            break
    while (await client.status()).engine_silent_s == 0:
        await asyncio.sleep(0.2)
    core.resume()
    while (await client.status()).engine_silent_s > 0:
        await asyncio.sleep(0.2)
    assert isinstance(await anext(events), Delta)
    await events.aclose()
    await client.close()


@pytest.mark.parametrize("stage", [LoadStage.ENVIRONMENT, LoadStage.CONFIG])
async def test_sigterm_during_a_load_leaves_nothing(life: Life, stage: LoadStage) -> None:
    client = await life.open()
    last: object = None
    async for event in client.load():
        last = event
        if getattr(event, "stage", None) is stage:
            record = life.endpoint.read_record()
            assert record is not None
            os.kill(record.pid, signal.SIGTERM)
            break
    else:
        pytest.fail(f"the load ended before {stage}: {last}")
    assert await life.nothing_is_left()
    assert not life.endpoint.socket.exists()
    await client.close()


async def test_shutdown_during_a_load_returns_when_nothing_is_left(life: Life) -> None:
    client = await life.open()
    async for event in client.load():
        if getattr(event, "stage", None) is LoadStage.CONFIG:
            break
    await client.shutdown()
    assert worker_processes(life.endpoint) == []


async def test_a_broken_model_is_reported_and_leaves_nothing(life: Life) -> None:
    spec = msgspec.structs.replace(life.model.spec, engine_args={"max_model_length": 5}, typed=("max_model_length",))
    client = await life.host.open(spec, client="tests", keep_alive_s=0)
    events = [event async for event in client.load()]
    assert isinstance(events[-1], LoadFailed)
    assert events[-1].failure.kind is ErrorKind.BAD_ENGINE_ARGUMENT
    assert "max_model_len" in events[-1].failure.hint
    life.endpoint = client.endpoint
    assert await life.nothing_is_left()
