"""Finds, connects to and ends the running workers of this machine."""

from __future__ import annotations

import asyncio
import time
import weakref
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING

from vlmtui.domain.failure import Failure
from vlmtui.engine.interface import Leftover
from vlmtui.engine.local.timeouts import Timeouts
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint

if TYPE_CHECKING:
    import psutil

    from vlmtui.domain.metrics import EngineMetrics
    from vlmtui.engine.local.client import WorkerClient
    from vlmtui.engine.local.worker_info import WorkerInfo
    from vlmtui.protocol.messages import StatusReport

# psutil and the message decoders are imported when first needed, so that they do not delay the first paint.


class LocalWorkers:
    """An `EngineCleanup` (see `vlmtui.engine.interface`)."""

    def __init__(self, paths: Paths, timeouts: Timeouts | None = None) -> None:
        self.paths = paths
        self.timeouts = timeouts or Timeouts()
        self._in_use: weakref.WeakSet[WorkerClient] = weakref.WeakSet()

    def protect(self, client: WorkerClient) -> None:
        """Never report this connection's worker as a leftover while the connection is open."""
        self._in_use.add(client)

    async def connect(
        self, endpoint: Endpoint, client: str, *, attached: bool, timeout_s: float, name: str = "--all"
    ) -> WorkerClient:
        """Connect to the worker of an endpoint. Raises as `vlmtui.engine.local.connect.connect` does."""
        from vlmtui.engine.local.connect import connect

        return await connect(
            endpoint,
            client=client,
            attached=attached,
            timeout_s=timeout_s,
            answer_timeout_s=self.timeouts.answer_s,
            end=partial(self._end_locked, endpoint, shutdown_sent=True),
            name=name,
        )

    async def find_all(self) -> list[WorkerInfo]:
        """Return every living worker of this user, including those that do not answer. Removes files of dead ones.

        Raises VlmtuiError if the runtime folder or a socket belongs to another user."""
        workers = await asyncio.gather(*(self._inspect(endpoint) for endpoint in Endpoint.all(self.paths)))
        return [worker for worker in workers if worker is not None]

    async def metrics(self, endpoint: Endpoint) -> EngineMetrics:
        """Return what a worker's engine tells about itself now. Raises OSError or VlmtuiError."""
        worker = await self.connect(endpoint, "ps", attached=True, timeout_s=self.timeouts.inspect_s)
        asked_at = time.time()
        try:
            async with asyncio.timeout(self.timeouts.answer_s), aclosing(worker.metrics()) as found:
                async for one in found:
                    if isinstance(one, Failure):
                        raise one.error()
                    if one.at >= asked_at:
                        return one.metrics
        except TimeoutError as error:
            raise VlmtuiError(ErrorKind.ENGINE_BUSY, "The worker does not tell its metrics in time.") from error
        finally:
            await worker.close()
        raise VlmtuiError(ErrorKind.ENGINE_DIED, "The worker ended.")

    async def leftovers(self) -> list[Leftover]:
        from vlmtui.engine.local.process_tree import live_worker_ids
        from vlmtui.engine.local.worker_info import WorkerInfo

        found = [worker for worker in await self.find_all() if worker.report is None]
        known = {endpoint.worker_id for endpoint in Endpoint.all(self.paths)}
        for worker_id in sorted(await asyncio.to_thread(live_worker_ids, self.paths.runtime) - known):
            found.append(WorkerInfo(Endpoint.named(self.paths, worker_id), None, None))
        used = {client.endpoint.worker_id for client in self._in_use if client.is_connected}
        others = [worker for worker in found if worker.endpoint.worker_id not in used]
        return [_leftover(worker) for worker in others if await self._is_abandoned(worker.endpoint)]

    async def end(self, leftover: Leftover) -> None:
        await self.stop(Endpoint.named(self.paths, leftover.id))

    async def stop(self, endpoint: Endpoint) -> None:
        """End a worker, whether it answers or not. Returns when all its processes have ended."""
        try:
            worker = await self.connect(endpoint, "stop", attached=True, timeout_s=self.timeouts.inspect_s)
        except (OSError, VlmtuiError):
            await self._end_locked(endpoint, shutdown_sent=False)
        else:
            await worker.shutdown()

    async def end_processes(self, endpoint: Endpoint, *, shutdown_sent: bool) -> None:
        """End a worker's remaining processes. The caller holds the endpoint's lock."""
        from vlmtui.engine.local.process_tree import end_worker

        await end_worker(endpoint, self.timeouts, shutdown_sent=shutdown_sent)

    async def _inspect(self, endpoint: Endpoint) -> WorkerInfo | None:
        from vlmtui.engine.local.worker_info import WorkerInfo

        record = endpoint.read_record()
        report: StatusReport | None = None
        try:
            report = await self._report(endpoint)
        except (OSError, VlmtuiError) as error:
            if isinstance(error, VlmtuiError) and error.kind is ErrorKind.FOREIGN_PEER:
                raise
            if not await _processes(endpoint):
                await self._remove_files(endpoint)
                return None
        return WorkerInfo(endpoint, record, report)

    async def _report(self, endpoint: Endpoint) -> StatusReport:
        """Return a worker's status. Raises OSError or VlmtuiError if it does not answer."""
        worker = await self.connect(endpoint, "ps", attached=True, timeout_s=self.timeouts.inspect_s)
        try:
            return await worker.report()
        finally:
            await worker.close()

    async def _is_abandoned(self, endpoint: Endpoint) -> bool:
        """Whether a worker that did not answer still runs, and nobody is starting or ending it."""
        from vlmtui.engine.local.kernel_events import locked_if_free

        async with locked_if_free(endpoint.lock) as is_mine:
            if not is_mine or not await _processes(endpoint):
                return False
            with suppress(OSError, VlmtuiError):  # it may have finished starting by now
                await self._report(endpoint)
                return False
            return True

    async def _remove_files(self, endpoint: Endpoint) -> None:
        """Remove a dead worker's files, unless a new one has been started since."""
        from vlmtui.engine.local.kernel_events import locked

        async with locked(endpoint.lock):
            if not await _processes(endpoint):
                endpoint.remove()

    async def _end_locked(self, endpoint: Endpoint, *, shutdown_sent: bool) -> None:
        """End a worker while holding the lock, so that no new one starts at the same endpoint."""
        from vlmtui.engine.local.kernel_events import locked

        async with locked(endpoint.lock):
            await self.end_processes(endpoint, shutdown_sent=shutdown_sent)


async def _processes(endpoint: Endpoint) -> list[psutil.Process]:
    from vlmtui.engine.local.process_tree import worker_processes

    return await asyncio.to_thread(worker_processes, endpoint)


def _leftover(worker: WorkerInfo) -> Leftover:
    about = f"{worker.name} (pid {worker.pid})" if worker.pid else worker.name
    return Leftover(id=worker.endpoint.worker_id, title=about)
