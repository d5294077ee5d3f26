"""Starts, finds and ends the workers of this machine."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.engine import FOLDER_GONE, EngineStatus, LoadSpec, can_serve
from vlmtui.domain.generation import EngineEvent, Failed, Failure
from vlmtui.engine.interface import Leftover, WhenChanged, changed_since_load, outdated
from vlmtui.engine.local.launcher import Launcher, StartedWorker, WorkerProgram, installed_program
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths, private_dir
from vlmtui.protocol.endpoint import Endpoint, WorkerRecord, make_socket_folder, this_machine
from vlmtui.protocol.spool import is_complete, read_spooled, remove_spooled, spooled_requests

if TYPE_CHECKING:
    import psutil

    from vlmtui.domain.metrics import EngineMetrics
    from vlmtui.engine.local.client import WorkerClient
    from vlmtui.protocol.messages import StatusReport

_RETRY_S = 0.05
"""Seconds between two attempts to lock a file."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The most seconds to wait for a worker."""

    answer_s: float = 5.0
    """For the answer to a status request."""
    attach_s: float = 10.0
    """For the greeting of a running worker."""
    start_s: float = 60.0
    """For the greeting of a started process; the model loads after that."""
    reach_s: float = 3.0
    """For a running worker to create its deleted socket again."""
    hub_s: float = 4.0
    """For the hub to accept a connection, before a model is downloaded."""
    inspect_s: float = 5.0
    """For the greeting of a worker that is only inspected (`vlmtui ps`) or about to be stopped."""
    shutdown_s: float = 10.0
    """From a Shutdown message to the worker's end."""
    terminate_s: float = 8.0
    """From SIGTERM to SIGKILL."""
    kill_s: float = 10.0
    """From SIGKILL to the end of the processes."""


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker with living processes, or of another machine. `report` is None if it does not answer, and `record` if
    its file is gone."""

    endpoint: Endpoint
    record: WorkerRecord | None
    report: StatusReport | None

    @property
    def status(self) -> EngineStatus | None:
        return None if self.report is None else self.report.status

    @property
    def elsewhere(self) -> str | None:
        """The name of the other machine whose worker this is: this one can neither reach nor end it, nor see whether it
        still runs. None for a worker of this machine."""
        if self.report is not None or self.record is None:
            return None
        its, here = self.record.machine, this_machine()
        return None if its == here or its.is_earlier(here) else its.name

    @property
    def name(self) -> str:
        """The name of the worker's model; if that is unknown, the worker's id."""
        if self.status is not None:
            return self.status.spec.name
        return self.record.spec.name if self.record is not None else self.endpoint.worker_id

    def is_called(self, name: str) -> bool:
        """Return True if `name` is the model's name, path or family, or the worker's pid or id."""
        specs = [known.spec for known in (self.status, self.record) if known is not None]
        names = {text for spec in specs for text in (spec.name, spec.model, spec.family)}
        return name in names or name in (str(self.pid), self.endpoint.worker_id)

    @property
    def pid(self) -> int:
        """The guardian's pid; 0 if unknown."""
        if self.report is not None:
            return self.report.pid
        return self.record.pid if self.record is not None else 0


# psutil and the message decoders are imported when first needed, so that they do not delay the first paint.


