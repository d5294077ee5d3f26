"""The messages between a client (app or command line) and a worker.

A client opens the socket and sends `Hello`; the worker answers `Welcome` (or `Refused` and closes). After that the
worker sends load events until the engine is ready, and then a request's events as they come. A request gets exactly
one terminal message: Finished, Failed or Cancelled.
"""

from __future__ import annotations

import msgspec

from vlmtui.domain.engine import (
    Cancelled,
    Delta,
    EngineInfo,
    EngineReady,
    Failed,
    Failure,
    Finished,
    GenerateRequest,
    LoadFailed,
    LoadProgress,
    LoadSpec,
    PromptReady,
)

PROTOCOL_VERSION = 4

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
    """Ask for `Status`."""


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


class Status(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """What `ps` shows."""

    pid: int
    spec: LoadSpec
    state: str
    """`loading`, `idle`, `busy` or `stopping`."""
    clients: int
    """Who use it now; those that only look (`ps`) or come to end it are not counted."""
    running: int
    """Requests under way."""
    idle_s: float
    """Seconds since the last request ended; 0 while busy."""
    keep_alive_s: float | None
    rss_bytes: int
    """Resident memory of the worker and all its children."""
    gpu_bytes: int | None
    """GPU memory of the same processes, where NVML can tell."""
    kept: tuple[str, ...] = ()
    """Requests that go on, or wait to be fetched, without a client."""
    engine_silent_s: float = 0.0
    """For how long the engine has shown no sign of life: neither its event loop nor, while requests run, any of its
    processes. 0 where all is well, and while loading."""


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
    | Status
    | LogLines
)
