"""Finding, starting and ending workers on this machine."""

from __future__ import annotations

import asyncio
import subprocess
import time
import weakref
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from vlmtui.domain.engine import EngineEvent, Failed, Failure, LoadSpec
from vlmtui.engine.death import died
from vlmtui.engine.found import FoundWorker
from vlmtui.engine.process import Launcher, locked
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.protocol.kept import forget_kept, is_complete, read_kept
from vlmtui.protocol.messages import Status

if TYPE_CHECKING:
    import psutil

    from vlmtui.engine.client import WorkerClient

_ATTACH_TIMEOUT_S = 10.0
_START_TIMEOUT_S = 60.0
"""From the process's start to its greeting; the model is loaded after that."""
_LOOK_TIMEOUT_S = 5.0
_LOCK_TIMEOUT_S = 0.1
_POLL_S = 0.02


async def members_of(endpoint: Endpoint) -> list[psutil.Process]:
    """Every living process of a worker. psutil comes in here, so that the app's first paint does not wait for it."""
    from vlmtui.engine.members import members

    return await asyncio.to_thread(members, endpoint)


class WorkerHost:
    """An `EngineHost`: see `vlmtui.engine.interface`. `open`'s keep-alive goes to a worker that it starts; one that
    runs already keeps its own."""

    def __init__(self, paths: Paths, launcher: Launcher | None = None) -> None:
        self._paths = paths
        self._launcher = launcher or Launcher()
        self._children: list[subprocess.Popen[bytes]] = []
        self._clients: weakref.WeakSet[WorkerClient] = weakref.WeakSet()

    async def open(self, spec: LoadSpec, *, client: str, keep_alive_s: float | None) -> WorkerClient:
        found = await self._open(spec, client, keep_alive_s)
        self._clients.add(found)
        return found

    async def _open(self, spec: LoadSpec, client: str, keep_alive_s: float | None) -> WorkerClient:
        endpoint = Endpoint.of(self._paths, spec)
        async with locked(endpoint.lock):
            with suppress(OSError):
                return await self._connect(endpoint, client, attached=True, timeout=_ATTACH_TIMEOUT_S, name=spec.name)
            self._launcher.check()
            await self._end(endpoint, asked=False)
            return await self._start(endpoint, spec, client, keep_alive_s)

    async def running(self) -> list[Status]:
        return [worker.status for worker in await self.found() if worker.status is not None]

    async def found(self) -> list[FoundWorker]:
        """Every living worker of this user, those that do not answer too. What dead ones left is removed."""
        workers = await asyncio.gather(*(self._look(endpoint) for endpoint in Endpoint.all(self._paths)))
        return [worker for worker in workers if worker is not None]

    async def holder(self, request_id: str) -> LoadSpec | None:
        for status in await self.running():
            if request_id in status.kept:
                return status.spec
        return None

    async def kept_answer(self, request_id: str) -> list[EngineEvent] | None:
        events = await asyncio.to_thread(read_kept, self._paths.runtime, request_id)
        if events is None or is_complete(events):
            return events
        if any(worker.status is None for worker in await self.found()):
            return None  # one that does not answer now may be the one that goes on with it
        message = "The worker was killed while it finished this answer alone."
        return [*events, Failed(request_id=request_id, failure=Failure(kind=ErrorKind.ENGINE_DIED, message=message))]

    async def forget(self, request_id: str) -> None:
        await asyncio.to_thread(forget_kept, self._paths.runtime, request_id)

    async def leftovers(self) -> list[FoundWorker]:
        from vlmtui.engine.members import living_homes

        found = [worker for worker in await self.found() if worker.status is None]
        known = {endpoint.worker_id for endpoint in Endpoint.all(self._paths)}
        for worker_id in sorted(await asyncio.to_thread(living_homes, self._paths.runtime) - known):
            found.append(FoundWorker(Endpoint.named(self._paths, worker_id), None, None))
        used = {client.endpoint.worker_id for client in self._clients if client.is_connected}
        others = [worker for worker in found if worker.endpoint.worker_id not in used]
        return [worker for worker in others if await self._is_left(worker.endpoint)]

    async def stop(self, pid: int) -> bool:
        for endpoint in Endpoint.all(self._paths):
            if pid in [process.pid for process in await members_of(endpoint)]:
                await self.stop_worker(endpoint)
                return True
        return False

    async def stop_worker(self, endpoint: Endpoint) -> None:
        try:
            worker = await self._connect(endpoint, "stop", attached=True, timeout=_LOOK_TIMEOUT_S, name="--all")
        except (OSError, VlmtuiError):
            await self._end_alone(endpoint, asked=False)
        else:
            await worker.shutdown()

    async def _look(self, endpoint: Endpoint) -> FoundWorker | None:
        record = endpoint.read_record()
        status: Status | None = None
        try:
            status = await self._status(endpoint)
        except (OSError, VlmtuiError):
            if not await members_of(endpoint):
                await self._tidy(endpoint)
                return None
        return FoundWorker(endpoint, record, status)

    async def _status(self, endpoint: Endpoint) -> Status:
        """Raises OSError or VlmtuiError where no worker answers."""
        worker = await self._connect(endpoint, "ps", attached=True, timeout=_LOOK_TIMEOUT_S, name="--all")
        try:
            return await worker.status()
        finally:
            await worker.close()

    async def _is_left(self, endpoint: Endpoint) -> bool:
        """Whether a worker that did not answer is one that nobody is just starting or ending."""
        async with AsyncExitStack() as cleanup:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOCK_TIMEOUT_S):
                    await cleanup.enter_async_context(locked(endpoint.lock))
                if await members_of(endpoint):
                    with suppress(OSError, VlmtuiError):  # whoever was starting it may be done by now
                        await self._status(endpoint)
                        return False
                    return True
        return False

    async def _tidy(self, endpoint: Endpoint) -> None:
        """Remove a dead worker's files, unless somebody has started a new one since."""
        async with locked(endpoint.lock):
            if not await members_of(endpoint):
                endpoint.remove()

    async def _start(self, endpoint: Endpoint, spec: LoadSpec, client: str, keep_alive_s: float | None) -> WorkerClient:
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(self._end, endpoint, asked=False)
            process = self._launcher.start(endpoint, spec, keep_alive_s)
            self._children.append(process)
            worker = await self._reach(process, endpoint, spec, client)
            cleanup.pop_all()
            return worker

    async def _reach(
        self, process: subprocess.Popen[bytes], endpoint: Endpoint, spec: LoadSpec, client: str
    ) -> WorkerClient:
        """Connect to a process that was just started, as soon as it listens."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while (left := deadline - time.monotonic()) > 0:
            with suppress(OSError):
                return await self._connect(endpoint, client, attached=False, timeout=left, name=spec.name)
            if process.poll() is not None:
                raise died(f"The worker of {spec.name} ended (status {process.returncode}) at its start.", endpoint)
            await asyncio.sleep(_POLL_S)
        message = f"The worker of {spec.name} did not open its socket within {_START_TIMEOUT_S:g} s."
        raise VlmtuiError(ErrorKind.ENGINE_DIED, message, hint=f"Its log is {endpoint.log}.")

    async def _connect(
        self, endpoint: Endpoint, client: str, *, attached: bool, timeout: float, name: str
    ) -> WorkerClient:
        from vlmtui.engine.connect import connect  # brings the decoders of all messages, which no first paint needs

        end = partial(self._end_alone, endpoint, asked=True)
        return await connect(endpoint, client=client, attached=attached, timeout=timeout, end=end, name=name)

    async def _end_alone(self, endpoint: Endpoint, *, asked: bool) -> None:
        """End a worker while nobody can start the next one of the same endpoint."""
        async with locked(endpoint.lock):
            await self._end(endpoint, asked=asked)

    async def _end(self, endpoint: Endpoint, *, asked: bool) -> None:
        from vlmtui.engine.members import end_members

        await end_members(endpoint, asked=asked)
        self._children = [child for child in self._children if child.poll() is None]
