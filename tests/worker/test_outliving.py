"""Real processes that are killed: a worker outlives its client, an answer its worker, and nothing else stays."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support.hosts import PATIENT, patient_host
from tests.worker.echo_server import echo_launcher
from tests.worker.stage import request
from vlmtui.domain.engine import EngineReady, EngineStatus, LoadSpec
from vlmtui.domain.generation import Cancelled, Delta, EngineEvent, Failed, Finished, PromptReady
from vlmtui.engine.interface import EngineStopped
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.host import Timeouts, WorkerHost
from vlmtui.engine.local.processes import worker_processes
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint

SPEC = LoadSpec(model="m", name="echo")
ROOT = Path(__file__).parents[2]


class Life:
    """A worker of the test's own, and the clients that come and go."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, timeouts: Timeouts = PATIENT) -> None:
        self.root = root
        self.release = root / "release"
        self.host = WorkerHost(Paths.below(root), echo_launcher(monkeypatch, self.release), timeouts)
        self.endpoint = Endpoint.of(Paths.below(root), SPEC)

    async def client(self, *, keep_alive_s: float | None = 60, client: str = "test") -> WorkerClient:
        engine = await self.host.open(SPEC, client=client, keep_alive_s=keep_alive_s)
        assert isinstance([event async for event in engine.load()][-1], EngineReady)
        return engine

    async def kill_a_client_in_the_middle(self, text: str) -> None:
        """A client in a process of its own asks for an answer to keep, and is killed once it has read `hold`."""
        arguments = (self.root, msgspec.json.encode(SPEC), msgspec.json.encode(request(text, keep=True)))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.worker.lost_client", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        while (line := await process.stdout.readline()) != b"hold \n":
            assert line
        process.kill()
        await process.wait()

    async def status(self) -> EngineStatus:
        [status] = await self.host.running()
        return status

    async def pid(self) -> int:
        [worker] = await self.host.find_all()
        return worker.pid

    async def has_lost_its_client(self) -> None:
        while not (await self.status()).kept:
            await asyncio.sleep(0.01)

    async def has_ended(self) -> None:
        while worker_processes(self.endpoint):
            await asyncio.sleep(0.05)


@pytest.fixture
async def life(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Life]:
    found = Life(short_path, monkeypatch)
    yield found
    await found.host.stop(found.endpoint)


def text_of(events: list[EngineEvent] | None) -> str:
    return "".join(event.text for event in events or () if isinstance(event, Delta))


async def test_a_client_is_killed_and_the_next_one_has_the_whole_answer(life: Life) -> None:
    await (await life.client()).close()
    before = await life.pid()
    await life.kill_a_client_in_the_middle("one two hold three four")
    await life.has_lost_its_client()
    assert await life.host.holder("r") == SPEC
    assert await life.host.holder("another") is None
    client = await life.client()
    assert client.attached
    events = []
    async for event in client.resume("r"):
        events.append(event)
        life.release.touch()
    assert text_of(events) == "one two hold three four "
    assert isinstance(events[-1], Finished)
    assert client.pid == before
    await client.forget("r")
    assert await life.host.unfetched_answer("r") is None
    await client.close()


async def test_without_keep_alive_the_worker_ends_once_the_lost_answer_is_done(life: Life) -> None:
    client = await life.client(keep_alive_s=0)
    await life.kill_a_client_in_the_middle("one hold two")
    await life.has_lost_its_client()
    await client.close()
    assert (await life.status()).running == 1
    life.release.touch()
    await life.has_ended()
    assert await life.host.holder("r") is None
    events = await life.host.unfetched_answer("r")
    assert text_of(events) == "one hold two "
    assert events is not None
    assert isinstance(events[-1], Finished)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_during_an_answer_keeps_the_partial_answer(life: Life, number: signal.Signals) -> None:
    await (await life.client()).close()
    await life.kill_a_client_in_the_middle("one hold two")
    await life.has_lost_its_client()
    os.kill(await life.pid(), number)
    await life.has_ended()
    events = await life.host.unfetched_answer("r")
    assert text_of(events) == "one hold "
    assert events is not None
    assert isinstance(events[-1], Cancelled)


@pytest.mark.parametrize("victim", ["guardian", "server"])
async def test_a_killed_worker_leaves_the_answer_of_a_second_ago(life: Life, victim: str) -> None:
    await (await life.client()).close()
    await life.kill_a_client_in_the_middle("one hold two")
    while await life.host.unfetched_answer("r") is None:
        await asyncio.sleep(0.05)
    guardian = psutil.Process(await life.pid())
    (guardian if victim == "guardian" else guardian.children()[0]).kill()
    await life.has_ended()
    events = await life.host.unfetched_answer("r")
    assert text_of(events) == "one hold "
    assert events is not None
    assert isinstance(events[-1], Failed)
    assert events[-1].failure.kind is ErrorKind.ENGINE_DIED