class WorkerHost:
    """An `EngineHost` (see `vlmtui.engine.interface`), with further methods for the commands `ps`, `top` and `stop`."""

    def __init__(self, paths: Paths, launcher: Launcher | None = None, timeouts: Timeouts | None = None) -> None:
        self._paths = paths
        self._launcher = launcher or Launcher(partial(installed_program, paths))
        self._timeouts = timeouts or Timeouts()
        self._children: list[subprocess.Popen[bytes]] = []
        self._in_use: weakref.WeakSet[WorkerClient] = weakref.WeakSet()
        """The connections made by `open`. While one is open, its worker is no leftover."""

    async def open(
        self,
        spec: LoadSpec,
        *,
        client: str,
        keep_alive_s: float | None,
        when_changed: WhenChanged = WhenChanged.RELOAD,
        is_exact: bool = False,
    ) -> WorkerClient:
        await asyncio.to_thread(make_socket_folder, self._paths.runtime)
        endpoint, notes = Endpoint.of(self._paths, spec), list[str]()
        async with locked(endpoint.lock):
            worker = await self._attach(endpoint, spec, client)
            if worker is not None and worker.changed and when_changed is not WhenChanged.KEEP:
                keep_alive_s = (await _leave_outdated(worker, when_changed)).keep_alive_s
                notes.append(f"{changed_since_load(spec.name, worker.changed)} It is loaded again.")
                worker = None
            if worker is None and not is_exact:
                worker = await self._attach_to_other(endpoint, spec, client)
            if worker is None:
                await self._require_files(spec)
                program = await asyncio.to_thread(self._launcher.choose, spec)
                await self._end_processes(endpoint, shutdown_sent=False)
                notes += [] if is_exact else await self._told_twins(spec)
                worker = await self._start(program, endpoint, spec, client, keep_alive_s)
                if notes:
                    worker.add_note(" ".join(notes))
        self._in_use.add(worker)
        return worker

    async def _require_files(self, spec: LoadSpec) -> None:
        """Raise VlmtuiError(NO_NETWORK) if the model is neither on this machine nor can be downloaded."""
        from vlmtui.engine.local.hub import hub_error  # urllib takes a while to import

        error = None
        with suppress(TimeoutError):  # the network may be slow
            async with asyncio.timeout(self._timeouts.hub_s):
                error = await asyncio.to_thread(hub_error, spec)
        if error is not None:
            raise error

    async def _attach(self, endpoint: Endpoint, spec: LoadSpec, client: str) -> WorkerClient | None:
        """Connect to a running worker; None if there is none. If a worker's socket was deleted, wait until it creates
        the socket again."""
        until = time.monotonic() + self._timeouts.reach_s
        while True:
            try:
                return await self._connect(
                    endpoint, client, attached=True, timeout_s=self._timeouts.attach_s, name=spec.name
                )
            except FileNotFoundError:
                if time.monotonic() > until or not await _processes(endpoint):
                    return None
            except OSError:
                return None
            await asyncio.sleep(_RETRY_S)

    async def _told_twins(self, spec: LoadSpec) -> list[str]:
        """Return a note for each engine of another process that has loaded the same model and can't serve this spec."""
        own = {client.endpoint for client in self._in_use if client.is_connected}
        found = [one for one in await self._with_files() if one.status is not None and one.endpoint not in own]
        return [
            f"{spec.name} is loaded a second time: the one that runs has other engine arguments. "
            f"`vlmtui stop {one.pid}` frees its memory."
            for one in found
            if one.status is not None and one.status.spec.model == spec.model
        ]

    async def _attach_to_other(self, own: Endpoint, spec: LoadSpec, client: str) -> WorkerClient | None:
        """Connect to a running worker with another spec that can serve this one; None if there is none."""
        for endpoint in await asyncio.to_thread(Endpoint.all, self._paths):
            record = endpoint.read_record() if endpoint != own else None
            if record is None or not can_serve(record.spec, spec):
                continue
            with suppress(VlmtuiError):
                worker = await self._attach(endpoint, record.spec, client)
                if worker is not None and not worker.changed:
                    return worker
                if worker is not None:
                    await worker.close()
        return None

    async def running(self) -> list[EngineStatus]:
        return [worker.status for worker in await self._with_files() if worker.status is not None]

    async def holder(self, request_id: str) -> LoadSpec | None:
        for status in await self.running():
            if request_id in status.kept:
                return status.spec
        return None

    async def unfetched_answer(self, request_id: str) -> list[EngineEvent] | None:
        events = await asyncio.to_thread(read_spooled, self._paths.runtime, request_id)
        if events is None or is_complete(events):
            return events
        if any(worker.report is None for worker in await self._with_files()):
            return None  # a worker that does not answer, or runs elsewhere, may still be running this request
        message = "The worker was killed before it finished this answer."
        return [*events, Failed(request_id=request_id, failure=Failure(kind=ErrorKind.ENGINE_DIED, message=message))]

    async def unfetched_answers(self) -> list[str]:
        return await asyncio.to_thread(spooled_requests, self._paths.runtime)

    async def forget(self, request_id: str) -> None:
        await asyncio.to_thread(remove_spooled, self._paths.runtime, request_id)

    async def find_all(self) -> list[WorkerInfo]:
        """Return all workers of this user: those that do not answer, or whose files are gone, and those of other
        machines that share the folder. Removes files of dead ones. Raises VlmtuiError if the runtime folder or a socket
        belongs to another user."""
        from vlmtui.engine.local.processes import live_worker_ids

        found = await self._with_files()
        known = {worker.endpoint.worker_id for worker in found}
        living = await asyncio.to_thread(live_worker_ids, self._paths.runtime)
        return [*found, *(WorkerInfo(Endpoint.named(self._paths, one), None, None) for one in sorted(living - known))]

    async def _with_files(self) -> list[WorkerInfo]:
        workers = await asyncio.gather(*(self._inspect(endpoint) for endpoint in Endpoint.all(self._paths)))
        return [worker for worker in workers if worker is not None]

    async def metrics(self, endpoint: Endpoint) -> EngineMetrics:
        """Return the current metrics of a worker's engine. Raises OSError or VlmtuiError."""
        worker = await self._connect(endpoint, "ps", attached=True, timeout_s=self._timeouts.inspect_s)
        try:
            async with asyncio.timeout(self._timeouts.answer_s), aclosing(worker.metrics()) as found:
                async for one in found:
                    if isinstance(one, Failure):
                        raise one.error()
                    return one.metrics
        except TimeoutError as error:
            raise VlmtuiError(ErrorKind.ENGINE_BUSY, "The worker sent no metrics in time.") from error
        finally:
            await worker.close()
        raise VlmtuiError(ErrorKind.ENGINE_DIED, "The worker ended.")

    async def leftovers(self) -> list[Leftover]:
        found = [worker for worker in await self.find_all() if worker.report is None and worker.elsewhere is None]
        used = {client.endpoint.worker_id for client in self._in_use if client.is_connected}
        return [
            Leftover(id=one.endpoint.worker_id, title=f"{one.name} (pid {one.pid})" if one.pid else one.name)
            for one in found
            if one.endpoint.worker_id not in used and await self._is_abandoned(one.endpoint)
        ]

    async def end(self, leftover: Leftover) -> None:
        await self.stop(Endpoint.named(self._paths, leftover.id))

    async def stop(self, endpoint: Endpoint) -> None:
        """End a worker, whether it answers or not. Returns when all its processes have ended."""
        try:
            worker = await self._connect(endpoint, "stop", attached=True, timeout_s=self._timeouts.inspect_s)
        except (OSError, VlmtuiError):
            await self._end_locked(endpoint, shutdown_sent=False)
        else:
            await worker.shutdown()

    async def _connect(
        self, endpoint: Endpoint, client: str, *, attached: bool, timeout_s: float, name: str = "--all"
    ) -> WorkerClient:
        """Connect to the worker of an endpoint. Raises as `vlmtui.engine.local.client.connect` does."""
        from vlmtui.engine.local.client import connect

        return await connect(
            endpoint,
            client=client,
            attached=attached,
            timeout_s=timeout_s,
            answer_timeout_s=self._timeouts.answer_s,
            end=partial(self._end_locked, endpoint, shutdown_sent=True),
            name=name,
        )

    async def _start(
        self, program: WorkerProgram, endpoint: Endpoint, spec: LoadSpec, client: str, keep_alive_s: float | None
    ) -> WorkerClient:
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(self._end_processes, endpoint, shutdown_sent=False)
            started = self._launcher.start(program, endpoint, spec, keep_alive_s)
            self._children.append(started.process)
            try:
                worker = await self._connect_started(started, endpoint, spec, client)
            finally:
                os.close(started.ready_pipe)
            cleanup.pop_all()
            return worker

    async def _connect_started(
        self, started: StartedWorker, endpoint: Endpoint, spec: LoadSpec, client: str
    ) -> WorkerClient:
        """Connect to a worker that was just started, as soon as its socket listens."""
        from vlmtui.engine.local.client import worker_died
        from vlmtui.engine.local.processes import readable

        deadline = time.monotonic() + self._timeouts.start_s
        if not await readable(started.ready_pipe, self._timeouts.start_s):
            message = f"The worker of {spec.name} did not open its socket within {self._timeouts.start_s:g} s."
            raise VlmtuiError(ErrorKind.ENGINE_DIED, message, hint=f"Log: {endpoint.log}")
        if not os.read(started.ready_pipe, 1):
            status = await asyncio.to_thread(started.process.wait)
            raise worker_died(f"The worker of {spec.name} exited during startup (status {status}).", endpoint)
        left = max(deadline - time.monotonic(), 1.0)
        try:
            return await self._connect(endpoint, client, attached=False, timeout_s=left, name=spec.name)
        except OSError as error:
            raise worker_died(f"The worker of {spec.name} exited during startup.", endpoint) from error

    async def _end_processes(self, endpoint: Endpoint, *, shutdown_sent: bool) -> None:
        """End a worker's remaining processes. The caller holds the endpoint's lock."""
        from vlmtui.engine.local.processes import end_worker

        await end_worker(endpoint, self._timeouts, shutdown_sent=shutdown_sent)
        self._children = [child for child in self._children if child.poll() is None]

    async def _inspect(self, endpoint: Endpoint) -> WorkerInfo | None:
        record = endpoint.read_record()
        report: StatusReport | None = None
        try:
            report = await self._report(endpoint)
        except (OSError, VlmtuiError) as error:
            if isinstance(error, VlmtuiError) and error.kind is ErrorKind.FOREIGN_PEER:
                raise
            found = WorkerInfo(endpoint, record, None)
            if found.elsewhere is None and not await _processes(endpoint):
                await self._remove_files(endpoint)
                return None
        return WorkerInfo(endpoint, record, report)

    async def _report(self, endpoint: Endpoint) -> StatusReport:
        """Return a worker's status. Raises OSError or VlmtuiError if it does not answer."""
        worker = await self._connect(endpoint, "ps", attached=True, timeout_s=self._timeouts.inspect_s)
        try:
            return await worker.report()
        finally:
            await worker.close()

    async def _is_abandoned(self, endpoint: Endpoint) -> bool:
        """Return True if a worker that did not answer still runs, and no process is starting or ending it."""
        async with locked_if_free(endpoint.lock) as is_mine:
            if not is_mine or not await _processes(endpoint):
                return False
            with suppress(OSError, VlmtuiError):  # it may have finished starting by now
                await self._report(endpoint)
                return False
            return True

    async def _remove_files(self, endpoint: Endpoint) -> None:
        """Remove a dead worker's files, unless a new worker has been started since."""
        async with locked(endpoint.lock):
            if not await _processes(endpoint):
                endpoint.remove()

    async def _end_locked(self, endpoint: Endpoint, *, shutdown_sent: bool) -> None:
        """End a worker while holding the lock, so that no new worker starts at the same endpoint."""
        async with locked(endpoint.lock):
            await self._end_processes(endpoint, shutdown_sent=shutdown_sent)


