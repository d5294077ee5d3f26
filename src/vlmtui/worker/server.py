"""The server process of a worker: clients on one side, the engine's thread on the other."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

import msgspec

from vlmtui.domain.engine import (
    EngineInfo,
    EngineReady,
    Failure,
    GenerateRequest,
    LoadFailed,
    LoadProgress,
    LoadSpec,
    LoadStage,
)
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import private_dir
from vlmtui.protocol.messages import (
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    Cancel,
    ClientMessage,
    Forget,
    Generate,
    GetLog,
    GetStatus,
    Hello,
    LogLines,
    Ping,
    Pong,
    Refused,
    Resume,
    SetKeepAlive,
    Shutdown,
    Status,
    Welcome,
    WorkerMessage,
)
from vlmtui.worker import guardian
from vlmtui.worker.connection import Connection, check_peer, listen
from vlmtui.worker.failures import explain_death
from vlmtui.worker.heartbeat import Heartbeat
from vlmtui.worker.hosting import EngineThread, HostedEngine, Load
from vlmtui.worker.logbook import LineFormatter, Logbook
from vlmtui.worker.memory import memory_of
from vlmtui.worker.progress import LoadObserver
from vlmtui.worker.request_table import RequestTable, refuse

_log = logging.getLogger(__name__)

LONELY_S = 60.0
"""A worker that nobody ever connects to ends after this many seconds."""
_TICK_S = 0.1
_TOLD_GRACE_S = 10.0
"""How long a worker whose load failed waits for a client to tell it to."""
_SHUTDOWN_S = 2.0
EXIT_LOAD_FAILED = 3
EXIT_ENGINE_DIED = 4


@dataclass(slots=True)
class WorkerServer:
    """Serves one engine to any number of clients until it is told to stop, is left alone, or its engine dies."""

    spec: LoadSpec
    engine: EngineThread
    logbook: Logbook
    keep_alive_s: float | None
    pid: int
    """The pid that clients are told: the guardian's."""
    runtime: Path
    """The folder of the socket, where kept answers are left."""
    observer: LoadObserver = field(default_factory=LoadObserver)
    info: EngineInfo | None = None
    failure: Failure | None = None
    connections: set[Connection] = field(default_factory=set)
    requests: RequestTable = field(init=False)
    _heartbeat: Heartbeat = field(init=False)
    _death: Failure | None = None
    _left_since: float = field(default_factory=time.monotonic)
    _met_anyone: bool = False
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _status: int = 0

    def __post_init__(self) -> None:
        self.requests = RequestTable(self.engine, self.runtime, self._end_if_unused)
        self._heartbeat = Heartbeat(self.engine.ask)

    async def run(self, path: Path) -> int:
        """Listen and serve; the process's exit status."""
        private_dir(path.parent)
        server = await asyncio.start_unix_server(self._serve, sock=listen(str(path)), limit=MAX_MESSAGE_BYTES)
        self.engine.start(self.spec, self._loaded)
        ticking = [asyncio.create_task(work) for work in (self._tick(), self._tick_slowly())]
        await self._stopping.wait()
        for task in ticking:
            task.cancel()
        server.close()
        await self._say_goodbye()
        if self._status == 0:
            await self.engine.shutdown(_SHUTDOWN_S)
        return self._status

    def stop(self, status: int = 0) -> None:
        """End the server with this exit status."""
        if not self._stopping.is_set():
            self._status = status
            self._stopping.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        try:
            check_peer(writer)
            await self._greet(connection)
            while not self._stopping.is_set() and (message := await connection.receive()) is not None:
                await self._handle(connection, message)
        except VlmtuiError as error:
            _log.warning("a client was refused: %s", error)
            connection.send(Refused(Failure.of(error)))
            await connection.flush(1.0)
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
        self.connections.add(connection)
        self._met_anyone = self._met_anyone or connection.is_user
        connection.send(Welcome(version=PROTOCOL_VERSION, pid=self.pid, spec=self.spec, info=self.info))
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
        if not self._stopping.is_set():
            self.requests.leave(connection)
        if was_user:
            self._left_since = time.monotonic()
            self._end_if_unused()

    async def _handle(self, connection: Connection, message: ClientMessage) -> None:
        match message:
            case Generate(request=request):
                self._generate(connection, request)
            case Cancel(request_id=request_id):
                self.requests.cancel(request_id, connection)
            case Resume(request_id=request_id):
                self.requests.resume(request_id, connection)
            case Forget(request_id=request_id):
                self.requests.forget(request_id, connection)
            case Ping(n=number):
                connection.send(Pong(number))
            case GetStatus():
                connection.send(await self._make_status())
            case GetLog(lines=lines, follow=follow):
                self._read_log()
                connection.send(LogLines(tuple(self.logbook.lines)[-max(lines, 0) :] if lines > 0 else ()))
                connection.follows_log = follow
            case SetKeepAlive(seconds=seconds):
                self.keep_alive_s = seconds
            case Shutdown():
                self.stop()
            case Hello():
                raise VlmtuiError(ErrorKind.PROTOCOL, "A client greeted twice.")
            case _:
                assert_never(message)

    def _generate(self, connection: Connection, request: GenerateRequest) -> None:
        if self.info is None:
            refuse(request.request_id, connection, ErrorKind.ENGINE_BUSY, "The engine is still loading.")
        else:
            self.requests.begin(request, connection)

    def _loaded(self, outcome: EngineInfo | VlmtuiError) -> None:
        if isinstance(outcome, EngineInfo):
            self.info = msgspec.structs.replace(outcome, load_s=self.observer.elapsed_s)
            self._left_since = self.requests.idle_since = time.monotonic()
            _log.info("ready after %.1f s", self.info.load_s)
            self._broadcast(EngineReady(self.info))
        else:
            self.failure = Failure.of(outcome)
            self._broadcast(LoadFailed(self.failure))
            if self.connections:
                self.stop(EXIT_LOAD_FAILED)
            else:
                asyncio.get_running_loop().call_later(_TOLD_GRACE_S, self.stop, EXIT_LOAD_FAILED)

    def report(self, stage: LoadStage, detail: str = "") -> None:
        """Progress that is not read off the log: what the engine's own thread knows."""
        progress = self.observer.reach(stage, detail=detail)
        if progress is not None:
            self._broadcast(progress)

    def _broadcast(self, message: WorkerMessage) -> None:
        for connection in self.connections:
            connection.send(message)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S if self.info is None or any(c.follows_log for c in self.connections) else 0.25)
            self._read_log()
            if self.engine.is_dead:
                self._read_log()
                self._engine_died()
            self._end_if_unused()
            if not self._met_anyone and time.monotonic() - self._left_since > LONELY_S:
                self.stop()

    async def _tick_slowly(self) -> None:
        await self.requests.prune()
        while True:
            await asyncio.sleep(1.0)
            await self.requests.spool()
            if self.info is not None:
                generating = self.requests.is_generating
                await self._heartbeat.look(generating=generating, heard_at=self.requests.heard_at)

    def _read_log(self) -> None:
        lines = self.logbook.read_new()
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
        error = explain_death(self.logbook.lines)
        _log.error("the engine died: %s", error)
        self._death = Failure.of(error)
        self.stop(EXIT_ENGINE_DIED)

    def _end_if_unused(self) -> None:
        """Stop when nobody has used the engine for the keep-alive time."""
        if self.keep_alive_s is None or self.requests.running or not self._met_anyone:
            return
        if any(connection.is_user for connection in self.connections):
            return
        if time.monotonic() - max(self._left_since, self.requests.idle_since) >= self.keep_alive_s:
            _log.info("unused for %g s: ending", self.keep_alive_s)
            self.stop()

    async def _make_status(self) -> Status:
        memory = await asyncio.to_thread(memory_of, self.pid)
        busy = bool(self.requests.running)
        state = (
            "stopping" if self._stopping.is_set() else "loading" if self.info is None else "busy" if busy else "idle"
        )
        return Status(
            pid=self.pid,
            spec=self.spec,
            state=state,
            clients=sum(connection.is_user for connection in self.connections),
            running=len(self.requests.running),
            idle_s=0.0 if busy else time.monotonic() - self.requests.idle_since,
            keep_alive_s=self.keep_alive_s,
            rss_bytes=memory.rss_bytes,
            gpu_bytes=memory.gpu_bytes,
            kept=self.requests.without_client,
            engine_silent_s=self._heartbeat.silent_s,
        )

    async def _say_goodbye(self) -> None:
        """Give every request its terminal message, and every client all that is meant for it."""
        self.requests.end(self._death)
        await asyncio.gather(*(connection.flush(1.0) for connection in self.connections))
        for connection in self.connections:
            connection.close()


