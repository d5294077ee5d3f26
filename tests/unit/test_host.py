"""Starting, finding and ending real processes without an engine."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support.fake_worker import fake_launcher
from tests.support.hosts import PATIENT, patient_host
from vlmtui.cli.main import main
from vlmtui.domain.conversation import RawPrompt
from vlmtui.domain.engine import EngineReady, LoadFailed, LoadSpec
from vlmtui.domain.generation import Delta, GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import WhenChanged
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.local.launcher import worker_environment
from vlmtui.engine.local.processes import worker_processes
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import MARKER, Endpoint, WorkerRecord, this_machine
from vlmtui.protocol.spool import write_spooled


def a_spec(name: str = "fake", **options: object) -> LoadSpec:
    return LoadSpec(model="/models/fake", name=name, engine_args=options, typed=tuple(options))


def ask(text: str) -> GenerateRequest:
    return GenerateRequest(request_id="r1", prompt=RawPrompt(text=text), sampling=Sampling())


@pytest.fixture
def paths() -> Iterator[Paths]:
    """Paths below a folder with a short name, since a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-test-") as folder:
        yield Paths.below(Path(folder))


@pytest.fixture
async def host(paths: Paths) -> AsyncIterator[WorkerHost]:
    host = patient_host(paths, fake_launcher())
    yield host
    for endpoint in Endpoint.all(paths):
        await host.stop(endpoint)


async def test_a_second_client_attaches_to_the_first_ones_worker(host: WorkerHost, paths: Paths) -> None:
    first = await host.open(a_spec(), client="test", keep_alive_s=60)
    assert not first.attached
    assert isinstance([event async for event in first.load()][-1], EngineReady)
    second = await patient_host(paths, fake_launcher()).open(a_spec(), client="test", keep_alive_s=0)
    assert second.attached
    assert [event.text async for event in second.generate(ask("hello there")) if isinstance(event, Delta)] == [
        "hello ",
        "there ",
    ]
    [status] = await host.running()
    assert (status.spec, status.keep_alive_s) == (a_spec(), 60)
    await second.close()
    await first.shutdown()
    assert await first.closed() is None
    assert await host.running() == []


async def test_a_worker_that_can_do_more_serves_what_is_asked(host: WorkerHost, paths: Paths) -> None:
    lora = a_spec(enable_lora=True, max_lora_rank=64, max_loras=4)
    first = await host.open(lora, client="test", keep_alive_s=60)
    for asked in (a_spec(), a_spec(enable_lora=True, max_loras=1), lora):
        other = await host.open(asked, client="test", keep_alive_s=0)
        assert (other.pid, other.spec, other.attached) == (first.pid, lora, True)
        await other.close()
    exact = await host.open(a_spec(), client="test", keep_alive_s=60, is_exact=True)
    assert exact.pid != first.pid, "engines that are compared are those that were asked for"
    other_process = patient_host(paths, fake_launcher())
    more = await other_process.open(a_spec(enable_lora=True, max_lora_rank=128), client="test", keep_alive_s=60)
    assert more.pid not in (first.pid, exact.pid)
    assert isinstance([event async for event in more.load()][-1], EngineReady) and more.info is not None
    assert f"`vlmtui stop {first.pid}` frees its memory." in more.info.notes[-1]
    for client in (first, exact, more):
        await client.shutdown()


async def test_a_changed_model_is_loaded_again_unless_others_use_it(
    host: WorkerHost, paths: Paths, tmp_path: Path
) -> None:
    template = tmp_path / "mine" / "chat_template.jinja"
    template.parent.mkdir()
    template.write_text("1")
    spec = msgspec.structs.replace(a_spec(), model=str(template.parent))
    opened = partial(host.open, spec, client="test", keep_alive_s=None)
    first = await opened()
    assert isinstance([event async for event in first.load()][-1], EngineReady)
    template.write_text("2")
    for when in (WhenChanged.RELOAD, WhenChanged.REFUSE):
        with pytest.raises(VlmtuiError, match=r"since it was loaded: chat_template.jinja\.") as refused:
            await opened(when_changed=when)
        assert refused.value.kind is ErrorKind.MODEL_CHANGED
        assert "1 other client uses it. `vlmtui stop fake` ends it." in refused.value.hint
    kept = await opened(when_changed=WhenChanged.KEEP)
    assert kept.pid == first.pid and kept.changed == ("chat_template.jinja",)
    for client in (kept, first):
        await client.close()
    with pytest.raises(VlmtuiError) as refused:
        await opened(when_changed=WhenChanged.REFUSE)
    assert refused.value.hint == "The engine has the earlier files. --reload loads it again."
    again = await opened(keep_alive_s=60)
    assert isinstance([event async for event in again.load()][-1], EngineReady)
    assert not again.attached and again.pid != first.pid
    assert again.info is not None
    assert again.info.notes[-1].endswith("since it was loaded: chat_template.jinja. It is loaded again.")
    assert (await again.status()).keep_alive_s is None
    await again.close()
    same = await opened(when_changed=WhenChanged.REFUSE)
    assert same.pid == again.pid
    await same.close()
    template.unlink()
    template.parent.rmdir()
    with pytest.raises(VlmtuiError, match="the folder is gone"):
        await opened()
    assert [status.spec for status in await host.running()] == [spec]


