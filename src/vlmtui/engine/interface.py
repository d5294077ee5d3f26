"""The interface of engines and of the host that starts and finds them. The tests' scripted engine implements both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Protocol

import msgspec

from vlmtui.domain.engine import EngineInfo, EngineStatus, LoadEvent, LoadSpec
from vlmtui.domain.generation import EngineEvent, Failure, Request
from vlmtui.errors import VlmtuiError

if TYPE_CHECKING:
    from vlmtui.domain.metrics import MetricsSample
    from vlmtui.domain.model_reading import ModelReading, ReadRequest


class Engine(Protocol):
    """A connection to one engine, which may still be loading. Use it from one event loop only."""

    spec: LoadSpec
    info: EngineInfo | None
    """None until the engine is ready."""
    attached: bool
    """True if the engine was already running; False if this connection started it."""

    def load(self) -> AsyncIterator[LoadEvent]:
        """Yield the load's progress, then EngineReady or LoadFailed; only EngineReady if already loaded."""

    def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        """Yield the request's events; the last is Finished, Failed or Cancelled (for a RenderRequest: PromptReady and
        the last). A dead engine yields Failed(ENGINE_DIED), one without a required capability Failed(UNSUPPORTED).

        Closing the iterator early, or cancelling its task, cancels the request. `close` does not cancel it if its
        `keep` is set."""

    def resume(self, request_id: str) -> AsyncGenerator[EngineEvent, None]:
        """Yield the events of a request with `keep` set: the answer so far as one delta, then live ones.
        Failed(NOT_KEPT) if the engine does not have it. The request then belongs to this connection; a previous client
        that is still connected gets Failed(NOT_KEPT)."""

    async def forget(self, request_id: str) -> None:
        """Let the engine delete its copy of an answer, if any. Call this for every request with `keep` set once its
        outcome is stored: until then the engine keeps it, in case this process dies first."""

    async def cancel(self, request_id: str) -> None:
        """Abort a request; its iterator then ends with Cancelled. Does nothing if it has already ended."""

    async def status(self) -> EngineStatus:
        """Return the engine's status, even while it loads. Raises VlmtuiError(ENGINE_DIED) if it does not answer in
        time."""

    def log(self, lines: int = 200) -> AsyncGenerator[str, None]:
        """Yield the newest lines of the engine's log, then new ones as they appear, until closed. Hostile text."""

    def metrics(self) -> AsyncGenerator[MetricsSample | Failure, None]:
        """Yield the engine's metrics every few seconds, or why there are none just now, until closed. Raises
        VlmtuiError if the engine has no metrics, or has gone."""

    async def set_keep_alive(self, seconds: float | None) -> None:
        """Set how long the engine stays after its last client leaves; 0: it stops at once; None: it stays forever."""

    async def closed(self) -> VlmtuiError | None:
        """Wait until the connection is closed. Return the cause; None after our own `close` or `shutdown`."""

    async def close(self) -> None:
        """Disconnect. The engine stays for its keep-alive time."""

    async def shutdown(self) -> None:
        """Stop the engine, even during a load. Returns when all its processes have ended."""


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that still runs but no longer answers."""

    id: str
    """An opaque id for `EngineHost.end`."""
    title: str
    """The engine's name for people: `shapes (pid 4242)`. Hostile text."""


class EngineHost(Protocol):
    """Starts engines, finds running ones, and ends those that no longer answer."""

    async def open(self, spec: LoadSpec, *, client: str, keep_alive_s: float | None) -> Engine:
        """Connect to a running engine of the same spec, or start one and return before the model is loaded. `client`:
        names the caller (`app`, `ask`). `keep_alive_s`: of a newly started engine. Raises VlmtuiError."""

    async def running(self) -> list[EngineStatus]:
        """Return the status of every engine of this user that answers. Raises VlmtuiError if the runtime folder or a
        socket belongs to another user."""

    async def holder(self, request_id: str) -> LoadSpec | None:
        """Return the spec of the running engine that keeps this answer for a later client, to `resume` it; or None."""

    async def unfetched_answer(self, request_id: str) -> list[EngineEvent] | None:
        """Return the events of a request that a stopped engine left in a file: the deltas merged into one, the last
        event Finished, Failed or Cancelled. None if there are none. Call `holder` first."""

    async def unfetched_answers(self) -> list[str]:
        """Return the ids of requests that may have an `unfetched_answer`. Raises VlmtuiError as `running` does."""

    async def forget(self, request_id: str) -> None:
        """Delete the `unfetched_answer` of a request once it is stored. Does nothing if there is none."""

    async def leftovers(self) -> list[Leftover]:
        """Return this user's engines that run but do not answer, without those that this process is connected to."""

    async def end(self, leftover: Leftover) -> None:
        """End an engine. Returns when all its processes have ended. Raises VlmtuiError if they can't be ended."""


class ModelReader(Protocol):
    """Reads models' tokenizers and templates, without an engine."""

    def read(self, request: ReadRequest) -> ModelReading:
        """Read a model and render its templates, within limits. Blocking. Raises VlmtuiError."""
