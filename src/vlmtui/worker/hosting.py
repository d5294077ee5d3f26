"""What the server needs of an engine, and a thread for it to live in."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol

from vlmtui.domain.engine import (
    Cancelled,
    EngineEvent,
    EngineInfo,
    Failed,
    Failure,
    Finished,
    GenerateRequest,
    LoadSpec,
)
from vlmtui.errors import VlmtuiError
from vlmtui.worker.failures import explain_load, explain_request

_log = logging.getLogger(__name__)

OnEvent = Callable[[EngineEvent], None]
"""Gets a request's events, but for its terminal one."""
OnEnd = Callable[[EngineEvent | None], None]
"""Called once nothing of the request is left in the engine, with its terminal event if the engine has given one."""
OnLoaded = Callable[["EngineInfo | VlmtuiError"], None]


class HostedEngine(Protocol):
    """A loaded engine. All methods belong to the event loop that it was loaded in."""

    info: EngineInfo

    def generate(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        """PromptReady, Deltas, then Finished. Raises for a failure; cancelling the task aborts the request."""
        ...

    @property
    def is_dead(self) -> bool:
        """Whether the engine core has died."""
        ...

    async def shutdown(self) -> None:
        """End the engine's processes."""
        ...


Load = Callable[[LoadSpec], Awaitable[HostedEngine]]
"""Loads an engine; may block its event loop for as long as it likes."""


class EngineThread:
    """Runs an engine in an event loop and thread of its own, so that neither a load nor a heavy prompt makes the
    server deaf. The thread lives as long as the process: children of vLLM die with the thread that started them.

    Callbacks run in the event loop that `start` was called in.
    """

    def __init__(self, load: Load, log_tail: Callable[[], list[str]]) -> None:
        self._load = load
        self._log_tail = log_tail
        self._loop = asyncio.new_event_loop()
        self._engine: HostedEngine | None = None
        self._tasks: dict[str, asyncio.Task[EngineEvent | None]] = {}

    @property
    def is_dead(self) -> bool:
        """Whether a loaded engine has died."""
        return self._engine is not None and self._engine.is_dead

    def start(self, spec: LoadSpec, on_loaded: OnLoaded) -> None:
        """Start the thread and load the engine in it."""
        home = asyncio.get_running_loop()

        async def load() -> None:
            outcome: EngineInfo | VlmtuiError
            try:
                self._engine = await self._load(spec)
                outcome = self._engine.info
            except Exception as error:
                _log.exception("the load failed")
                outcome = explain_load(error, self._log_tail(), name=spec.name)
            home.call_soon_threadsafe(on_loaded, outcome)

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            self._loop.create_task(load())
            self._loop.run_forever()

        threading.Thread(target=run, name="engine", daemon=True).start()

    def generate(self, request: GenerateRequest, on_event: OnEvent, on_end: OnEnd) -> None:
        """Start a request."""
        home = asyncio.get_running_loop()

        def post(event: EngineEvent) -> None:
            home.call_soon_threadsafe(on_event, event)

        def end(task: asyncio.Task[EngineEvent | None]) -> None:
            self._tasks.pop(request.request_id, None)
            home.call_soon_threadsafe(on_end, None if task.cancelled() or task.exception() else task.result())

        def begin() -> None:
            task = self._loop.create_task(self._pump(request, post))
            self._tasks[request.request_id] = task
            task.add_done_callback(end)

        self._loop.call_soon_threadsafe(begin)

    def ask(self, answer: Callable[[], None]) -> None:
        """Have the engine's event loop call back, which it does at once unless it is stuck."""
        home = asyncio.get_running_loop()
        self._loop.call_soon_threadsafe(lambda: home.call_soon_threadsafe(answer))

    def cancel(self, request_id: str) -> None:
        """Abort a request in the engine."""
        self._loop.call_soon_threadsafe(self._abort, request_id)

    async def shutdown(self, timeout_s: float) -> None:
        """End the engine's processes in order, if that can be done in time."""
        if self._engine is not None:
            ending = asyncio.run_coroutine_threadsafe(self._engine.shutdown(), self._loop)
            await asyncio.wait([asyncio.wrap_future(ending)], timeout=timeout_s)

    def _abort(self, request_id: str) -> None:
        if task := self._tasks.get(request_id):
            task.cancel()

    async def _pump(self, request: GenerateRequest, post: OnEvent) -> EngineEvent | None:
        """Post the events as they come; the terminal one is returned, and so told when the engine is done with it."""
        assert self._engine is not None
        events = self._engine.generate(request)
        last: EngineEvent | None = None
        try:
            async for event in events:
                if isinstance(event, Finished | Failed | Cancelled):
                    last = event
                else:
                    post(event)
        except Exception as error:
            _log.exception("request %s failed", request.request_id)
            known = explain_request(error, self._log_tail())
            last = Failed(request_id=request.request_id, failure=Failure.of(known))
        finally:
            await events.aclose()
        return last
