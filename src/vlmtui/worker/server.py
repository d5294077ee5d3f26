"""The worker's server: passes messages between the clients and the engine's thread."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

import msgspec

from vlmtui.domain.capabilities import lack, lack_for
from vlmtui.domain.engine import (
    Activity,
    EngineInfo,
    EngineReady,
    EngineStatus,
    LoadFailed,
    LoadProgress,
    LoadSpec,
)
from vlmtui.domain.generation import Failure, GenerateRequest, RenderRequest, Request, ScoreRequest
from vlmtui.domain.metrics import MetricsSample
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_private
from vlmtui.paths import private_dir
from vlmtui.protocol.endpoint import HOME_SUFFIX, RECORD_SUFFIX, WorkerRecord, require_own_peer
from vlmtui.protocol.messages import (
    MAX_MESSAGE_BYTES,
    MAX_REPLY_BYTES,
    PROTOCOL_VERSION,
    Cancel,
    ClientMessage,
    Forget,
    GetLog,
    GetMetrics,
    GetStatus,
    Goodbye,
    Hello,
    LogLines,
    MetricsReport,
    Refused,
    Resume,
    Shutdown,
    StatusReport,
    Welcome,
    WorkerMessage,
    decode_client_message,
    encode,
    read_line,
)
from vlmtui.protocol.spool import prune_spool
from vlmtui.worker.backends.contract import Backend, LoadStep
from vlmtui.worker.engine_thread import EngineThread
from vlmtui.worker.health import EngineHealth, children_cpu_seconds, memory_kills, memory_of, own_cpu_seconds
from vlmtui.worker.log_file import LoadObserver, LogFile
from vlmtui.worker.requests import Requests, refuse


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits in seconds, and the maximum number of kept answers."""

    lonely_s: float = 60.0
    """A worker stops after this time if no client ever connects."""
    failed_load_s: float = 10.0
    """A worker without clients stays this long after a failed load, so that a client can still get the error."""
    shutdown_s: float = 2.0
    """The time for the engine to end its processes; the guardian then kills the others."""
    flush_s: float = 1.0
    """The time for a client to read the last messages."""
    shortest_silence_s: float = 4.0
    """A shorter hang of the engine is not reported."""
    metrics_every_s: float = 2.0
    """The time between two samples of the metrics, while a client follows them."""
    ended_answers: int = 32
    """The most finished answers that wait for a client; the oldest is dropped first."""


_log = logging.getLogger(__name__)

_OBSERVERS = frozenset({"ps", "stop"})
"""The clients whose presence does not keep the worker running."""


class Connection:
    """A client. Use it only in the server's event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        writer.transport.set_write_buffer_limits(0)  # so that `drain` waits until all is sent
        self.hello: Hello | None = None
        self.follows_log = False
        self.follows_metrics = False

    @property
    def is_user(self) -> bool:
        return self.hello is not None and self.hello.client not in _OBSERVERS

    async def receive(self) -> ClientMessage | None:
        """Return the next message, or None when the client has disconnected. Raises VlmtuiError(PROTOCOL)."""
        line = await read_line(self._reader)
        return None if line is None else decode_client_message(line)

    def send(self, message: WorkerMessage) -> None:
        """Send a message without waiting. Does nothing if the client has disconnected. A client that does not read is
        disconnected when more than MAX_REPLY_BYTES are buffered for it."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        transport.write(encode(message))
        if transport.get_write_buffer_size() > MAX_REPLY_BYTES:
            _log.warning("a client does not read its messages and is disconnected")
            transport.abort()

    async def flush(self, timeout_s: float) -> None:
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(timeout_s):
                await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


