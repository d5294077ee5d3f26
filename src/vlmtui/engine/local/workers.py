"""The workers of this machine that run: finding them, connecting to them, ending them."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from vlmtui.engine.interface import Leftover
from vlmtui.engine.local.timeouts import Timeouts
from vlmtui.engine.local.worker_info import WorkerInfo
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.protocol.messages import StatusReport

if TYPE_CHECKING:
    import psutil

    from vlmtui.engine.local.client import WorkerClient

# psutil and the decoders of the messages are imported when they are first needed: no first paint waits for them.


class LocalWorkers:
    """An `EngineCleanup`: see `vlmtui.engine.interface`."""

    def __init__(self, paths: Paths, timeouts: Timeouts | None = None) -> None:
        self.paths = paths
        self.timeouts = timeouts or Timeouts()
        self._in_use: weakref.WeakSet[WorkerClient] = weakref.WeakSet()

    def use(self, client: WorkerClient) -> None:
        """Never take this connection's worker for a leftover as long as it is open."""
        self._in_use.add(client)

    async def connect(
        self, endpoint: Endpoint, client: str, *, attached: bool, timeout_s: float, name: str = "--all"
    ) -> WorkerClient:
        """Connect to the worker of an endpoint; raises as `vlmtui.engine.local.connect.connect` does."""
        from vlmtui.engine.local.connect import connect

        return await connect(
            endpoint,
            client=client,
            attached=attached,
            timeout_s=timeout_s,
            answer_timeout_s=self.timeouts.answer_s,
            end=partial(self._end_locked, endpoint, asked=True),
            name=name,
        )

    async def found(self) -> list[WorkerInfo]:
        """Every living worker of this user, those that do not answer too. The files of dead ones are removed.

        Raises VlmtuiError where another user's folder or socket stands in the place of this user's."""
        workers = await asyncio.gather(*(self._look(endpoint) for endpoint in Endpoint.all(self.paths)))
        return [worker for worker in workers if worker is not None]

    async def leftovers(self) -> list[Leftover]:
        from vlmtui.engine.local.process_tree import living_homes

        found = [worker for worker in await self.found() if worker.report is None]
        known = {endpoint.worker_id for endpoint in Endpoint.all(self.paths)}
        for worker_id in sorted(await asyncio.to_thread(living_homes, self.paths.runtime) - known):
            found.append(WorkerInfo(Endpoint.named(self.paths, worker_id), None, None))
        used = {client.endpoint.worker_id for client in self._in_use if client.is_connected}
        others = [worker for worker in found if worker.endpoint.worker_id not in used]
        return [_leftover(worker) for worker in others if await self._is_left(worker.endpoint)]

    async def end(self, leftover: Leftover) -> None:
        await self.stop(Endpoint.named(self.paths, leftover.id))

    async def stop(self, endpoint: Endpoint) -> None:
        """End a worker, answering or not. Returns when no process of it is left."""
        try:
            worker = await self.connect(endpoint, "stop", attached=True, timeout_s=self.timeouts.look_s)
        except (OSError, VlmtuiError):
            await self._end_locked(endpoint, asked=False)
        else:
            await worker.shutdown()

    async def end_processes(self, endpoint: Endpoint, *, asked: bool) -> None:
        """End what is left of a worker, by a caller that holds the endpoint's lock. `asked`: it was told to end."""
        from vlmtui.engine.local.process_tree import end_members

        await end_members(endpoint, self.timeouts, asked=asked)

    async def _look(self, endpoint: Endpoint) -> WorkerInfo | None:
        record = endpoint.read_record()
        report: StatusReport | None = None
        try:
            report = await self._report(endpoint)
        except (OSError, VlmtuiError) as error:
            if isinstance(error, VlmtuiError) and error.kind is ErrorKind.FOREIGN_PEER:
                raise
            if not await _members(endpoint):
                await self._remove_files(endpoint)
                return None
        return WorkerInfo(endpoint, record, report)

    async def _report(self, endpoint: Endpoint) -> StatusReport:
        """Raises OSError or VlmtuiError where no worker answers."""
        worker = await self.connect(endpoint, "ps", attached=True, timeout_s=self.timeouts.look_s)
        try:
            return await worker.report()
        finally:
            await worker.close()

    async def _is_left(self, endpoint: Endpoint) -> bool:
        """Whether a worker that did not answer is one that nobody is just starting or ending."""
        from vlmtui.engine.local.kernel_events import locked_if_free

        async with locked_if_free(endpoint.lock) as is_mine:
            if not is_mine or not await _members(endpoint):
                return False
            with suppress(OSError, VlmtuiError):  # whoever was starting it may be done by now
                await self._report(endpoint)
                return False
            return True

    async def _remove_files(self, endpoint: Endpoint) -> None:
        """Remove a dead worker's files, unless somebody has started a new one since."""
        from vlmtui.engine.local.kernel_events import locked

        async with locked(endpoint.lock):
            if not await _members(endpoint):
                endpoint.remove()

    async def _end_locked(self, endpoint: Endpoint, *, asked: bool) -> None:
        """End a worker while nobody can start the next one of the same endpoint."""
        from vlmtui.engine.local.kernel_events import locked

        async with locked(endpoint.lock):
            await self.end_processes(endpoint, asked=asked)


async def _members(endpoint: Endpoint) -> list[psutil.Process]:
    from vlmtui.engine.local.process_tree import members

    return await asyncio.to_thread(members, endpoint)


def _leftover(worker: WorkerInfo) -> Leftover:
    about = f"{worker.name} (pid {worker.pid})" if worker.pid else worker.name
    return Leftover(id=worker.endpoint.worker_id, title=about)