@pytest.mark.parametrize("victim", ["server", "guardian"])
async def test_a_killed_worker_is_reported_with_the_signal_and_without_lines_of_before(life: Life, victim: str) -> None:
    client = await life.client()
    guardian = psutil.Process(await life.pid())
    (guardian if victim == "guardian" else guardian.children()[0]).kill()
    cause = await client.closed()
    assert cause is not None
    told = "" if victim == "guardian" else " Its process was killed by signal 9 (SIGKILL)."
    assert (cause.message, cause.detail) == (f"The engine of echo stopped unexpectedly.{told}", "")
    assert f"Log: {life.endpoint.log}" in cause.hint


async def test_a_client_is_told_that_somebody_stopped_its_worker(life: Life) -> None:
    client = await life.client()
    await life.host.stop(life.endpoint)
    assert isinstance(await client.closed(), EngineStopped)


async def test_two_clients_share_a_worker_and_neither_harms_the_other(life: Life) -> None:
    first, second = await asyncio.gather(life.client(keep_alive_s=0), life.client(keep_alive_s=0))
    assert (await first.status()).clients == 2
    mine = first.generate(request("mine hold", "mine"))
    assert isinstance(await anext(mine), PromptReady)
    await life.kill_a_client_in_the_middle("theirs hold")
    texts = [event.text async for event in second.generate(request("beside it", "beside")) if isinstance(event, Delta)]
    assert texts == ["beside ", "it "]
    life.release.touch()
    assert text_of([event async for event in mine]) == "mine hold "
    await first.close()
    assert (await second.status()).clients == 1
    await second.close()
    await life.has_ended()


async def test_a_worker_whose_files_are_deleted_is_in_reach_again_with_its_answer(life: Life) -> None:
    await (await life.client()).close()
    before = await life.pid()
    await life.kill_a_client_in_the_middle("one hold two")
    await life.has_lost_its_client()
    shutil.rmtree(life.endpoint.runtime)
    client = await patient_host(Paths.below(life.root)).open(SPEC, client="test", keep_alive_s=60)
    assert (client.attached, client.pid) == (True, before), "no second engine is loaded"
    life.release.touch()
    assert text_of([event async for event in client.resume("r")]) == "one hold two "
    while not life.endpoint.record.exists():
        await asyncio.sleep(0.05)
    assert [worker.pid for worker in await life.host.find_all()] == [before]
    await client.close()


async def test_a_worker_whose_socket_stays_gone_is_left_over_and_can_be_ended(life: Life) -> None:
    client = await life.client()
    another = patient_host(Paths.below(life.root))
    assert await another.leftovers() == []
    for process in worker_processes(life.endpoint):
        process.suspend()
    shutil.rmtree(life.endpoint.runtime)
    assert await life.host.leftovers() == [], "its own client can use it"
    assert [worker.endpoint for worker in await another.find_all()] == [life.endpoint], "so that `stop --all` means all"
    [left] = await another.leftovers()
    assert left.id == life.endpoint.worker_id
    await another.end(left)
    assert worker_processes(life.endpoint) == []
    assert await life.host.leftovers() == []
    assert await client.closed() is not None


async def test_a_suspended_worker_is_left_over_and_can_be_ended(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried = msgspec.structs.replace(PATIENT, inspect_s=0.3, terminate_s=0.5)
    life = Life(short_path, monkeypatch, hurried)
    client = await life.client()
    for process in worker_processes(life.endpoint):
        process.suspend()
    assert await life.host.leftovers() == [], "it is told elsewhere that it hangs"
    another = WorkerHost(Paths.below(life.root), timeouts=hurried)
    [left] = await another.leftovers()
    assert left.title.startswith("echo (pid ")
    await another.end(left)
    assert worker_processes(life.endpoint) == []
    await client.close()


async def test_a_worker_that_is_being_started_is_not_left_over(life: Life) -> None:
    opening = asyncio.create_task(life.client())
    while not life.endpoint.record.exists():
        await asyncio.sleep(0.001)
    assert await life.host.leftovers() == []
    await (await opening).close()


async def test_a_load_in_a_thread_that_blocks_ends_with_its_client(life: Life) -> None:
    spec = msgspec.structs.replace(SPEC, engine_args={"block": True}, typed=("block",))
    client = await life.host.open(spec, client="test", keep_alive_s=60)
    await client.status()
    await client.shutdown()
    assert worker_processes(client.endpoint) == []
