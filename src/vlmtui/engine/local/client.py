"""The client side of a connection to a worker: an Engine over a Unix socket."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from shlex import quote
from typing import TypeVar, assert_never

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
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Cancelled, Delta, EngineEvent, Failed, Finished, GenerateRequest, PromptReady
from vlmtui.domain.metrics import MetricsSample
from vlmtui.engine.local.errors import worker_died
from vlmtui.engine.local.event_queue import EventQueue, LatestProgress
from vlmtui.engine.local.line_socket import LineSocket
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.log_ring import LogRing
from vlmtui.protocol.codec import decode_worker_message, encode
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.protocol.messages import (
    MAX_MESSAGE_BYTES,
    Cancel,
    ClientMessage,
    Forget,
    Generate,
    GetLog,
    GetMetrics,
    GetStatus,
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
)
from vlmtui.protocol.spool import remove_spooled

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
        """Those who follow the metrics."""
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

    def generate(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        return self._events(request.request_id, Generate(request))

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

    async def _events(self, request_id: str, message: Generate | Resume) -> AsyncGenerator[EngineEvent, None]:
        if request_id in self._inboxes:
            raise ValueError(f"request {request_id} is already running")
        streams = not (isinstance(message, Generate) and message.request.final_only)
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

    async def _start(self, message: Generate | Resume) -> Failure | None:
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
