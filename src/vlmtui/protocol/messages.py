"""The messages between a client (app or command line) and a worker.

A client opens the socket and sends `Hello`; the worker answers `Welcome` (or `Refused` and closes). After that the
worker sends load events until the engine is ready, and then a request's events as they come. A request gets exactly
one terminal message: Finished, Failed or Cancelled.
"""

from __future__ import annotations

import msgspec

from vlmtui.domain.engine import EngineInfo, EngineReady, EngineStatus, LoadFailed, LoadProgress, LoadSpec
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Cancelled, Delta, Failed, Finished, GenerateRequest, PromptReady

PROTOCOL_VERSION = 5

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""A line longer than this is refused: media travel as paths, so no honest message comes near it."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The client's first message."""

    version: int
    client: str
    """`app` or `ask` …, for `ps` and the log."""
    pid: int


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """Start a request."""

    request: GenerateRequest


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Abort a request in the engine. Harmless when it has already ended."""

    request_id: str


class Resume(msgspec.Struct, frozen=True, tag="resume"):
    """Take a kept request (`GenerateRequest.keep`) over: its events come from the start (the deltas so far as one), and
    then as they come. `Failed(NOT_KEPT)` where the worker does not know it."""

    request_id: str


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """A kept answer is safe elsewhere: let it go. Harmless when there is none."""

    request_id: str


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Health: answered by `Pong` with the same number, also while loading."""

    n: int


class GetStatus(msgspec.Struct, frozen=True, tag="get_status"):
    """Ask for a `StatusReport`."""


class GetLog(msgspec.Struct, frozen=True, tag="get_log"):
    """Ask for `LogLines`: the newest `lines` of the ring buffer; with `follow`, new lines come as they appear."""

    lines: int = 200
    follow: bool = False


class SetKeepAlive(msgspec.Struct, frozen=True, tag="set_keep_alive"):
    """How long the worker stays once its last client has gone, in seconds; 0: ends at once; None: for ever."""

    seconds: float | None


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """End the engine and the process, also in the middle of a load."""


ClientMessage = Hello | Generate | Cancel | Resume | Forget | Ping | GetStatus | GetLog | SetKeepAlive | Shutdown


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """The worker's answer to `Hello`. `info` is None while it is still loading."""

    version: int
    pid: int
    spec: LoadSpec
    info: EngineInfo | None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The worker will not speak with this client (version mismatch, malformed message); it closes the connection."""

    failure: Failure


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    n: int


class StatusReport(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """The answer to `GetStatus`."""

    pid: int
    """Of the leader of the worker's processes."""
    status: EngineStatus


class LogLines(msgspec.Struct, frozen=True, tag="log_lines"):
    """Lines of the worker's log. Hostile text."""

    lines: tuple[str, ...]


WorkerMessage = (
    Welcome
    | Refused
    | LoadProgress
    | EngineReady
    | LoadFailed
    | PromptReady
    | Delta
    | Finished
    | Failed
    | Cancelled
    | Pong
    | StatusReport
    | LogLines
)
