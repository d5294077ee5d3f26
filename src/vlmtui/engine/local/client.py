"""Connects to a worker: an Engine over a Unix socket."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from shlex import quote
from typing import assert_never

import msgspec
import psutil

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.engine import (
    EngineInfo,
    EngineReady,
    EngineStatus,
    LoadEvent,
    LoadFailed,
    LoadProgress,
    LoadSpec,
)
from vlmtui.domain.generation import (
    Cancelled,
    Delta,
    EngineEvent,
    Failed,
    Failure,
    Finished,
    PromptReady,
    Request,
    Waiting,
)
from vlmtui.domain.metrics import MetricsSample
from vlmtui.engine.interface import EngineStopped
from vlmtui.engine.local.processes import has_ended
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.log_ring import LogRing
from vlmtui.protocol.endpoint import END_MARK, Endpoint, require_own_peer
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
    decode_worker_message,
    encode,
    read_line,
)
from vlmtui.protocol.spool import remove_spooled

_LINES_SHOWN = 12
_BYTES_READ = 16384


def worker_died(message: str, endpoint: Endpoint, *, has_started: bool = False) -> VlmtuiError:
    """Return ENGINE_DIED. The message says how the worker ended, as far as its guardian has written that to the log.
    The detail is the last lines of the log, if they may say why: not if a signal came from outside, or if the guardian
    of a worker that had started (`has_started`) wrote nothing, since it was killed, too."""
    lines: list[str] = []
    with suppress(OSError), endpoint.log.open("rb") as file:
        file.seek(max(0, endpoint.log.stat().st_size - _BYTES_READ))
        lines = file.read().decode(errors="replace").splitlines()[-_LINES_SHOWN:]
    ends = [number for number, line in enumerate(lines) if line.startswith(END_MARK)]
    if ends:
        how = lines[ends[-1]].removeprefix(END_MARK)
        message = f"{message} Its process {how}"
        lines = [] if any(name in how for name in _SENT) else lines[: ends[-1]]
    elif has_started:
        lines = []
    hint = f"Start it again. Log: {endpoint.log}"
    return VlmtuiError(ErrorKind.ENGINE_DIED, message, detail="\n".join(lines), hint=hint)


_SENT = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
"""Signals that come from outside of a process."""
_END_S = 3.0
"""The most seconds from a worker's end until its guardian has written how it ended."""
_LOG_LINES_REQUESTED = 1000
_LOG_LINES_HELD = 2000

EndWorker = Callable[[], Awaitable[None]]
"""Ends a worker's processes; returns when all have ended."""


