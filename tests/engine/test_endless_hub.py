"""A load from a hub that never ends its answer, in a real worker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.hosts import patient_host
from tests.support.hub import REPOSITORY, Hub, answer, serving
from vlmtui.domain.engine import LoadEvent, LoadFailed, LoadSpec
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.local.processes import worker_processes
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.match import Model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

_WEIGHTS = "model.safetensors"


@pytest.fixture
def hub(short_path: Path, shapes: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Has the bundled model, for a machine with an empty cache."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    files = {path.name: path.read_bytes() for path in Path(shapes.spec.model).iterdir() if path.is_file()}
    with serving(files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(short_path / "hf"))
        yield hub


@pytest.fixture
def spec(shapes: Model) -> LoadSpec:
    return msgspec.structs.replace(shapes.spec, model=REPOSITORY, name=REPOSITORY)


@pytest.fixture
async def host(short_path: Path) -> AsyncIterator[WorkerHost]:
    found = patient_host(Paths.below(short_path / "v"))
    yield found
    for worker in await found.find_all():
        await found.stop(worker.endpoint)


async def load(host: WorkerHost, spec: LoadSpec) -> tuple[WorkerClient, LoadEvent]:
    client = await host.open(spec, client="tests", keep_alive_s=0)
    events = [event async for event in client.load()]
    return client, events[-1]


def blobs(folder: Path) -> list[str]:
    return [path.name for path in (folder / "hf").rglob("blobs/*") if not path.name.endswith(".incomplete")]


async def test_cancelling_a_load_from_an_endless_hub_ends_its_processes(
    hub: Hub, spec: LoadSpec, host: WorkerHost, short_path: Path
) -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def trickle(connection: socket.socket, _head: str) -> None:
        connection.sendall(answer(b"", *hub.heads(_WEIGHTS), length=len(hub.files[_WEIGHTS])))
        loop.call_soon_threadsafe(begun.set)
        while not hub.over.wait(0.05):
            connection.sendall(b"x")

    hub.lies = {f"GET /{REPOSITORY}/resolve/{revision}/{_WEIGHTS}": trickle for revision in ("main", "c" * 40)}
    loading = asyncio.create_task(load(host, spec))
    await begun.wait()
    endpoint = Endpoint.of(Paths.below(short_path / "v"), spec)
    await host.stop(endpoint)
    client, last = await loading
    await client.close()
    assert isinstance(last, LoadFailed)
    assert worker_processes(endpoint) == []
    assert len(blobs(short_path)) > 1
    assert hub.files[_WEIGHTS] not in [path.read_bytes() for path in (short_path / "hf").rglob("blobs/*")]