async def test_two_clients_that_start_at_once_share_one_worker(host: WorkerHost, paths: Paths) -> None:
    hosts = [host, patient_host(paths, fake_launcher())]
    engines = await asyncio.gather(*(one.open(a_spec(), client="test", keep_alive_s=60) for one in hosts))
    assert sorted(engine.attached for engine in engines) == [False, True]
    statuses = await asyncio.gather(*(engine.status() for engine in engines))
    assert {status.clients for status in statuses} == {2}
    assert len({engine.pid for engine in engines}) == 1
    for engine in engines:
        await engine.close()


async def test_the_workers_files_are_its_owners_alone(host: WorkerHost, paths: Paths) -> None:
    before = os.umask(0)
    try:
        engine = await host.open(a_spec(), client="test", keep_alive_s=60)
    finally:
        os.umask(before)
    endpoint = Endpoint.of(paths, a_spec())
    modes = [
        file.stat().st_mode & 0o777 for file in (endpoint.socket, endpoint.record, endpoint.spec_file, endpoint.log)
    ]
    assert modes == [0o600] * 4
    assert paths.runtime.stat().st_mode & 0o777 == 0o700
    await engine.close()


@pytest.mark.parametrize(
    "spec",
    [a_spec(children=2), a_spec(children=1, stubborn=True), a_spec(children=1, load="hold")],
    ids=["children that stay", "deaf", "loading"],
)
async def test_shutdown_leaves_no_process_behind(paths: Paths, spec: LoadSpec) -> None:
    host = WorkerHost(paths, fake_launcher(), msgspec.structs.replace(PATIENT, shutdown_s=0.5, terminate_s=0.5))
    engine = await host.open(spec, client="test", keep_alive_s=60)
    endpoint = Endpoint.of(paths, spec)
    assert len(worker_processes(endpoint)) >= 2
    await engine.shutdown()
    assert worker_processes(endpoint) == []
    assert not endpoint.socket.exists()
    assert not endpoint.record.exists()
    assert not endpoint.home.exists()


async def test_leftovers_of_a_killed_worker_end_before_the_next_start(host: WorkerHost, paths: Paths) -> None:
    spec = a_spec(children=1)
    engine = await host.open(spec, client="test", keep_alive_s=60)
    endpoint = Endpoint.of(paths, spec)
    os.kill(engine.pid, signal.SIGKILL)
    cause = await engine.closed()
    assert cause is not None
    assert cause.kind is ErrorKind.ENGINE_DIED
    [orphan] = worker_processes(endpoint)
    again = await host.open(spec, client="test", keep_alive_s=60)
    assert not again.attached
    assert orphan not in worker_processes(endpoint)
    with suppress(psutil.NoSuchProcess):
        assert orphan.status() == psutil.STATUS_ZOMBIE
    await again.close()


async def test_a_reused_pid_is_not_killed(host: WorkerHost, paths: Paths) -> None:
    """The worker has ended, and another program has its pid."""
    endpoint = Endpoint.of(paths, a_spec())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        record = WorkerRecord(spec=a_spec(), pid=bystander.pid, started_at=time.time(), log=str(endpoint.log))
        endpoint.write_record(record)
        await host.stop(endpoint)
        endpoint.write_record(record)
        assert await host.find_all() == []
        assert bystander.poll() is None
        bystander.communicate(b"\n")
    assert bystander.returncode == 0


