"""The real engine, started once and shared by every test that needs it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from vlmtui.domain.engine import EngineReady
from vlmtui.engine.client import WorkerClient
from vlmtui.engine.host import WorkerHost
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import DEFAULT_MODEL, Model, resolve

# One stall of a busy machine is no fault of what is tested.
settings.register_profile("vlmtui", deadline=None)
settings.load_profile("vlmtui")


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """A worker that does not answer for five seconds is told to a person; a busy machine may need longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vlmtui.engine.client.ANSWER_TIMEOUT_S", 60.0)
        patch.setattr("vlmtui.engine.host._LOOK_TIMEOUT_S", 60.0)
        yield


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A temporary folder whose name is short enough for sockets in it, which `tmp_path` often is not."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def shapes() -> Model:
    """The bundled model."""
    return resolve(Registry.bundled(), DEFAULT_MODEL)


@pytest.fixture(scope="session")
def engine_paths() -> Iterator[Paths]:
    """The folders that the shared worker belongs to."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Paths.below(Path(folder))


@pytest.fixture(scope="session")
def loaded_worker(engine_paths: Paths, shapes: Model) -> Iterator[Paths]:
    """A worker with the bundled model, loaded. Gives the folders to find it in; it ends with the session."""

    async def load() -> None:
        engine = await WorkerHost(engine_paths).open(shapes.spec, client="tests", keep_alive_s=None)
        events = [event async for event in engine.load()]
        assert isinstance(events[-1], EngineReady), events[-1]
        await engine.close()

    async def end() -> None:
        host = WorkerHost(engine_paths)
        for status in await host.running():
            await host.stop(status.pid)

    asyncio.run(load())
    yield engine_paths
    asyncio.run(end())


@pytest.fixture
async def engine(loaded_worker: Paths, shapes: Model) -> AsyncIterator[WorkerClient]:
    """A connection of the test's own to the shared worker."""
    client = await WorkerHost(loaded_worker).open(shapes.spec, client="tests", keep_alive_s=None)
    assert client.attached
    yield client
    await client.close()