def listen(path: str) -> socket.socket:
    """Return a listening Unix socket at `path`, mode 0600. Its folder must already be private."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(16)
    listener.setblocking(False)
    return listener


_LOG_INTERVAL_S = 0.1
"""Seconds between reads of the log."""
_CHECK_INTERVAL_S = 1.0
"""Seconds between health checks, and between writes of answers without a client to the spool."""
_METRICS_ANSWER_S = 10.0
EXIT_LOAD_FAILED = 3
EXIT_ENGINE_DIED = 4


@dataclass(slots=True)
class WorkerServer:
    """Serves one engine to any number of clients, until it is stopped or unused, or the engine dies."""

    spec: LoadSpec
    backend: Backend
    engine: EngineThread
    log: LogFile
    keep_alive_s: float | None
    pid: int
    """The worker's pid for clients: the guardian's."""
    runtime: Path
    """The folder of the spool."""
    limits: Limits = field(default_factory=Limits)
    observer: LoadObserver = field(init=False)
    info: EngineInfo | None = None
    failure: Failure | None = None
    connections: set[Connection] = field(default_factory=set)
    requests: Requests = field(init=False)
    _health: EngineHealth = field(init=False)
    _end_timer: asyncio.TimerHandle | None = None
    _log_is_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the engine loads, and while a client follows the log."""
    _metrics_are_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while a client follows the metrics."""
    _death: Failure | None = None
    _left_since: float = field(default_factory=time.monotonic)
    _met_anyone: bool = False
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _listening: list[asyncio.Server] = field(default_factory=list)
    _started_at: float = field(default_factory=time.time)
    _status: int = 0

    def __post_init__(self) -> None:
        self.observer = LoadObserver(self.backend)
        self.requests = Requests(
            self.engine, self.runtime, self._end_if_unused, ended_answers=self.limits.ended_answers
        )
        self._health = EngineHealth(
            self.engine.ping,
            shortest_s=self.limits.shortest_silence_s,
            cpu_seconds=own_cpu_seconds if self.backend.computes_in_worker else children_cpu_seconds,
        )

    async def run(self, path: Path, *, on_listening: Callable[[], None] = lambda: None) -> int:
        """Listen and serve. Return the process's exit status."""
        await self._listen(path)
        on_listening()
        self._log_is_wanted.set()
        self._end_if_unused()
        self.engine.start(self.spec, on_progress=self._progressed, on_loaded=self._loaded, on_death=self._engine_died)
        watchers = [
            asyncio.create_task(work) for work in (self._follow_log(), self._watch_engine(path), self._sample_metrics())
        ]
        await self._stopping.wait()
        for task in watchers:
            task.cancel()
        for server in self._listening:
            server.close()
        await self._say_goodbye()
        if self._status == 0:
            await self.engine.shutdown(self.limits.shutdown_s)
        return self._status

    async def _listen(self, path: Path) -> None:
        private_dir(self.runtime)
        private_dir(path.parent)
        server = await asyncio.start_unix_server(self._serve, sock=listen(str(path)), limit=MAX_MESSAGE_BYTES)
        self._listening.append(server)

    async def _stay_in_reach(self, path: Path) -> None:
        """Create the socket and the record again if they are gone: a program that cleans up may have deleted them, or
        the user."""
        record = self.runtime / f"{path.stem}{RECORD_SUFFIX}"
        try:
            if not path.exists():
                private_dir(path.with_suffix(HOME_SUFFIX))
                await self._listen(path)
            if not record.exists():
                log = str(self.log.path)
                known = WorkerRecord(spec=self.spec, pid=self.pid, started_at=self._started_at, log=log)
                write_private(record, msgspec.json.encode(known))
        except (VlmtuiError, OSError) as error:
            _log.warning("cannot create the socket or the record again: %s", error)

    def stop(self, status: int = 0) -> None:
        if not self._stopping.is_set():
            self._status = status
            self._stopping.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        try:
            require_own_peer(writer)
            await self._greet(connection)
            while not self._stopping.is_set() and (message := await connection.receive()) is not None:
                await self._handle(connection, message)
        except VlmtuiError as error:
            _log.warning("a client was refused: %s", error)
            connection.send(Refused(Failure.of(error)))
            await connection.flush(self.limits.flush_s)
        except Exception:
            _log.exception("a connection failed")
        finally:
            self._leave(connection)

    async def _greet(self, connection: Connection) -> None:
        hello = await connection.receive()
        if hello is None:
            return
        if not isinstance(hello, Hello):
            raise VlmtuiError(ErrorKind.PROTOCOL, "A client must greet first.")
        if hello.version != PROTOCOL_VERSION:
            raise VlmtuiError(
                ErrorKind.PROTOCOL,
                f"The running worker speaks protocol version {PROTOCOL_VERSION}, this vlmtui {hello.version}.",
                hint="End the old worker with: vlmtui stop --all",
            )
        connection.hello = hello
        changed = await asyncio.to_thread(self.engine.changed_files) if connection.is_user else ()
        self.connections.add(connection)
        self._met_anyone = self._met_anyone or connection.is_user
        welcome = Welcome(version=PROTOCOL_VERSION, pid=self.pid, spec=self.spec, info=self.info, changed=changed)
        connection.send(welcome)
        if self.failure is not None:
            connection.send(LoadFailed(self.failure))
        elif self.info is not None:
            connection.send(EngineReady(self.info))
        else:
            connection.send(self.observer.progress)

    def _leave(self, connection: Connection) -> None:
        connection.close()
        was_user = connection in self.connections and connection.is_user
        self.connections.discard(connection)
        self._update_followers()
        if not self._stopping.is_set():
            self.requests.leave(connection)
        if was_user:
            self._left_since = time.monotonic()
            self._end_if_unused()

    async def _handle(self, connection: Connection, message: ClientMessage) -> None:
        match message:
            case GenerateRequest() | ScoreRequest() | RenderRequest():
                self._begin(connection, message)
            case Cancel(request_id=request_id):
                self.requests.cancel(request_id, connection)
            case Resume(request_id=request_id):
                self.requests.resume(request_id, connection)
            case Forget(request_id=request_id):
                self.requests.forget(request_id, connection)
            case GetStatus():
                connection.send(await self._make_status())
            case GetLog(lines=lines, follow=follow):
                self._read_log()
                connection.send(LogLines(tuple(self.log.ring.newest(lines))))
                connection.follows_log = follow
                self._update_followers()
            case GetMetrics(follow=True) if self.info is None or not self.info.capabilities.metrics:
                why = lack(self.info, "metrics") or "The engine is still loading."
                connection.send(MetricsReport(failure=Failure(kind=ErrorKind.UNSUPPORTED, message=why)))
            case GetMetrics(follow=follow):
                connection.follows_metrics = follow
                self._update_followers()
            case Shutdown():
                self.stop()
            case Hello():
                raise VlmtuiError(ErrorKind.PROTOCOL, "A client greeted twice.")
            case _:
                assert_never(message)

    def _begin(self, connection: Connection, request: Request) -> None:
        if self.info is None:
            refuse(request.request_id, connection, ErrorKind.ENGINE_BUSY, "The engine is still loading.")
        elif why := lack_for(self.info, request):
            refuse(request.request_id, connection, ErrorKind.UNSUPPORTED, why)
        else:
            self.requests.begin(request, connection)

    def _loaded(self, outcome: EngineInfo | VlmtuiError) -> None:
        if isinstance(outcome, EngineInfo):
            capabilities = msgspec.structs.replace(outcome.capabilities, keeps_answers=True)  # this process does
            self.info = msgspec.structs.replace(outcome, load_s=self.observer.elapsed_s, capabilities=capabilities)
            self._left_since = self.requests.idle_since = time.monotonic()
            _log.info("ready after %.1f s", self.info.load_s)
            self._broadcast(EngineReady(self.info))
            self._end_if_unused()
        else:
            self.failure = Failure.of(outcome)
            self._broadcast(LoadFailed(self.failure))
            if self.connections:
                self.stop(EXIT_LOAD_FAILED)
            else:
                asyncio.get_running_loop().call_later(self.limits.failed_load_s, self.stop, EXIT_LOAD_FAILED)
        self._update_followers()

    def _progressed(self, step: LoadStep) -> None:
        """Send all clients load progress that the backend has reported directly instead of in the log."""
        progress = self.observer.reach(step)
        if progress is not None:
            self._broadcast(progress)

    def _broadcast(self, message: WorkerMessage) -> None:
        for connection in self.connections:
            connection.send(message)

    async def _follow_log(self) -> None:
        while True:
            await self._log_is_wanted.wait()
            await asyncio.sleep(_LOG_INTERVAL_S)
            self._read_log()

    def _update_followers(self) -> None:
        """Read the log and the metrics only while a client follows them, and the log also during a load."""
        is_loading = self.info is None and self.failure is None
        for event, is_wanted in (
            (self._log_is_wanted, is_loading or any(one.follows_log for one in self.connections)),
            (self._metrics_are_wanted, any(one.follows_metrics for one in self.connections)),
        ):
            event.set() if is_wanted else event.clear()

    async def _watch_engine(self, path: Path) -> None:
        """Regularly check the engine's health and the socket at `path`, read the log, and write answers without a
        client to the spool."""
        await asyncio.to_thread(prune_spool, self.runtime)
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            memory_kills.look()
            self._read_log()
            await self._stay_in_reach(path)
            await self.requests.spool()
            if self.info is not None:
                last_event_at = self.requests.last_event_at
                computes = self.requests.is_generating and self.backend.computes_here
                await self._health.check(generating=computes, last_event_at=last_event_at)

    async def _sample_metrics(self) -> None:
        """Regularly send the engine's metrics to the clients that follow them."""
        while True:
            await self._metrics_are_wanted.wait()
            report = await self._metrics_report()
            for connection in self.connections:
                if connection.follows_metrics:
                    connection.send(report)
            await asyncio.sleep(self.limits.metrics_every_s)

    async def _metrics_report(self) -> MetricsReport:
        try:
            async with asyncio.timeout(_METRICS_ANSWER_S):
                return MetricsReport(sample=MetricsSample(at=time.time(), metrics=await self.engine.metrics()))
        except TimeoutError:
            message = "The engine did not tell its metrics in time."
            return MetricsReport(failure=Failure(kind=ErrorKind.ENGINE_BUSY, message=message))
        except VlmtuiError as error:
            return MetricsReport(failure=Failure.of(error))

    def _read_log(self) -> None:
        lines = self.log.read_new()
        if lines:
            for connection in self.connections:
                if connection.follows_log:
                    connection.send(LogLines(tuple(lines)))
        if self.info is None and self.failure is None:
            newest: LoadProgress | None = None
            for line in lines:
                newest = self.observer.feed(line) or newest
            if newest is not None:
                self._broadcast(newest)

    def _engine_died(self) -> None:
        self._read_log()
        error = self.engine.process_exits.add_exits(self.backend.explain_death(self.log.recent()))
        _log.error("the engine died: %s", error)
        self._death = Failure.of(error)
        self.stop(EXIT_ENGINE_DIED)

    def _end_if_unused(self) -> None:
        """Stop if the engine has been unused for the keep-alive time; otherwise set a timer for it. If no client has
        ever connected, `lonely_s` counts instead."""
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None
        stays_s = self.keep_alive_s if self._met_anyone else self.limits.lonely_s
        is_used = self.requests.running or any(connection.is_user for connection in self.connections)
        if stays_s is None or is_used or self._stopping.is_set():
            return
        left_s = max(self._left_since, self.requests.idle_since) + stays_s - time.monotonic()
        if left_s <= 0:
            _log.info("unused for %g s: ending", stays_s)
            self.stop()
        else:
            self._end_timer = asyncio.get_running_loop().call_later(left_s, self._end_if_unused)

    async def _make_status(self) -> StatusReport:
        rss_bytes, gpu_bytes = await asyncio.to_thread(memory_of, self.pid)
        changed = await asyncio.to_thread(self.engine.changed_files)
        is_busy = bool(self.requests.running)
        state = Activity.BUSY if is_busy else Activity.IDLE
        if self._stopping.is_set():
            state = Activity.STOPPING
        elif self.info is None:
            state = Activity.LOADING
        status = EngineStatus(
            spec=self.spec,
            state=state,
            clients=sum(connection.is_user for connection in self.connections),
            running=len(self.requests.running),
            idle_s=0.0 if is_busy else time.monotonic() - self.requests.idle_since,
            keep_alive_s=self.keep_alive_s,
            rss_bytes=rss_bytes,
            gpu_bytes=gpu_bytes,
            kept=self.requests.unattended,
            engine_silent_s=self._health.silent_s,
            changed=changed,
        )
        return StatusReport(pid=self.pid, status=status)

    async def _say_goodbye(self) -> None:
        """Send the terminal event of every request, and close all connections once it is sent."""
        self.requests.end_all(self._death)
        for connection in self.connections:
            connection.send(Goodbye(self._death))
        await asyncio.gather(*(connection.flush(self.limits.flush_s) for connection in self.connections))
        for connection in self.connections:
            connection.close()
