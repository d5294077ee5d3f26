"""The thread that runs the engine's event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import msgspec

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.engine import EngineInfo, LoadSpec
from vlmtui.domain.generation import Cancelled, EngineEvent, Failed, Failure, Finished, Request
from vlmtui.domain.metrics import EngineMetrics
from vlmtui.errors import VlmtuiError
from vlmtui.worker.backends.contract import Backend, HostedEngine, ProcessEnded, Report, TellsMetrics
from vlmtui.worker.health import ProcessExits
from vlmtui.worker.loaded_files import LoadedFiles


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of uvloop, which wakes less often and comes with vLLM; without it, one of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_log = logging.getLogger(__name__)

OnEvent = Callable[[EngineEvent], None]
"""Receives a request's events, except the terminal event."""
OnEnd = Callable[[EngineEvent | None], None]
"""Called when the engine has finished with a request. Gets the terminal event, or None if the engine sent none."""
OnLoaded = Callable[["EngineInfo | VlmtuiError"], None]


class EngineThread:
    """Runs an engine in its own thread and event loop, so that the server stays responsive during loads and long
    prompts. A callback runs in the event loop of the code that passed it.

    The thread lives as long as the process, because the kernel may kill an engine's child processes when the thread
    that started them ends (`PR_SET_PDEATHSIG`).
    """

    def __init__(
        self, backend: Backend, log_tail: Callable[[], list[str]], recent_log: Callable[[], list[str]]
    ) -> None:
        """`log_tail`: returns the newest lines of the log, which may explain a failed load. `recent_log`: returns those
        of the last seconds, which may explain the engine's end."""
        self._backend = backend
        self._log_tail = log_tail
        self._recent_log = recent_log
        self.process_exits = ProcessExits()
        self._loop = new_event_loop()
        self._engine: HostedEngine | None = None
        self._files: LoadedFiles | None = None
        """Set once the engine is loaded."""
        self._tasks: dict[str, asyncio.Task[EngineEvent | None]] = {}

    def start(
        self, spec: LoadSpec, *, on_progress: Report, on_loaded: OnLoaded, on_death: Callable[[], object]
    ) -> None:
        """Start the thread and load the engine in it. `on_death` is called when a loaded engine dies on its own."""
        home = asyncio.get_running_loop()

        async def live() -> None:
            outcome: EngineInfo | VlmtuiError
            try:
                files = LoadedFiles(spec)
                engine = await self._load(spec, lambda step: home.call_soon_threadsafe(on_progress, step))
                if spec.loras:
                    require_capability(engine.info, "lora")  # otherwise it would silently ignore the adapters
                digest = files.loaded(engine.info.revision)
                self._engine, self._files = engine, files
                self.process_exits.begin()
                outcome = msgspec.structs.replace(_with_metrics(engine), files=digest)
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

    async def _load(self, spec: LoadSpec, report: Report) -> HostedEngine:
        try:
            return await self._backend.load(spec, report)
        except ProcessEnded as error:
            if self._backend.load_again is None:
                raise
            return await self._backend.load_again(spec, report, error, self._log_tail())

    def generate(self, request: Request, on_event: OnEvent, on_end: OnEnd) -> None:
        home = asyncio.get_running_loop()

        def end(task: asyncio.Task[EngineEvent | None]) -> None:
            self._tasks.pop(request.request_id, None)
            home.call_soon_threadsafe(on_end, None if task.cancelled() or task.exception() else task.result())

        def begin() -> None:
            task = self._loop.create_task(self._pump(request, lambda event: home.call_soon_threadsafe(on_event, event)))
            self._tasks[request.request_id] = task
            task.add_done_callback(end)

        self._loop.call_soon_threadsafe(begin)

    def ping(self, on_pong: Callable[[], None]) -> None:
        """Make the engine's event loop call `on_pong`, which it does at once unless it is blocked."""
        home = asyncio.get_running_loop()
        self._loop.call_soon_threadsafe(lambda: home.call_soon_threadsafe(on_pong))

    def changed_files(self) -> tuple[str, ...]:
        """Return the names of the files that have changed since the load. Blocking."""
        return () if self._files is None else self._files.changed()

    async def metrics(self) -> EngineMetrics:
        """Return the metrics of an engine with the capability `metrics`. Raises VlmtuiError."""
        engine: object = self._engine
        assert isinstance(engine, TellsMetrics)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(engine.metrics(), self._loop))

    def cancel(self, request_id: str) -> None:
        self._loop.call_soon_threadsafe(self._abort, request_id)

    async def shutdown(self, timeout_s: float) -> None:
        """Shut the engine down cleanly, waiting at most `timeout_s` seconds."""
        if self._engine is not None:
            ending = asyncio.run_coroutine_threadsafe(self._engine.shutdown(), self._loop)
            await asyncio.wait([asyncio.wrap_future(ending)], timeout=timeout_s)

    def _abort(self, request_id: str) -> None:
        if task := self._tasks.get(request_id):
            task.cancel()

    async def _pump(self, request: Request, on_event: Callable[[EngineEvent], object]) -> EngineEvent | None:
        """Pass events on as they arrive, except the terminal event. Return it instead, because it may be sent only
        after the engine has finished."""
        assert self._engine is not None
        events = self._engine.generate(request)
        last: EngineEvent | None = None
        try:
            async for event in events:
                if isinstance(event, Finished | Failed | Cancelled):
                    last = event
                else:
                    on_event(event)
        except Exception as error:
            _log.exception("request %s failed", request.request_id)
            known = self.process_exits.add_exits(self._backend.explain_request(error, self._recent_log()))
            last = Failed(request_id=request.request_id, failure=Failure.of(known))
        finally:
            await events.aclose()
        return last


def _with_metrics(engine: HostedEngine) -> EngineInfo:
    """Return the engine's facts. The capability `metrics` is set if the engine has a method of that name."""
    capabilities = msgspec.structs.replace(engine.info.capabilities, metrics=isinstance(engine, TellsMetrics))
    return msgspec.structs.replace(engine.info, capabilities=capabilities)