def make_server(
    spec: LoadSpec, load: Load, *, log: Path, runtime: Path, keep_alive_s: float | None, pid: int
) -> WorkerServer:
    """A server around a way to load an engine. `runtime` is the folder of its socket."""
    logbook = Logbook(log)

    def log_tail() -> list[str]:
        return log.read_text(errors="replace").splitlines()[-400:]

    return WorkerServer(spec, EngineThread(load, log_tail), logbook, keep_alive_s, pid, runtime)


def main(argv: Sequence[str], load: Load | None = None) -> int:
    """Serve until the end; the exit status. `load`: how an engine is loaded, if not by vLLM."""
    arguments = guardian.parser()
    arguments.add_argument("--guardian", type=int, default=0)
    args = arguments.parse_args(argv)
    if args.guardian:
        guardian.die_with_parent(args.guardian)
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    spec = msgspec.json.decode(args.spec.read_bytes(), type=LoadSpec)
    keep_alive_s = None if args.keep_alive == "none" else float(args.keep_alive)
    pid = args.guardian or os.getpid()
    return asyncio.run(_main(spec, load, log=args.log, socket_path=args.socket, keep_alive_s=keep_alive_s, pid=pid))


async def _main(
    spec: LoadSpec, load: Load | None, *, log: Path, socket_path: Path, keep_alive_s: float | None, pid: int
) -> int:
    loop = asyncio.get_running_loop()

    async def load_with_vllm(wanted: LoadSpec) -> HostedEngine:
        from vlmtui.worker.vllm_engine import load_engine

        return await load_engine(wanted, lambda *news: loop.call_soon_threadsafe(server.report, *news))

    runtime = socket_path.parent
    how = load or load_with_vllm
    server = make_server(spec, how, log=log, runtime=runtime, keep_alive_s=keep_alive_s, pid=pid)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, server.stop)
    status = await server.run(socket_path)
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # The engine's thread and vLLM's own exit hooks would wait for processes that the guardian ends anyway.
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
