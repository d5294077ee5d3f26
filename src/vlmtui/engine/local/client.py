"""Connects to a worker, and talks with it: an Engine over a Unix socket."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from shlex import quote
from typing import TypeVar, assert_never, cast

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.engine import (
    EngineInfo,
    EngineReady,
    EngineStatus,
    LoadEvent,
    LoadFailed,
    LoadProgress,
    LoadSpec,
    LoadStage,
)
from vlmtui.domain.generation import (
    Cancelled,
    Delta,
    EngineEvent,
    Failed,
    Failure,
    Finished,
    GenerateRequest,
    PromptReady,
    Request,
)
from vlmtui.domain.metrics import MetricsSample
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.log_ring import LogRing
from vlmtui.protocol.endpoint import Endpoint, require_own_peer
from vlmtui.protocol.messages import (
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    Cancel,
    ClientMessage,
    Forget,
    GetLog,
    GetMetrics,
    GetStatus,
    Hello,
    LogLines,
    MetricsReport,
    Ping,
    Pong,
    Refused,
    Resume,
    SetKeepAlive,
    Shutdown,
    StatusReport,
    Welcome,
    WorkerMessage,
    decode_worker_message,
    encode,
    oversized,
)
from vlmtui.protocol.spool import join_deltas, remove_spooled

_REST_S = 0.05
"""Seconds: the interval of the engine's thread, which sends its new events 20 times a second."""

_MUCH = 16_384
"""Bytes read at once, from which on the other side is ahead: there is nothing to wait for."""

OnLine = Callable[[bytes], None]
"""Receives a line without its newline. May raise VlmtuiError, which ends the connection."""
OnEnd = Callable[[VlmtuiError | None], None]
"""Called once, when the connection has ended; with the cause if it is not the other side's leaving."""