async def test_another_machines_worker_is_shown_and_neither_ended_nor_taken_for_dead(
    host: WorkerHost, paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(paths.config.parent))
    here, mine = this_machine(), Endpoint.of(paths, a_spec())
    places = {
        "rebooted": msgspec.structs.replace(here, boot="earlier"),
        "computer": msgspec.structs.replace(here, name="node17", boot="another"),
        "container": msgspec.structs.replace(here, name="node18", processes="pid:[1]"),
        "sandbox": msgspec.structs.replace(here, processes="pid:[2]"),
    }
    for name, machine in places.items():
        record = WorkerRecord(spec=a_spec(name), pid=os.getpid(), started_at=1.5, log="/log", machine=machine)
        Endpoint.named(paths, name).write_record(record)
    write_spooled(paths.runtime, [Delta(request_id="r1", text="half of", tokens=2)])
    assert {worker.name: worker.elsewhere for worker in await host.find_all()} == {
        "computer": "node17",
        "container": "node18",
        "sandbox": here.name,
    }
    assert await host.leftovers() == []
    assert await host.unfetched_answer("r1") is None, "it may still be running there"
    assert await asyncio.to_thread(main, ["ps"]) == 0
    assert "on node17" in capsys.readouterr().out
    for which in ("--all", "computer"):
        assert await asyncio.to_thread(main, ["stop", which]) == 1
        said = capsys.readouterr().err
        assert "computer runs, or ran, on another machine: node17. Stop it there." in said
        assert str(Endpoint.named(paths, "computer").record) in said
    assert [endpoint.worker_id for endpoint in Endpoint.all(paths)] == ["computer", "container", "sandbox"]
    monkeypatch.setattr("vlmtui.protocol.endpoint.this_machine", lambda: places["computer"])
    assert Endpoint.of(paths, a_spec()) != mine, "so that neither overwrites the other's record"


async def test_a_worker_that_does_not_answer_is_found_and_can_be_stopped(paths: Paths) -> None:
    host = WorkerHost(paths, fake_launcher(), msgspec.structs.replace(PATIENT, answer_s=0.3))
    engine = await host.open(a_spec(silent=True), client="test", keep_alive_s=60)
    [found] = await host.find_all()
    assert (found.name, found.status) == ("fake", None)
    assert await host.running() == []
    with pytest.raises(VlmtuiError, match="does not answer"):
        await engine.status()
    await engine.close()
    await host.stop(found.endpoint)
    assert await host.find_all() == []


async def test_listing_the_workers_removes_a_dead_ones_files(host: WorkerHost, paths: Paths) -> None:
    engine = await host.open(a_spec(), client="test", keep_alive_s=60)
    os.kill(engine.pid, signal.SIGKILL)
    await engine.closed()
    assert await host.find_all() == []
    assert Endpoint.all(paths) == []


async def test_a_worker_that_fails_to_start_gives_the_reason(host: WorkerHost, paths: Paths) -> None:
    with pytest.raises(VlmtuiError, match="exited") as caught:
        await host.open(a_spec(start="die"), client="test", keep_alive_s=60)
    assert "nothing works here" in caught.value.detail
    assert Endpoint.all(paths) == []


async def test_a_load_that_dies_ends_with_load_failed(host: WorkerHost) -> None:
    engine = await host.open(a_spec(load="die"), client="test", keep_alive_s=60)
    last = [event async for event in engine.load()][-1]
    assert isinstance(last, LoadFailed)
    assert last.failure.kind is ErrorKind.ENGINE_DIED
    assert "about to die" in last.failure.detail


async def test_cancelling_a_start_ends_its_processes(host: WorkerHost, paths: Paths) -> None:
    spec = a_spec(greeting="none")
    endpoint = Endpoint.of(paths, spec)
    opening = asyncio.create_task(host.open(spec, client="test", keep_alive_s=60))
    while not endpoint.socket.exists():
        await asyncio.sleep(0.01)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert worker_processes(endpoint) == []
    assert Endpoint.all(paths) == []


async def test_without_vllm_the_error_names_the_package(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(VlmtuiError, match="No engine is installed") as caught:
        await patient_host(paths).open(a_spec(), client="test", keep_alive_s=60)
    assert caught.value.kind is ErrorKind.NO_ENGINE


def test_the_environment_keeps_the_users_variables(paths: Paths) -> None:
    endpoint = Endpoint.of(paths, a_spec())
    made = worker_environment({"PYTHONPATH": "/mine", "VLLM_NO_USAGE_STATS": "0", "HOME": "/home/me"}, endpoint)
    assert made["VLLM_NO_USAGE_STATS"] == "0"
    assert made["HF_HUB_DISABLE_TELEMETRY"] == "1"
    assert made["HOME"] == "/home/me"
    assert made[MARKER] == str(endpoint.record)
    site, mine = made["PYTHONPATH"].split(os.pathsep)
    assert (Path(site) / "sitecustomize.py").is_file()
    assert mine == "/mine"
