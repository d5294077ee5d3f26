"""Attaches to or starts engines in workers on this machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from vlmtui.domain.engine import EngineStatus, LoadSpec
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import EngineEvent, Failed
from vlmtui.engine.local.errors import worker_died
from vlmtui.engine.local.launcher import Launcher, StartedWorker, WorkerProgram, installed_program
from vlmtui.engine.local.timeouts import Timeouts
from vlmtui.engine.local.workers import LocalWorkers
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.protocol.spool import is_complete, read_spooled, remove_spooled, spooled_requests

if TYPE_CHECKING:
    from vlmtui.engine.local.client import WorkerClient


class WorkerHost:
    """An `EngineHost` (see `vlmtui.engine.interface`). `workers` finds and ends the same workers."""

    def __init__(self, paths: Paths, launcher: Launcher | None = None, timeouts: Timeouts | None = None) -> None:
        self.workers = LocalWorkers(paths, timeouts)
        self._paths = paths
        self._launcher = launcher or Launcher(partial(installed_program, paths))
        self._timeouts = self.workers.timeouts
        self._children: list[subprocess.Popen[bytes]] = []

    async def open(self, spec: LoadSpec, *, client: str, keep_alive_s: float | None) -> WorkerClient:
        worker = await self._open(spec, client, keep_alive_s)
        self.workers.protect(worker)
        return worker

    async def running(self) -> list[EngineStatus]:
        return [worker.status for worker in await self.workers.find_all() if worker.status is not None]

    async def holder(self, request_id: str) -> LoadSpec | None:
        for status in await self.running():
            if request_id in status.kept:
                return status.spec
        return None

    async def unfetched_answer(self, request_id: str) -> list[EngineEvent] | None:
        events = await asyncio.to_thread(read_spooled, self._paths.runtime, request_id)
        if events is None or is_complete(events):
            return events
        if any(worker.report is None for worker in await self.workers.find_all()):
            return None  # a worker that does not answer may still be running this request
        message = "The worker was killed before it finished this answer."
        return [*events, Failed(request_id=request_id, failure=Failure(kind=ErrorKind.ENGINE_DIED, message=message))]

    async def unfetched_answers(self) -> list[str]:
        return await asyncio.to_thread(spooled_requests, self._paths.runtime)

    async def forget(self, request_id: str) -> None:
        await asyncio.to_thread(remove_spooled, self._paths.runtime, request_id)

    async def _open(self, spec: LoadSpec, client: str, keep_alive_s: float | None) -> WorkerClient:
        from vlmtui.engine.local.kernel_events import locked

        endpoint = Endpoint.of(self._paths, spec)
        async with locked(endpoint.lock):
            with suppress(OSError):
                return await self.workers.connect(
                    endpoint, client, attached=True, timeout_s=self._timeouts.attach_s, name=spec.name
                )
            program = await asyncio.to_thread(self._launcher.choose, spec)
            await self._end(endpoint)
            return await self._start(program, endpoint, spec, client, keep_alive_s)

    async def _start(
        self, program: WorkerProgram, endpoint: Endpoint, spec: LoadSpec, client: str, keep_alive_s: float | None
    ) -> WorkerClient:
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(self._end, endpoint)
            started = self._launcher.start(program, endpoint, spec, keep_alive_s)
            self._children.append(started.process)
            with started.closing():
                worker = await self._connect_started(started, endpoint, spec, client)
            cleanup.pop_all()
            return worker

    async def _connect_started(
        self, started: StartedWorker, endpoint: Endpoint, spec: LoadSpec, client: str
    ) -> WorkerClient:
        """Connect to a worker that was just started, as soon as its socket listens."""
        from vlmtui.engine.local.kernel_events import readable

        deadline = time.monotonic() + self._timeouts.start_s
        if not await readable(started.ready_pipe, self._timeouts.start_s):
            message = f"The worker of {spec.name} did not open its socket within {self._timeouts.start_s:g} s."
            raise VlmtuiError(ErrorKind.ENGINE_DIED, message, hint=f"Log: {endpoint.log}")
        if not os.read(started.ready_pipe, 1):
            status = await asyncio.to_thread(started.process.wait)
            raise worker_died(f"The worker of {spec.name} exited during startup (status {status}).", endpoint)
        left = max(deadline - time.monotonic(), 1.0)
        try:
            return await self.workers.connect(endpoint, client, attached=False, timeout_s=left, name=spec.name)
        except OSError as error:
            raise worker_died(f"The worker of {spec.name} exited during startup.", endpoint) from error

    async def _end(self, endpoint: Endpoint) -> None:
        await self.workers.end_processes(endpoint, shutdown_sent=False)
        self._children = [child for child in self._children if child.poll() is None]