async def _leave_outdated(worker: WorkerClient, when: WhenChanged) -> EngineStatus:
    """Disconnect from a worker whose files have changed, and return its status. Raises VlmtuiError if it must not be
    ended."""
    try:
        status = msgspec.structs.replace(await worker.status(), changed=worker.changed)
        is_used = status.clients > 1 or status.running
        if is_used or when is WhenChanged.REFUSE or status.changed == (FOLDER_GONE,):
            raise outdated(status, when)
        return status
    finally:
        await worker.close()


async def _processes(endpoint: Endpoint) -> list[psutil.Process]:
    from vlmtui.engine.local.processes import worker_processes

    return await asyncio.to_thread(worker_processes, endpoint)


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Hold a lock file, waiting for it if necessary. The kernel releases it when this process dies. Raises VlmtuiError
    if the file can't be opened."""
    file = _open_lock(path)
    try:
        while not _try_lock(file):  # noqa: ASYNC110 - waiting in flock itself could not be cancelled
            await asyncio.sleep(_RETRY_S)
        yield
    finally:
        os.close(file)


@asynccontextmanager
async def locked_if_free(path: Path) -> AsyncIterator[bool]:
    """Hold a lock file if it is free; yields whether it is held. Raises VlmtuiError if the file can't be opened."""
    file = _open_lock(path)
    try:
        yield _try_lock(file)
    finally:
        os.close(file)


def _open_lock(path: Path) -> int:
    private_dir(path.parent)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise VlmtuiError(ErrorKind.INTERNAL, f"Can't use the lock file {path}.", detail=str(error)) from error


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