class LineSocket(asyncio.Protocol):
    """Gives each line to a function as it arrives, in the loop's own callback: an answer comes in many short lines, and
    waking a task for each costs more than reading it. Lines that arrive before `listen` are kept for it."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        """The pieces of the line that has not ended."""
        self._early: deque[bytes] = deque()
        self._on_line: OnLine = self._early.append
        self._on_end: OnEnd = lambda cause: None
        self._cause: VlmtuiError | None = None
        self._has_ended = False
        self._rests = False
        self._read_bytes = 0
        """Number of bytes in the last read."""
        self._changed = asyncio.Event()
        """Set when a line or the end arrives before `listen`."""
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._closed = asyncio.Event()

    @classmethod
    async def open(cls, path: Path) -> LineSocket:
        """Connect. Raises OSError if nothing listens."""
        _, opened = await asyncio.get_running_loop().create_unix_connection(cls, str(path))
        return opened

    async def first_line(self) -> bytes | None:
        """Return the first line, before `listen`; None if the connection ends without one. Raises VlmtuiError."""
        while not self._early and not self._has_ended:
            self._changed.clear()
            await self._changed.wait()
        if self._cause is not None:
            raise self._cause
        return self._early.popleft() if self._early else None

    def listen(self, on_line: OnLine, on_end: OnEnd) -> None:
        """Set the functions that get the lines and the end. Lines that arrived earlier go to `on_line` at once."""
        early, self._on_line = self._early, on_line
        for line in early:
            self._give(line)
        self._on_end = on_end
        if self._has_ended:
            on_end(self._cause)

    async def write(self, line: bytes) -> None:
        """Write a line; wait while the other side is far behind."""
        self.transport.write(line)
        await self._can_write.wait()

    def post(self, line: bytes) -> None:
        """Write a line without waiting."""
        self.transport.write(line)

    def rest(self) -> None:
        """Pause reading for a moment, so that the next short lines of a stream arrive together. It has no effect while
        lines arrive faster than they are read."""
        if self._read_bytes < _MUCH and not self._rests and not self._has_ended:
            self._rests = True
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(_REST_S, self._read_again)

    def _read_again(self) -> None:
        self._rests = False
        if not self._has_ended:
            self.transport.resume_reading()

    def close(self) -> None:
        """Close the connection once everything written is sent."""
        self.transport.close()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none: Ray installs it where it finds it

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        piece, *further = data.split(b"\n")
        self._begun.append(piece)
        for piece in further:
            line, self._begun = b"".join(self._begun), [piece]
            self._give(line)
        if sum(map(len, self._begun)) > MAX_MESSAGE_BYTES:
            self._end(oversized())

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(None)
        self._can_write.set()
        self._closed.set()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def _give(self, line: bytes) -> None:
        if self._cause is not None:
            return
        try:
            if len(line) > MAX_MESSAGE_BYTES:
                raise oversized()
            self._on_line(line)
        except VlmtuiError as error:
            self._end(error)
        self._changed.set()

    def _end(self, cause: VlmtuiError | None) -> None:
        self._cause = self._cause or cause
        if self._has_ended:
            return
        self._has_ended = True
        self._begun = []
        self.transport.close()
        self._changed.set()
        self._on_end(cause)


_MERGE_AFTER = 1024
"""Number of queued events after which new deltas are merged."""


class EventQueue:
    """A request's events in order. For a slow consumer, deltas are merged, so that a backlog only costs its text.
    `streams`: the answer comes in many deltas, and somebody reads along."""

    def __init__(self, *, streams: bool = True) -> None:
        self.streams = streams
        self._events: deque[EngineEvent | list[Delta]] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: EngineEvent) -> None:
        if len(self._events) >= _MERGE_AFTER and isinstance(event, Delta):
            last = self._events[-1]
            if isinstance(last, list):
                last.append(event)
                return
            if isinstance(last, Delta):
                self._events[-1] = [last, event]
                return
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> EngineEvent:
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        event = self._events.popleft()
        return join_deltas(event) if isinstance(event, list) else event


class LatestProgress:
    """The latest progress of each load stage. Readers see every stage, but only its latest progress."""

    def __init__(self) -> None:
        self._newest: dict[LoadStage, LoadProgress] = {}

    def put(self, progress: LoadProgress) -> None:
        self._newest[progress.stage] = progress

    def unseen(self, seen: dict[LoadStage, LoadProgress]) -> list[LoadProgress]:
        """Return the progress that has changed since `seen`, in stage order, and update `seen`."""
        changed = [item for stage in LoadStage if (item := self._newest.get(stage)) and seen.get(stage) is not item]
        seen.update(self._newest)
        return changed


_LINES_SHOWN = 12
_BYTES_READ = 16384


def worker_died(message: str, endpoint: Endpoint) -> VlmtuiError:
    """Return ENGINE_DIED with the last lines of the worker's log as its detail."""
    hint = f"Start it again. Log: {endpoint.log}"
    return VlmtuiError(ErrorKind.ENGINE_DIED, message, detail="\n".join(last_log_lines(endpoint)), hint=hint)


def last_log_lines(endpoint: Endpoint, lines: int = _LINES_SHOWN) -> list[str]:
    """Return the last lines of the worker's log; [] if there is no log. Hostile text."""
    try:
        with endpoint.log.open("rb") as file:
            file.seek(max(0, endpoint.log.stat().st_size - _BYTES_READ))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


_LOG_LINES_REQUESTED = 1000
_LOG_LINES_HELD = 2000

EndWorker = Callable[[], Awaitable[None]]
"""Ends a worker's processes; returns when all have ended."""

_T = TypeVar("_T")


