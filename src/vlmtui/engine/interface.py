"""What an engine is, whoever hosts it. Tests have a scripted one that obeys the same contract."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from vlmtui.domain.engine import EngineEvent, EngineInfo, GenerateRequest, LoadEvent, LoadSpec
from vlmtui.engine.found import FoundWorker
from vlmtui.errors import VlmtuiError
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.protocol.messages import Status


class Engine(Protocol):
    """A connection to one engine, which may still be loading. All methods belong to one event loop."""

    spec: LoadSpec
    info: EngineInfo | None
    """None until the engine is ready."""
    attached: bool
    """True when the engine was already there; False when this connection started it."""
    lost: tuple[str, ...]
    """The requests that were under way when the connection was lost."""

    def load(self) -> AsyncIterator[LoadEvent]:
        """The load's progress, ending with EngineReady or LoadFailed. An engine that is ready yields EngineReady at
        once. A process that dies meanwhile gives LoadFailed."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        """The request's events (for `only_render` PromptReady and the end alone); the last is Finished, Failed or
        Cancelled. A dead engine gives Failed(ENGINE_DIED).
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
        """Round trip in seconds. Raises VlmtuiError(ENGINE_DIED) when nobody answers within 5 s."""
        ...

    async def status(self) -> Status:
        """What `ps` shows. Raises VlmtuiError(ENGINE_DIED)."""
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
        """End the engine, also in the middle of a load. Returns once no process of it is left."""
        ...


class EngineHost(Protocol):
    """Starts engines and finds running ones."""

    async def open(self, spec: LoadSpec, *, client: str, keep_alive_s: float | None) -> Engine:
        """Attach to a running engine of the same spec, or start one. Returns once connected, before it is loaded.

        `keep_alive_s` is for an engine that is started; one that runs already keeps its own.

        Raises VlmtuiError when no engine can be started at all (NO_VLLM …).
        """
        ...

    async def running(self) -> list[Status]:
        """Every engine of this user on this machine that answers."""
        ...

    async def stop(self, pid: int) -> bool:
        """End the worker of that pid with all its children; False when there is none."""
        ...

    async def holder(self, request_id: str) -> LoadSpec | None:
        """Which running engine keeps this request for want of a client: `open` its spec, and `resume`."""
        ...

    async def kept_answer(self, request_id: str) -> list[EngineEvent] | None:
        """What a worker that ended wrote down of a kept request that nobody had fetched: its events, the deltas as one,
        the last of them Finished, Failed or Cancelled. None where there is nothing. Ask `holder` first."""
        ...

    async def forget(self, request_id: str) -> None:
        """`kept_answer` is safe elsewhere: its file is deleted. Harmless when there is none."""
        ...

    async def leftovers(self) -> list[FoundWorker]:
        """Workers of this user's that live but cannot be used: they do not answer, or their socket is gone. Those that
        this host has open, and processes that are not vlmtui's, are never among them."""
        ...

    async def stop_worker(self, endpoint: Endpoint) -> None:
        """End a worker, answering or not. Returns when no process of it is left."""
        ...
