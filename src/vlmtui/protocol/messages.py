"""The messages between a client (app or command line) and a worker.

A client opens the socket and sends `Hello`; the worker replies with `Welcome` (or `Refused`, and closes). The worker
then sends load events until the engine is ready, and after that the events of each request. A request gets exactly
one terminal message: Finished, Failed or Cancelled.
"""

from __future__ import annotations

import asyncio

import msgspec

from vlmtui.domain.engine import EngineInfo, EngineReady, EngineStatus, LoadFailed, LoadProgress, LoadSpec
from vlmtui.domain.generation import Cancelled, Delta, Failed, Failure, Finished, PromptReady, Request, Waiting
from vlmtui.domain.metrics import MetricsSample
from vlmtui.errors import ErrorKind, VlmtuiError

PROTOCOL_VERSION = 11

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""The longest line to a worker. Real messages are far shorter, since media are sent as paths."""
MAX_REPLY_BYTES = 2 * MAX_MESSAGE_BYTES
"""The longest line from a worker: the prompt of a request, with its tokens, is longer than the request."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The client's first message."""

    version: int
    client: str
    """The client's name (`app`, `ask`, …). The worker does not stay for `ps` and `stop`."""
    pid: int


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Abort a request in the engine. Does nothing if it has already ended."""

    request_id: str


class Resume(msgspec.Struct, frozen=True, tag="resume"):
    """Become the client of a kept request (`GenerateRequest.keep`). The worker sends the request's events so far, with
    merged deltas, then new events; or `Failed(NOT_KEPT)` if it no longer has the request."""

    request_id: str


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """Stop keeping an answer, because the client has stored it. Does nothing if the worker does not keep it."""

    request_id: str


class GetStatus(msgspec.Struct, frozen=True, tag="get_status"):
    """Ask for a `StatusReport`. The worker answers even while the engine loads."""


class GetLog(msgspec.Struct, frozen=True, tag="get_log"):
    """Ask for `LogLines`: the newest `lines` lines of the log and, with `follow`, all later ones."""

    lines: int = 200
    follow: bool = False


class GetMetrics(msgspec.Struct, frozen=True, tag="get_metrics"):
    """Start (`follow`) or stop regular `MetricsReport`s. Only for an engine with the capability `metrics`."""

    follow: bool


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Stop the engine and the worker, even during a load."""


ClientMessage = Hello | Request | Cancel | Resume | Forget | GetStatus | GetLog | GetMetrics | Shutdown


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """The worker's answer to `Hello`. `info` is None while the engine loads."""

    version: int
    pid: int
    spec: LoadSpec
    info: EngineInfo | None
    changed: tuple[str, ...] = ()
    """As in `EngineStatus`. Empty for `ps` and `stop`."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The worker rejects this client (version mismatch, malformed message) and closes the connection."""

    failure: Failure


class Goodbye(msgspec.Struct, frozen=True, tag="goodbye"):
    """The worker's last message: it ends in order, or because its engine died (`failure`)."""

    failure: Failure | None = None


class StatusReport(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    pid: int
    """The guardian's pid."""
    status: EngineStatus


class LogLines(msgspec.Struct, frozen=True, tag="log_lines"):
    """Lines of the worker's log. Hostile text: make it visible before showing it."""

    lines: tuple[str, ...]


class MetricsReport(msgspec.Struct, frozen=True, kw_only=True, tag="metrics"):
    """A sample of the engine's metrics, or the reason why there is none."""

    sample: MetricsSample | None = None
    failure: Failure | None = None


WorkerMessage = (
    Welcome
    | Refused
    | LoadProgress
    | EngineReady
    | LoadFailed
    | Waiting
    | PromptReady
    | Delta
    | Finished
    | Failed
    | Cancelled
    | StatusReport
    | LogLines
    | MetricsReport
    | Goodbye
)


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encoder = msgspec.json.Encoder()
_client_decoder: msgspec.json.Decoder[ClientMessage] = msgspec.json.Decoder(ClientMessage)
_worker_decoder: msgspec.json.Decoder[WorkerMessage] = msgspec.json.Decoder(WorkerMessage)


def encode(message: ClientMessage | WorkerMessage) -> bytes:
    return _encoder.encode(message) + b"\n"


def decode_client_message(line: bytes) -> ClientMessage:
    """Decode a client's message. Raises VlmtuiError(PROTOCOL) for anything else."""
    try:
        return _client_decoder.decode(line)
    except _UNREADABLE as error:
        raise _malformed(error) from error


def decode_worker_message(line: bytes) -> WorkerMessage:
    """Decode a worker's message. Raises VlmtuiError(PROTOCOL) for anything else."""
    try:
        return _worker_decoder.decode(line)
    except _UNREADABLE as error:
        raise _malformed(error) from error


async def read_line(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next line, or None at the end of the stream. The reader's limit must be MAX_MESSAGE_BYTES
    in a worker, and MAX_REPLY_BYTES in a client.

    Raises VlmtuiError(PROTOCOL) for a longer line; the connection is unusable after that.
    """
    try:
        return await reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        return None
    except asyncio.LimitOverrunError as error:
        raise VlmtuiError(ErrorKind.PROTOCOL, "A message between vlmtui and its worker is too long.") from error


def _malformed(error: Exception) -> VlmtuiError:
    return VlmtuiError(
        ErrorKind.PROTOCOL,
        "Can't read a message between vlmtui and its worker.",
        detail=str(error),
        hint="Their versions may differ. `vlmtui stop --all` ends old workers.",
    )
