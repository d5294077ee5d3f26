"""The thread that an engine lives in."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.engine import EngineInfo, LoadSpec
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Cancelled, EngineEvent, Failed, Finished, GenerateRequest
from vlmtui.errors import VlmtuiError
from vlmtui.worker.backends.contract import Backend, HostedEngine, Report
from vlmtui.worker.process_ends import ProcessEnds

_log = logging.getLogger(__name__)

OnEvent = Callable[[EngineEvent], None]
"""Gets a request's events, but for its terminal one."""
OnEnd = Callable[[EngineEvent | None], None]
"""Called once nothing of the request is left in the engine, with its terminal event if the engine has given one."""
OnLoaded = Callable[["EngineInfo | VlmtuiError"], None]


class EngineThread:
    """Runs an engine in an event loop and thread of its own, so that neither a load nor a heavy prompt makes the
    server deaf. The thread lives as long as the process: an engine's children may die with the thread that started
    them.

    Callbacks run in the event loop that `start` was called in.
    """

    def __init__(self, backend: Backend, log_tail: Callable[[], list[str]]) -> None:
        self._backend = backend
        self._log_tail = log_tail
        self.process_ends = ProcessEnds()
        self._loop = asyncio.new_event_loop()
        self._engine: HostedEngine | None = None
        self._tasks: dict[str, asyncio.Task[EngineEvent | None]] = {}

    def start(
        self, spec: LoadSpec, *, on_progress: Report, on_loaded: OnLoaded, on_death: Callable[[], object]
    ) -> None:
        """Start the thread and load the engine in it. `on_death`: called when a loaded engine has died by itself."""
        home = asyncio.get_running_loop()

        async def live() -> None:
            outcome: EngineInfo | VlmtuiError
            try:
                engine = await self._backend.load(spec, lambda step: home.call_soon_threadsafe(on_progress, step))
                _check_lora(engine.info)
                self._engine = engine
                self.process_ends.begin()
                outcome = engine.info
            except Exception as error:
                _log.exception("the load failed")
                outcome = self._backend.explain_load(error, self._log_tail(), name=spec.name)
            home.call_soon_threadsafe(on_loaded, outcome)
            if self._engine is not None:
                await self._engine.died()
                home.call_soon_threadsafe(on_death)

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            self._life = self._loop.create_task(live())
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
            known = self.process_ends.explained(self._backend.explain_request(error, self._log_tail()))
            last = Failed(request_id=request.request_id, failure=Failure.of(known))
        finally:
            await events.aclose()
        return last


def _check_lora(info: EngineInfo) -> None:
    """Raise VlmtuiError(UNSUPPORTED) where the engine would silently ignore the adapter."""
    if info.spec.lora is not None:
        require_capability(info, "lora")
