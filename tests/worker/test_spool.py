"""Answers that outlive their client: kept, taken over by another one, let go, written down when the worker ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.support.hosts import patient_host
from tests.worker.hosted import EchoEngine
from tests.worker.stage import Stage, answer, ready, request, serving
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Cancelled, Delta, EngineEvent, Failed, Finished, PromptReady
from vlmtui.engine.local.client import WorkerClient
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths
from vlmtui.protocol.spool import read_spooled, spool_path, write_spooled
from vlmtui.worker.server import Limits

Events = AsyncGenerator[EngineEvent, None]


@pytest.fixture
def release() -> threading.Event:
    return threading.Event()


@pytest.fixture
def engine(release: threading.Event) -> EchoEngine:
    return EchoEngine(release.is_set)


@pytest.fixture
async def stage(short_path: Path, engine: EchoEngine, release: threading.Event) -> AsyncIterator[Stage]:
    async with staged(short_path, engine, keep_alive_s=None) as found:
        yield found
        release.set()


def staged(
    short_path: Path, engine: EchoEngine, *, keep_alive_s: float | None, limits: Limits | None = None
) -> AbstractAsyncContextManager[Stage]:
    async def load(spec: LoadSpec) -> EchoEngine:
        return engine

    return serving(short_path, load, keep_alive_s=keep_alive_s, limits=limits)


def text_of(events: list[EngineEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


async def resumed(client: WorkerClient, request_id: str = "r") -> list[EngineEvent]:
    return [event async for event in client.resume(request_id)]


async def begun(stage: Stage, text: str, request_id: str = "r", *, until: str = "hold ") -> tuple[WorkerClient, Events]:
    """A client that has asked for an answer to keep and read it up to a word, and the rest of its events.

    These are to be held: an iterator that nobody holds is closed, which cancels the request.
    """
    client = await ready(await stage.client())
    events = client.generate(request(text, request_id, keep=True))
    async for event in events:
        if isinstance(event, Delta) and event.text == until:
            return client, events
    raise AssertionError("the answer ended")


async def gone(stage: Stage, request_id: str = "r") -> None:
    """Wait until the server has noticed that the client is lost."""
    while request_id not in stage.server.requests.unattended:
        await asyncio.sleep(0.001)


async def test_another_client_takes_over_and_gets_the_whole_answer_once(
    stage: Stage, engine: EchoEngine, release: threading.Event
) -> None:
    lost, _events = await begun(stage, "one two hold three four")
    await lost.close()
    await gone(stage)
    client = await ready(await stage.client())
    assert (await client.status()).kept == ("r",)
    events = []
    async for event in client.resume("r"):
        events.append(event)
        release.set()
    assert [type(event) for event in events] == [PromptReady, Delta, Delta, Delta, Finished]
    assert isinstance(events[1], Delta)
    assert (events[1].text, events[1].tokens) == ("one two hold ", 3)
    assert text_of(events) == "one two hold three four "
    assert isinstance(events[-1], Finished)
    assert (events[-1].usage.prompt_tokens, events[-1].usage.completion_tokens) == (3, 5)
    assert engine.aborted == []
    await client.close()


async def test_an_answer_without_a_client_can_be_fetched_until_forgotten(
    stage: Stage, release: threading.Event
) -> None:
    lost, _events = await begun(stage, "one hold two")
    await lost.close()
    await gone(stage)
    release.set()
    client = await ready(await stage.client())
    while (await client.status()).running:
        await asyncio.sleep(0)
    first, again = await resumed(client), await resumed(client)
    assert [type(event) for event in first] == [PromptReady, Delta, Finished]
    assert text_of(first) == "one hold two "
    assert again == first
    assert (await client.status()).kept == ()
    await client.forget("r")
    await client.forget("r")
    [refused] = await resumed(client)
    assert isinstance(refused, Failed)
    assert refused.failure.kind is ErrorKind.NOT_KEPT
    await client.close()


async def test_an_answer_stays_after_its_end_until_the_client_has_stored_it(stage: Stage) -> None:
    client = await ready(await stage.client())
    assert (await answer(client, request("all of it", "a", keep=True)))[0] == "all of it "
    assert (await answer(client, request("all of it", "b", keep=True)))[0] == "all of it "
    await client.forget("b")
    assert (await client.status()).kept == ()
    await client.close()
    other = await ready(await stage.client())
    await gone(stage, "a")
    assert (await other.status()).kept == ("a",)
    assert text_of(await resumed(other, "a")) == "all of it "
    await other.close()


async def test_only_kept_requests_continue(stage: Stage, engine: EchoEngine) -> None:
    client = await ready(await stage.client())
    kept, plain = client.generate(request("wait", "kept", keep=True)), client.generate(request("wait", "plain"))
    for events in (kept, plain):
        assert isinstance(await anext(events), PromptReady)
    await client.close()
    while "plain" in stage.server.requests.running:
        await asyncio.sleep(0.001)
    assert engine.aborted == ["plain"]
    assert list(stage.server.requests.running) == ["kept"]
    other = await ready(await stage.client())
    assert isinstance((await resumed(other, "plain"))[0], Failed)
    await other.close()


async def test_the_first_client_and_a_later_one_may_cancel(stage: Stage, engine: EchoEngine) -> None:
    client, _events = await begun(stage, "well wait", "mine", until="wait ")
    await client.cancel("mine")
    lost, _more = await begun(stage, "well wait", "theirs", until="wait ")
    await lost.close()
    await gone(stage, "theirs")
    events = []
    async for event in client.resume("theirs"):
        events.append(event)
        await client.cancel("theirs")
    assert isinstance(events[-1], Cancelled)
    assert events[-1].usage.completion_tokens == 2
    assert sorted(engine.aborted) == ["mine", "theirs"]
    await client.close()


async def test_forgetting_a_running_answer_without_a_client_aborts_it(stage: Stage, engine: EchoEngine) -> None:
    lost, _events = await begun(stage, "wait", until="wait ")
    await lost.close()
    await gone(stage)
    client = await ready(await stage.client())
    await client.forget("r")
    while (await client.status()).running:
        await asyncio.sleep(0)
    assert engine.aborted == ["r"]
    assert (await client.status()).kept == ()
    await client.close()


async def test_the_former_client_is_told_of_a_takeover(stage: Stage, release: threading.Event) -> None:
    first, its_events = await begun(stage, "hold on")
    second = await ready(await stage.client())
    taking = asyncio.create_task(resumed(second))
    events = [event async for event in its_events]
    assert len(events) == 1
    assert isinstance(events[0], Failed)
    assert events[0].failure.kind is ErrorKind.NOT_KEPT
    release.set()
    assert text_of(await taking) == "hold on "
    await first.close()
    await second.close()


async def test_only_the_newest_ended_answers_are_kept(short_path: Path, engine: EchoEngine) -> None:
    async with staged(short_path, engine, keep_alive_s=None, limits=Limits(ended_answers=2)) as stage:
        client = await ready(await stage.client())
        for number in range(3):
            await answer(client, request("x", f"r{number}", keep=True))
        assert list(stage.server.requests.ended) == ["r1", "r2"]
        _, last = await answer(client, request("x", "r2", keep=True))
        assert isinstance(last, Failed), "an id that is held is not given away"
        await client.close()


async def test_a_long_answer_is_kept_as_few_deltas(stage: Stage) -> None:
    words = " ".join(str(number) for number in range(10_000))
    client = await ready(await stage.client())
    whole, _ = await answer(client, request(words, keep=True))
    events = await resumed(client)
    assert text_of(events) == whole == f"{words} "
    assert sum(event.tokens for event in events if isinstance(event, Delta)) == 10_000
    assert len(events) == 4
    await client.close()


async def test_a_worker_without_keep_alive_finishes_alone_and_leaves_the_answer_behind(
    short_path: Path, engine: EchoEngine, release: threading.Event
) -> None:
    async with staged(short_path, engine, keep_alive_s=0) as stage:
        lost, _events = await begun(stage, "one hold two")
        await lost.close()
        await gone(stage)
        assert not stage.task.done()
        release.set()
        assert await asyncio.wait_for(stage.task, 30) == 0
    host = patient_host(Paths.below(short_path))
    events = await host.unfetched_answer("r")
    assert events is not None
    assert text_of(events) == "one hold two "
    assert isinstance(events[-1], Finished)
    assert await host.unfetched_answers() == ["r"]
    await host.forget("r")
    assert await host.unfetched_answer("r") is None
    assert await host.unfetched_answers() == []


async def test_an_ended_answer_does_not_keep_the_worker_running(short_path: Path) -> None:
    async with staged(short_path, EchoEngine(), keep_alive_s=0) as stage:
        client = await ready(await stage.client())
        await answer(client, request("short", keep=True))
        await client.close()
        assert await asyncio.wait_for(stage.task, 30) == 0
        assert text_of(read_spooled(stage.endpoint.runtime, "r") or []) == "short "
        await client.forget("r")
        assert read_spooled(stage.endpoint.runtime, "r") is None, (
            "a client whose worker is gone deletes the file itself"
        )


async def test_a_stopped_worker_keeps_the_partial_answer(short_path: Path, engine: EchoEngine) -> None:
    async with staged(short_path, engine, keep_alive_s=None) as stage:
        lost, _events = await begun(stage, "one hold two")
        await lost.close()
        await gone(stage)
        stage.server.stop()
        await stage.task
        events = read_spooled(stage.endpoint.runtime, "r")
        assert events is not None
        assert [type(event) for event in events] == [PromptReady, Delta, Cancelled]
        assert text_of(events) == "one hold "


async def test_a_dying_engine_leaves_the_partial_answer_and_the_reason(short_path: Path, engine: EchoEngine) -> None:
    async with staged(short_path, engine, keep_alive_s=None) as stage:
        lost, _events = await begun(stage, "one hold two")
        await lost.close()
        await gone(stage)
        engine.die()
        await stage.task
        events = read_spooled(stage.endpoint.runtime, "r")
        assert events is not None
        assert text_of(events) == "one hold "
        assert isinstance(events[-1], Failed)
        assert events[-1].failure.kind is ErrorKind.ENGINE_DIED


async def test_a_late_write_does_not_replace_the_last_event(stage: Stage) -> None:
    lost, _events = await begun(stage, "one hold two")
    await lost.close()
    await gone(stage)
    requests, go_on, busy = stage.server.requests, threading.Event(), ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(busy)
    busy.submit(go_on.wait)
    requests._spooled.clear()
    late = asyncio.create_task(requests.spool())
    await asyncio.sleep(0)
    requests.end_all()
    go_on.set()
    await late
    events = read_spooled(stage.endpoint.runtime, "r")
    assert events is not None
    assert isinstance(events[-1], Cancelled)


async def test_a_client_may_forget_an_answer_while_the_worker_ends(short_path: Path, engine: EchoEngine) -> None:
    async with staged(short_path, engine, keep_alive_s=None) as stage:
        client, its_events = await begun(stage, "one hold two")
        stage.server.stop()
        events = [event async for event in its_events]
        assert isinstance(events[-1], Cancelled)
        await client.forget("r")
        await stage.task
        assert not spool_path(stage.endpoint.runtime, "r").exists()
        await client.close()


async def test_an_answer_without_a_client_is_on_disk_before_anything_can_kill_the_worker(stage: Stage) -> None:
    lost, _events = await begun(stage, "one hold two")
    await lost.close()
    await gone(stage)
    await stage.server.requests.spool()
    file = spool_path(stage.endpoint.runtime, "r")
    while not file.exists():  # the server's own round may be writing it
        await asyncio.sleep(0.001)
    assert file.stat().st_mode & 0o777 == 0o600
    events = await patient_host(Paths.below(stage.endpoint.runtime.parent)).unfetched_answer("r")
    assert events is not None
    assert text_of(events) == "one hold "
    assert isinstance(events[-1], Failed)
    assert events[-1].failure.kind is ErrorKind.ENGINE_DIED


@pytest.mark.parametrize("request_id", ["../../etc/passwd", "", "a/b", "\n", "x" * 300, "\udcff"])
def test_no_id_leads_outside_of_the_folder(tmp_path: Path, request_id: str) -> None:
    assert spool_path(tmp_path, request_id).parent == tmp_path / "kept"


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe\n", b'{"type":"hello"}\n'])
def test_a_damaged_file_is_ignored(tmp_path: Path, damage: bytes) -> None:
    write_spooled(tmp_path, [Delta(request_id="r", text="x", tokens=1)])
    assert read_spooled(tmp_path, "r") is not None
    spool_path(tmp_path, "r").write_bytes(damage)
    assert read_spooled(tmp_path, "r") is None
    assert read_spooled(tmp_path, "another") is None