class WorkerClient:
    """An `Engine` over a socket; see `vlmtui.engine.interface` for its methods.

    Every message is dispatched where the socket is read; nothing there waits for a consumer.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        socket: LineSocket,
        welcome: Welcome,
        *,
        attached: bool,
        answer_timeout_s: float,
        end: EndWorker,
    ) -> None:
        """`answer_timeout_s`: how long a worker may take to answer a ping or a status request."""
        self.spec: LoadSpec = welcome.spec
        self.info: EngineInfo | None = welcome.info
        self.attached = attached
        self.pid = welcome.pid
        """The guardian's pid."""
        self.endpoint = endpoint
        self._answer_timeout_s = answer_timeout_s
        self._socket = socket
        self._end = end
        self._inboxes: dict[str, EventQueue] = {}
        self._pongs: dict[int, asyncio.Future[None]] = {}
        self._pings = 0
        self._statuses: deque[asyncio.Future[StatusReport]] = deque()
        self._meters: set[asyncio.Queue[MetricsReport | None]] = set()
        """A queue for each reader of the metrics."""
        self._load = LatestProgress()
        self._load_failure: Failure | None = None
        self._log = LogRing(_LOG_LINES_HELD)
        self._log_requested = False
        self._log_received = False
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._leaving = False
        self._cause: VlmtuiError | None = None
        socket.listen(self._take, self._ended)

    async def load(self) -> AsyncIterator[LoadEvent]:
        seen: dict[LoadStage, LoadProgress] = {}
        while self.info is None:
            progress = self._load.unseen(seen)
            for item in progress:
                yield item
            if progress or self.info is not None:
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

    async def ping(self) -> float:
        self._pings += 1
        number = self._pings
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pongs[number] = answer
        started = time.monotonic()
        try:
            await self._answer(Ping(number), answer)
        finally:
            del self._pongs[number]
        return time.monotonic() - started

    async def status(self) -> EngineStatus:
        return (await self.report()).status

    async def report(self) -> StatusReport:
        """Return the status together with the worker's pid. Raises VlmtuiError(ENGINE_DIED)."""
        answer: asyncio.Future[StatusReport] = asyncio.get_running_loop().create_future()
        self._statuses.append(answer)
        return await self._answer(GetStatus(), answer)

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
            newest = 0.0
            while (report := await inbox.get()) is not None:
                for sample in report.samples:
                    if sample.at > newest:  # another reader's beginning may have told it again
                        yield sample
                        newest = sample.at
                if report.failure is not None:
                    yield report.failure
            raise self._loss()
        finally:
            self._meters.discard(inbox)
            if not self._meters and self.info is not None:
                self._post(GetMetrics(follow=False))

    async def set_keep_alive(self, seconds: float | None) -> None:
        await self._send(SetKeepAlive(seconds))

    @property
    def is_connected(self) -> bool:
        return not self._gone.is_set()

    async def closed(self) -> VlmtuiError | None:
        await self._gone.wait()
        return self._cause

    async def close(self) -> None:
        self._leaving = True
        self._disconnected(None)
        await self._socket.wait_closed()

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
        streams = not (isinstance(message, GenerateRequest) and message.final_only)
        inbox = self._inboxes[request_id] = EventQueue(streams=streams)
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
        """Send a request. Return the failure if it cannot be sent."""
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
        """Write a line. Does not raise for a lost connection, whose end notifies all waiters."""
        if not self._gone.is_set():
            await self._socket.write(line)

    def _post(self, message: ClientMessage) -> None:
        """Send without waiting, for use in a coroutine that is being closed."""
        if not self._gone.is_set():
            self._socket.post(encode(message))

    async def _answer(self, question: ClientMessage, answer: asyncio.Future[_T]) -> _T:
        """Send a question and return its answer. Raises VlmtuiError(ENGINE_DIED) if none arrives in time."""
        if self._gone.is_set():
            raise self._loss()
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                await self._send(question)
                return await answer
        except TimeoutError as error:
            raise VlmtuiError(
                ErrorKind.ENGINE_DIED,
                f"The engine of {self.spec.name} does not answer.",
                detail=f"no answer within {self._answer_timeout_s:g} s",
                hint=f"End it with `vlmtui stop {quote(self.spec.name)}` and start it again.",
            ) from error

    def _ended(self, cause: VlmtuiError | None) -> None:
        self._disconnected(None if self._leaving else cause or self._death())

    def _take(self, line: bytes) -> None:
        message: WorkerMessage = decode_worker_message(line)
        match message:
            case PromptReady() | Delta() | Finished() | Failed() | Cancelled():
                if inbox := self._inboxes.get(message.request_id):
                    inbox.put(message)
                    if inbox.streams and isinstance(message, Delta):
                        self._socket.rest()
                return
            case LoadProgress():
                self._load.put(message)
            case EngineReady(info=info):
                self.info = info
            case LoadFailed(failure=failure):
                self._load_failure = failure
            case LogLines(lines=lines):
                self._log.extend(lines)
                self._log_received = True
            case MetricsReport():
                for meter in self._meters:
                    meter.put_nowait(message)
            case Pong(n=number):
                _resolve(self._pongs.get(number), None)
            case StatusReport():
                _resolve(self._statuses.popleft() if self._statuses else None, message)
            case Refused(failure=failure):
                raise failure.error()
            case Welcome():
                raise VlmtuiError(ErrorKind.PROTOCOL, "The worker sent a second greeting.")
            case _:
                assert_never(message)
        self._wake()

    def _wake(self) -> None:
        """Wake all coroutines that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _disconnected(self, cause: VlmtuiError | None) -> None:
        """Close the connection and fail everything that still waits for an answer."""
        if self._gone.is_set():
            return
        self._cause = cause
        self._gone.set()
        self._socket.close()
        loss = self._loss()
        for request_id, inbox in self._inboxes.items():
            inbox.put(Failed(request_id=request_id, failure=Failure.of(loss)))
        for pong in self._pongs.values():
            _reject(pong, loss)
        for meter in self._meters:
            meter.put_nowait(None)
        while self._statuses:
            _reject(self._statuses.popleft(), loss)
        self._wake()

    def _loss(self) -> VlmtuiError:
        if self._cause is not None:
            return self._cause
        return VlmtuiError(ErrorKind.ENGINE_DIED, f"The connection to the engine of {self.spec.name} was closed.")

    def _death(self) -> VlmtuiError:
        if self._load_failure is not None:
            return self._load_failure.error()
        when = "while loading" if self.info is None else "unexpectedly"
        return worker_died(f"The engine of {self.spec.name} stopped {when}.", self.endpoint)


def _resolve(answer: asyncio.Future[_T] | None, value: _T) -> None:
    if answer is not None and not answer.done():
        answer.set_result(value)


def _reject(answer: asyncio.Future[_T], error: VlmtuiError) -> None:
    if not answer.done():
        answer.set_exception(error)


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
    """Connect to the worker of an endpoint and exchange greetings within `timeout_s` seconds.

    `answer_timeout_s` applies to later answers. `name` is the model's name, for the hint on how to stop the worker.
    Raises OSError if nothing listens, VlmtuiError(PROTOCOL) for a worker of another version, VlmtuiError(ENGINE_BUSY)
    for one that does not answer, and VlmtuiError(FOREIGN_PEER), before anything is sent, for another user's process.
    """
    async with AsyncExitStack() as cleanup:
        try:
            async with asyncio.timeout(timeout_s):
                socket = await LineSocket.open(endpoint.socket)
                cleanup.callback(socket.close)
                require_own_peer(socket.transport, place=str(endpoint.socket), hint=_FOREIGN_HINT)
                socket.post(encode(Hello(version=PROTOCOL_VERSION, client=client, pid=os.getpid())))
                welcome = await _greeting(socket, name)
        except TimeoutError as error:
            raise VlmtuiError(
                ErrorKind.ENGINE_BUSY,
                "The worker is running but does not answer.",
                detail=f"no greeting within {timeout_s:g} s on {endpoint.socket}",
                hint=f"`vlmtui stop {quote(name)}` ends it.",
            ) from error
        cleanup.pop_all()
        return WorkerClient(endpoint, socket, welcome, attached=attached, answer_timeout_s=answer_timeout_s, end=end)


async def _greeting(socket: LineSocket, name: str) -> Welcome:
    line = await socket.first_line()
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