class WorkerClient:
    """An `Engine` over a socket (see `vlmtui.engine.interface`). One task reads all messages and never waits."""

    def __init__(
        self,
        endpoint: Endpoint,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        welcome: Welcome,
        *,
        attached: bool,
        answer_timeout_s: float,
        end: EndWorker,
    ) -> None:
        """`answer_timeout_s`: how long a worker may take to answer a status request."""
        self.changed = welcome.changed
        """As in `EngineStatus`, when the connection was made."""
        self._notes: tuple[str, ...] = ()
        self.spec: LoadSpec = welcome.spec
        self.info: EngineInfo | None = welcome.info
        self.attached = attached
        self.pid = welcome.pid
        """The pid of the worker's guardian, which ends all its processes."""
        self.endpoint = endpoint
        self._answer_timeout_s = answer_timeout_s
        self._writer = writer
        self._end = end
        self._inboxes: dict[str, asyncio.Queue[EngineEvent]] = {}
        self._statuses: deque[asyncio.Future[StatusReport]] = deque()
        self._meters: set[asyncio.Queue[MetricsReport | None]] = set()
        """A queue for each reader of the metrics."""
        self._progress: list[LoadProgress] = []
        self._load_failure: Failure | None = None
        self._goodbye: Goodbye | None = None
        self._log = LogRing(_LOG_LINES_HELD)
        self._log_requested = False
        self._log_received = False
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._leaving = False
        self._cause: VlmtuiError | None = None
        self._reading = asyncio.create_task(self._read(reader))

    def add_note(self, text: str) -> None:
        """Add a note for the user to those of the engine's load."""
        self._notes = (text,)
        if self.info is not None:
            self.info = msgspec.structs.replace(self.info, notes=(*self.info.notes, text))

    async def load(self) -> AsyncIterator[LoadEvent]:
        seen = 0
        while self.info is None:
            fresh = self._progress[seen:]
            seen += len(fresh)
            for item in fresh:
                yield item
            if fresh or self.info is not None:
                continue
            if self._gone.is_set() or self._load_failure is not None:
                yield LoadFailed(self._load_failure or Failure.of(self._loss()))
                return
            await self._changed.wait()
        yield EngineReady(self.info)

    def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        return self._events(request.request_id, request)

    def resume(self, request_id: str) -> AsyncGenerator[EngineEvent, None]:
        return self._events(request_id, Resume(request_id))

    async def forget(self, request_id: str) -> None:
        await self._send(Forget(request_id))
        # The worker may have spooled the answer, if it had no client or is just stopping.
        await asyncio.to_thread(remove_spooled, self.endpoint.runtime, request_id)

    async def cancel(self, request_id: str) -> None:
        await self._send(Cancel(request_id))

    async def status(self) -> EngineStatus:
        return (await self.report()).status

    async def report(self) -> StatusReport:
        """Return the status together with the worker's pid. Raises VlmtuiError(ENGINE_DIED)."""
        if self._gone.is_set():
            raise self._loss()
        answer: asyncio.Future[StatusReport] = asyncio.get_running_loop().create_future()
        self._statuses.append(answer)
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                await self._send(GetStatus())
                return await answer
        except TimeoutError as error:
            raise VlmtuiError(
                ErrorKind.ENGINE_DIED,
                f"The engine of {self.spec.name} does not answer.",
                detail=f"no answer within {self._answer_timeout_s:g} s",
                hint=f"End it with `vlmtui stop {quote(self.spec.name)}` and start it again.",
            ) from error

    async def log(self, lines: int = 200) -> AsyncGenerator[str, None]:
        if not self._log_requested:
            self._log_requested = True
            await self._send(GetLog(max(lines, _LOG_LINES_REQUESTED), follow=True))
        while not self._log_received and not self._gone.is_set():
            await self._changed.wait()
        seen = max(0, self._log.total - lines)
        while True:
            fresh = self._log.since(seen)
            seen = self._log.total
            for line in fresh:
                yield line
            if self._gone.is_set() and not fresh:
                return
            if not fresh:
                await self._changed.wait()

    async def metrics(self) -> AsyncGenerator[MetricsSample | Failure, None]:
        require_capability(self.info, "metrics")
        if self._gone.is_set():
            raise self._loss()
        inbox: asyncio.Queue[MetricsReport | None] = asyncio.Queue()
        self._meters.add(inbox)
        try:
            await self._send(GetMetrics(follow=True))
            while (report := await inbox.get()) is not None:
                if told := report.sample or report.failure:
                    yield told
            raise self._loss()
        finally:
            self._meters.discard(inbox)
            if not self._meters and self.info is not None:
                self._post(GetMetrics(follow=False))

    @property
    def is_connected(self) -> bool:
        return not self._gone.is_set()

    async def closed(self) -> VlmtuiError | None:
        await self._gone.wait()
        return self._cause

    async def close(self) -> None:
        self._leaving = True
        self._disconnected(None)
        await asyncio.wait([self._reading])

    async def shutdown(self) -> None:
        self._leaving = True
        await self._send(Shutdown())
        try:
            await self._end()
        finally:
            await self.close()

    async def _events(self, request_id: str, message: Request | Resume) -> AsyncGenerator[EngineEvent, None]:
        if request_id in self._inboxes:
            raise ValueError(f"request {request_id} is already running")
        inbox = self._inboxes[request_id] = asyncio.Queue()
        ended = False
        try:
            failure = await self._start(message)
            if failure is not None:
                ended = True
                yield Failed(request_id=request_id, failure=failure)
            while not ended:
                event = await inbox.get()
                ended = isinstance(event, Finished | Failed | Cancelled)
                yield event
        finally:
            del self._inboxes[request_id]
            if not ended:
                self._post(Cancel(request_id))

    async def _start(self, message: Request | Resume) -> Failure | None:
        """Send a request. Return a failure if it can't be sent."""
        if self._gone.is_set():
            return Failure.of(self._loss())
        try:
            line = encode(message)
        except UnicodeEncodeError as error:
            text = "The message contains text that is not valid Unicode."
            return Failure(kind=ErrorKind.BAD_INPUT, message=text, detail=str(error))
        if len(line) > MAX_MESSAGE_BYTES:
            text = f"The conversation exceeds the message size limit of {MAX_MESSAGE_BYTES // 2**20} MiB."
            return Failure(kind=ErrorKind.BAD_INPUT, message=text, hint="Start a new chat.")
        await self._write(line)
        return None

    async def _send(self, message: ClientMessage) -> None:
        await self._write(encode(message))

    async def _write(self, line: bytes) -> None:
        """Write a line. Does not raise if the connection is lost: `_disconnected` then notifies all waiting callers."""
        if not self._gone.is_set():
            self._writer.write(line)
            with suppress(ConnectionError):
                await self._writer.drain()

    def _post(self, message: ClientMessage) -> None:
        """Send without waiting. For a coroutine that is being closed, which must not wait."""
        if not self._gone.is_set():
            self._writer.write(encode(message))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        cause: VlmtuiError | None = None
        try:
            while (line := await read_line(reader)) is not None:
                self._take(decode_worker_message(line))
        except VlmtuiError as error:
            cause = error
        if self._leaving:
            self._disconnected(None)
            return
        if cause is None and self._goodbye is None:
            with suppress(psutil.Error):
                await has_ended(psutil.Process(self.pid), _END_S)
        self._disconnected(cause or self._death())

    def _take(self, message: WorkerMessage) -> None:
        match message:
            case Waiting() | PromptReady() | Delta() | Finished() | Failed() | Cancelled():
                if inbox := self._inboxes.get(message.request_id):
                    inbox.put_nowait(message)
                return
            case LoadProgress():
                self._progress.append(message)
            case EngineReady(info=info):
                self.info = msgspec.structs.replace(info, notes=(*info.notes, *self._notes))
            case LoadFailed(failure=failure):
                self._load_failure = failure
            case Goodbye():
                self._goodbye = message
            case LogLines(lines=lines):
                self._log.extend(lines)
                self._log_received = True
            case MetricsReport():
                for meter in self._meters:
                    meter.put_nowait(message)
            case StatusReport():
                if self._statuses and not (answer := self._statuses.popleft()).done():
                    answer.set_result(message)
            case Refused(failure=failure):
                raise failure.error()
            case Welcome():
                raise VlmtuiError(ErrorKind.PROTOCOL, "The worker sent a second greeting.")
            case _:
                assert_never(message)
        self._wake()

    def _wake(self) -> None:
        """Wake all coroutines that wait for `_changed`."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _disconnected(self, cause: VlmtuiError | None) -> None:
        """Close the connection, and fail all requests that wait for an answer."""
        if self._gone.is_set():
            return
        self._cause = cause
        self._gone.set()
        self._writer.close()
        loss = self._loss()
        for request_id, inbox in self._inboxes.items():
            inbox.put_nowait(Failed(request_id=request_id, failure=Failure.of(loss)))
        for meter in self._meters:
            meter.put_nowait(None)
        for answer in self._statuses:
            if not answer.done():
                answer.set_exception(loss)
        self._statuses.clear()
        self._wake()

    def _loss(self) -> VlmtuiError:
        if self._cause is not None:
            return self._cause
        return VlmtuiError(ErrorKind.ENGINE_DIED, f"The connection to the engine of {self.spec.name} was closed.")

    def _death(self) -> VlmtuiError:
        if self._load_failure is not None:
            return self._load_failure.error()
        if self._goodbye is not None:
            failure = self._goodbye.failure
            return EngineStopped(self.spec.name) if failure is None else failure.error()
        when = "while loading" if self.info is None else "unexpectedly"
        return worker_died(f"The engine of {self.spec.name} stopped {when}.", self.endpoint, has_started=True)


_FOREIGN_HINT = "Nothing was sent to it. Remove that file, and check who can write to its folder."


async def connect(
    endpoint: Endpoint,
    *,
    client: str,
    attached: bool,
    timeout_s: float,
    answer_timeout_s: float,
    end: EndWorker,
    name: str = "--all",
) -> WorkerClient:
    """Connect to the worker of an endpoint and exchange greetings within `timeout_s` seconds. `name`: the model's name,
    for the hint of an error.

    Raises OSError if no process listens. Raises VlmtuiError: PROTOCOL if the worker has another version, ENGINE_BUSY if
    it does not answer, FOREIGN_PEER if another user's process listens (nothing is sent to it)."""
    async with AsyncExitStack() as cleanup:
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_unix_connection(endpoint.socket, limit=MAX_REPLY_BYTES)
                cleanup.callback(writer.close)
                require_own_peer(writer, place=str(endpoint.socket), hint=_FOREIGN_HINT)
                writer.write(encode(Hello(version=PROTOCOL_VERSION, client=client, pid=os.getpid())))
                welcome = _greeting(await read_line(reader), name)
        except TimeoutError as error:
            raise VlmtuiError(
                ErrorKind.ENGINE_BUSY,
                "The worker is running but does not answer.",
                detail=f"no greeting within {timeout_s:g} s on {endpoint.socket}",
                hint=f"`vlmtui stop {quote(name)}` ends it.",
            ) from error
        cleanup.pop_all()
        return WorkerClient(
            endpoint, reader, writer, welcome, attached=attached, answer_timeout_s=answer_timeout_s, end=end
        )


def _greeting(line: bytes | None, name: str) -> Welcome:
    if line is None:
        raise ConnectionResetError("the worker closed the connection")
    hint = f"The worker was started by another version of vlmtui. Stop it with `vlmtui stop {quote(name)}`."
    try:
        message = decode_worker_message(line)
    except VlmtuiError as error:
        text = "Can't read the worker's greeting."
        raise VlmtuiError(error.kind, text, detail=error.detail, hint=hint) from error
    match message:
        case Welcome(version=version) if version == PROTOCOL_VERSION:
            return message
        case Welcome(version=version):
            text = f"The worker uses protocol version {version}, this vlmtui version {PROTOCOL_VERSION}."
            raise VlmtuiError(ErrorKind.PROTOCOL, text, hint=hint)
        case Refused(failure=failure):
            raise VlmtuiError(failure.kind, failure.message, detail=failure.detail, hint=failure.hint or hint)
        case _:
            text = "The worker's first message is not a greeting."
            raise VlmtuiError(ErrorKind.PROTOCOL, text, detail=type(message).__name__, hint=hint)
