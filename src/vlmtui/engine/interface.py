"""What an engine is, whoever hosts it. Tests have a scripted one that obeys the same contract."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

import msgspec

from vlmtui.domain.engine import EngineInfo, EngineStatus, LoadEvent, LoadSpec
from vlmtui.domain.generation import EngineEvent, GenerateRequest
from vlmtui.errors import VlmtuiError


class Engine(Protocol):
    """A connection to one engine, which may still be loading. All methods belong to one event loop."""

    spec: LoadSpec
    info: EngineInfo | None
    """None until the engine is ready."""
    attached: bool
    """True when the engine was already there; False when this connection started it."""

    def load(self) -> AsyncIterator[LoadEvent]:
        """The load's progress, ending with EngineReady or LoadFailed. An engine that is ready yields EngineReady at
        once. A process that dies meanwhile gives LoadFailed."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        """The request's events (for `only_render` PromptReady and the end alone); the last is Finished, Failed or
        Cancelled. A dead engine gives Failed(ENGINE_DIED), one that lacks what the request needs (`EngineInfo`'s
        capabilities) Failed(UNSUPPORTED).
        Closing the iterator early, or cancelling its task, cancels the request in the engine; after `close` it does
        not, and a request to keep goes on."""
        ...

    def resume(self, request_id: str) -> AsyncGenerator[EngineEvent, None]:
        """The events of a kept request (`GenerateRequest.keep`), what has come as one delta, then as they come.
        Failed(NOT_KEPT) where the engine does not know it. Whoever resumes it owns it from then on, as if by
        `generate`; the client before, if it still listens, gets Failed(NOT_KEPT)."""
        ...

    async def forget(self, request_id: str) -> None:
        """A kept answer is safe elsewhere: the engine need not keep it. Harmless when there is none.

        To be called for every request to keep once its end is stored, also when it ended in the ordinary way: until
        then it stays with the engine, in case this process dies before it has stored it."""
        ...

    async def cancel(self, request_id: str) -> None:
        """Abort a request; its iterator then ends with Cancelled. Harmless when it has already ended."""
        ...

    async def ping(self) -> float:
        """Round trip in seconds. Raises VlmtuiError(ENGINE_DIED) when nobody answers in time."""
        ...

    async def status(self) -> EngineStatus:
        """What it does now. Raises VlmtuiError(ENGINE_DIED)."""
        ...

    def log(self, lines: int = 200) -> AsyncGenerator[str, None]:
        """The newest lines of the engine's log and then new ones as they come, until closed. Hostile text."""
        ...

    async def set_keep_alive(self, seconds: float | None) -> None:
        """How long the engine stays after its last client has gone; 0: ends at once; None: for ever."""
        ...

    async def closed(self) -> VlmtuiError | None:
        """Wait until the connection is gone: None after our own close or shutdown, else why it died."""
        ...

    async def close(self) -> None:
        """Disconnect. The engine stays for its keep-alive time."""
        ...

    async def shutdown(self) -> None:
        """End the engine, also in the middle of a load. Returns once nothing of it is left."""
        ...


class EngineHost(Protocol):
    """Starts engines and finds running ones."""

    async def open(self, spec: LoadSpec, *, client: str, keep_alive_s: float | None) -> Engine:
        """Attach to a running engine of the same spec, or start one. Returns once connected, before it is loaded.

        `client` says who it is (`app`, `ask`). `keep_alive_s` is for an engine that is started; one that runs already
        keeps its own.

        Raises VlmtuiError when no engine can be started at all (NO_ENGINE …).
        """
        ...

    async def running(self) -> list[EngineStatus]:
        """Every engine of this user that answers. Raises VlmtuiError where another user has put something in the place
        of theirs."""
        ...

    async def holder(self, request_id: str) -> LoadSpec | None:
        """Return the spec of the running engine that keeps this request without a client: `open` it, and `resume`.
        Raises VlmtuiError as `running` does."""
        ...

    async def kept_answer(self, request_id: str) -> list[EngineEvent] | None:
        """What an engine that has ended left of a kept request that nobody had fetched: its events, the deltas as one,
        the last of them Finished, Failed or Cancelled. None where there is nothing. Ask `holder` first."""
        ...

    async def kept_answers(self) -> list[str]:
        """The ids of the requests of which `kept_answer` may have something. Raises VlmtuiError as `running` does."""
        ...

    async def forget(self, request_id: str) -> None:
        """`kept_answer` is safe elsewhere, and need not be kept. Harmless when there is none."""
        ...


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of an engine that nobody can use any more."""

    id: str
    """Means something to whoever found it, and to nobody else."""
    title: str
    """For people: `shapes (pid 4242)`. Hostile text."""


class EngineCleanup(Protocol):
    """Ends engines that cannot be used and still hold memory."""

    async def leftovers(self) -> list[Leftover]:
        """Engines of this user that live but cannot be used. Those that this program uses, and what is not vlmtui's,
        are never among them. Raises VlmtuiError as `EngineHost.running` does."""
        ...

    async def end(self, leftover: Leftover) -> None:
        """End one. Returns when nothing of it is left. Raises VlmtuiError where that is not possible."""
        ...
