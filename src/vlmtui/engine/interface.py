"""The interface of engines and of the host that starts and finds them. The tests' scripted engine implements both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from enum import Enum, auto
from shlex import quote
from typing import TYPE_CHECKING, Protocol

import msgspec

from vlmtui.domain.engine import FOLDER_GONE, EngineInfo, EngineStatus, LoadEvent, LoadSpec
from vlmtui.domain.generation import EngineEvent, Failure, Request
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError
from vlmtui.text import one_line

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
        """Yield the request's events; the last is Finished, Failed or Cancelled. For a RenderRequest, PromptReady comes
        before the last. A dead engine yields Failed(ENGINE_DIED), an engine without a required capability
        Failed(UNSUPPORTED).

        Closing the iterator early, or cancelling its task, cancels the request. `Engine.close` does not cancel a
        request that has `keep` set."""

    def resume(self, request_id: str) -> AsyncGenerator[EngineEvent, None]:
        """Yield the events of a request with `keep` set: the answer so far as one delta, then new events as they occur.
        Yields Failed(NOT_KEPT) if the engine does not have the answer. From then on this connection receives the
        answer; a client that was receiving it before gets Failed(NOT_KEPT)."""

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
        """Yield the engine's metrics every few seconds until closed; a Failure says why there are none at the moment.
        Raises VlmtuiError if the engine has no metrics at all, or has ended."""

    async def closed(self) -> VlmtuiError | None:
        """Wait until the connection is closed. Return the cause; None after our own `close` or `shutdown`."""

    async def close(self) -> None:
        """Disconnect. The engine stays for its keep-alive time."""

    async def shutdown(self) -> None:
        """Stop the engine, even during a load. Returns when all its processes have ended."""


class EngineStopped(VlmtuiError):
    """ENGINE_DIED: somebody stopped the engine on purpose, e.g. by `vlmtui stop`."""

    def __init__(self, name: str) -> None:
        super().__init__(ErrorKind.ENGINE_DIED, f"{name} was stopped.", remedy=Remedy.RESTART_ENGINE)


class WhenChanged(Enum):
    """What to do about a running engine whose model's files have changed since it loaded them."""

    RELOAD = auto()
    """End it and start another, unless other clients use it or the folder is gone."""
    REFUSE = auto()
    KEEP = auto()
    """Connect to it, to answer with the earlier files."""


_NAMES_MAX = 3


def changed_since_load(name: str, changed: tuple[str, ...]) -> str:
    """Return a sentence that names the files of a model that have changed since its engine loaded them."""
    shown = [one_line(one) for one in changed[:_NAMES_MAX]]
    more = [f"{len(changed) - _NAMES_MAX} more"] if len(changed) > _NAMES_MAX else []
    return f"The files of {one_line(name)} have changed since it was loaded: {', '.join([*shown, *more])}."


def outdated(status: EngineStatus, when: WhenChanged) -> VlmtuiError:
    """Return the error for an engine whose model's files have changed, and that is not loaded again. It has a remedy if
    this client could load it again. `status`: with this client among its clients."""
    others, is_gone = max(status.clients - 1, 0), status.changed == (FOLDER_GONE,)
    hint, users = "The engine has the earlier files", ""
    if is_gone:
        hint += "; put the folder back to load it again."
    elif others:
        users = f"{others} other client{'s use' if others > 1 else ' uses'} it"
    elif status.running and when is not WhenChanged.KEEP:
        users = "it is answering"
    if users:
        hint += f", and {users}. `vlmtui stop {quote(status.spec.name)}` ends it."
    elif not is_gone:
        hint += ". --reload loads it again." if when is WhenChanged.REFUSE else "."
    message, remedy = changed_since_load(status.spec.name, status.changed), Remedy.RESTART_ENGINE
    return VlmtuiError(ErrorKind.MODEL_CHANGED, message, hint=hint, remedy=None if is_gone or users else remedy)


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that still runs but no longer answers."""

    id: str
    """An opaque id for `EngineHost.end`."""
    title: str
    """The engine's name for people: `shapes (pid 4242)`. Hostile text."""


class EngineHost(Protocol):
    """Starts engines, finds running ones, and ends those that no longer answer."""

    async def open(
        self,
        spec: LoadSpec,
        *,
        client: str,
        keep_alive_s: float | None,
        when_changed: WhenChanged = WhenChanged.RELOAD,
        is_exact: bool = False,
    ) -> Engine:
        """Connect to a running engine of the same spec, or, unless `is_exact`, to one that can serve this spec, too
        (`can_serve`); or start an engine and return before the model is loaded.
        `client`: the caller's name (`app`, `ask`). `keep_alive_s`: the keep-alive time of a newly started engine, in
        seconds; None: forever. An engine that replaces an outdated one keeps that one's time. Raises VlmtuiError:
        MODEL_CHANGED if the model's files have changed since the running engine loaded them, and it is not ended."""

    async def running(self) -> list[EngineStatus]:
        """Return the status of every engine of this user that answers. Raises VlmtuiError if the runtime folder or a
        socket belongs to another user."""

    async def holder(self, request_id: str) -> LoadSpec | None:
        """Return the spec of the running engine that keeps the answer to this request for a later client, which can
        `resume` it. None if no engine keeps the answer."""

    async def unfetched_answer(self, request_id: str) -> list[EngineEvent] | None:
        """Return the events of a request that a stopped engine left in a file: the deltas merged into one, then
        Finished, Failed or Cancelled. None if there is no file. Call `holder` first: this method returns a running
        answer as failed."""

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
        """Read a model and render its templates, with limited memory and processor time. Blocking. Raises
        VlmtuiError."""
