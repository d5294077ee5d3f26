"""The app's engines: loads, watches and stops the current engine, and the engines that stay loaded in addition to
it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec

from vlmtui.domain.engine import (
    REMOTE_BACKEND,
    Activity,
    EngineInfo,
    EngineReady,
    EngineStatus,
    LoadFailed,
    LoadProgress,
    can_serve,
)
from vlmtui.domain.generation import Failure
from vlmtui.domain.metrics import EngineMetrics, MetricsSample
from vlmtui.engine.interface import Engine, EngineHost, EngineStopped, WhenChanged, outdated
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError
from vlmtui.log_ring import LogRing
from vlmtui.registry.match import Model

_log = logging.getLogger(__name__)

LOG_LINES = 5000
"""Log lines kept in memory. The worker's log file has all of them."""
_LOOKS_PER_HANG = 3
"""Status requests during the silence after which an engine counts as hung, so few that an idle app seldom wakes."""
_LOOK_S = 30.0
"""Takes the place of `hang_s` if hangs are not reported."""
_RESTARTS = 1
"""Automatic restarts in a row after deaths."""
_LONGEST_ANSWER_S = 6.0
"""The most seconds that an unanswered status request counts: this process may itself have been suspended meanwhile."""


def _silent(engine: Engine, seconds: float) -> VlmtuiError:
    return VlmtuiError(
        ErrorKind.ENGINE_DIED,
        f"The engine of {engine.spec.name} has not answered for {seconds:.0f} s.",
        hint="It may be stuck. The partial answer stays.",
        remedy=Remedy.RESTART_ENGINE,
    )


def names_of(model: Model) -> tuple[str, ...]:
    """Return the names that a user may give a loaded engine: `qwen at box` and `box`, or `shapes`."""
    name = model.spec.name
    return (name, name.rpartition(" at ")[2]) if is_remote(model) else (name,)


def is_remote(model: Model) -> bool:
    """Return True if a server runs the model, which then needs no memory of this machine."""
    return model.spec.backend == REMOTE_BACKEND


async def release(engine: Engine, *, by_force: bool) -> None:
    """Stop an engine. If other clients use it, only disconnect, unless `by_force`."""
    shared = False
    if not by_force:
        with suppress(VlmtuiError):
            shared = (await engine.status()).clients > 1
    await (engine.close() if shared else engine.shutdown())


class EngineState(StrEnum):
    NONE = "none"
    LOADING = "loading"
    READY = "ready"
    HUNG = "hung"
    """Running but not answering; it may recover."""
    DEAD = "dead"


class AppEngine:
    """A model and its engine, from the start of the load until the engine has stopped."""

    def __init__(self, model: Model, on_change: Callable[[AppEngine], None]) -> None:
        """`on_change` is called after every change, in the event loop."""
        self.model = model
        self.state = EngineState.LOADING
        self.engine: Engine | None = None
        """None until connected, and after `stop`."""
        self.progress: LoadProgress | None = None
        self.error: VlmtuiError | None = None
        """Why the load failed, or the engine died or hangs."""
        self.outdated: VlmtuiError | None = None
        """Says which of the model's files have changed since the engine loaded them; None: none of them."""
        self.started_at = time.monotonic()
        """`time.monotonic()` at the start of the load."""
        self._on_change = on_change
        self._opening: asyncio.Task[Engine] | None = None

    @property
    def is_loaded(self) -> bool:
        """True if the model is loaded, even if the engine hangs."""
        return self.state in (EngineState.READY, EngineState.HUNG)

    async def load(self, host: EngineHost, keep_alive_s: float | None, *, is_exact: bool = False) -> None:
        """Load the model. Return when the state is READY or DEAD, or after `stop`. `is_exact`: see `EngineHost.open`;
        otherwise `model` is then the one of the engine, which may do more."""
        opening = asyncio.ensure_future(self._open(partial(host.open, keep_alive_s=keep_alive_s, is_exact=is_exact)))
        self._opening = opening  # `stop` waits for it
        try:
            await asyncio.wait([opening])
        except asyncio.CancelledError:
            opening.cancel()
            raise
        if self._was_stopped():
            return
        self._opening = None
        try:
            engine = self.engine = opening.result()
        except VlmtuiError as error:
            self.fail(error)
            return
        self.model = msgspec.structs.replace(self.model, spec=engine.spec)
        self._on_change(self)
        async for event in engine.load():
            if self._was_stopped():
                return
            match event:
                case LoadProgress():
                    self.progress = event
                    self._on_change(self)
                case EngineReady():
                    self.change_to(EngineState.READY)
                case LoadFailed(failure=failure):
                    self.fail(failure.error())

    async def _open(self, open_engine: Callable[..., Awaitable[Engine]]) -> Engine:
        """Open the engine; an outdated one only if it can't be loaded again now."""
        spec = self.model.spec
        try:
            return await open_engine(spec, client="app")
        except VlmtuiError as error:
            if error.kind is not ErrorKind.MODEL_CHANGED:
                raise
            self.outdated = error
            return await open_engine(spec, client="app", when_changed=WhenChanged.KEEP)

    def stop(self, *, by_force: bool = False) -> Coroutine[Any, Any, None]:
        """Stop the load or the engine; with `by_force` even if other clients use it. Return a coroutine that waits
        until its processes have ended."""
        opening, self._opening = self._opening, None
        engine, self.engine = self.engine, None
        by_force = by_force or self.state is EngineState.HUNG
        self.change_to(EngineState.NONE)
        return _stopped(opening, engine, by_force=by_force)

    def _was_stopped(self) -> bool:
        return self.state is EngineState.NONE

    def fail(self, error: VlmtuiError) -> None:
        """Record that the load failed, or that the engine died."""
        _log.warning("engine: %s (%s)", error.message, error.detail)
        self.error = error
        self.change_to(EngineState.DEAD)

    def heard(self, error: VlmtuiError | None) -> None:
        """Record that the engine hangs (`error` says why), or that it answers again (None)."""
        if self.is_loaded:
            self.error = error
            self.change_to(EngineState.READY if error is None else EngineState.HUNG)

    def look_at_files(self, status: EngineStatus) -> None:
        """Note whether the model's files have changed since the engine loaded them."""
        found = outdated(status, WhenChanged.KEEP) if status.changed else None
        if (found and str(found)) != (self.outdated and str(self.outdated)):
            self.outdated = found
            self._on_change(self)

    def change_to(self, state: EngineState) -> None:
        self.state = state
        self._on_change(self)


async def _stopped(opening: asyncio.Task[Engine] | None, engine: Engine | None, *, by_force: bool) -> None:
    if opening is not None:
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            engine = opening.result()
    if engine is not None:
        await release(engine, by_force=by_force)


class AppEngines:
    """Owns all engines of the app: the current engine, which answers; the former engine, while another model loads in
    its place; and the engines that are loaded beside it, that is, in addition. `state`, `model`, `engine` and so on are
    those of the current engine."""

    on_ready: Callable[[Model], None] = staticmethod(lambda model: None)
    """Called when the current model is ready, before `on_change`."""
    on_death: Callable[[VlmtuiError, bool], None] = staticmethod(lambda error, loads_again: None)
    """Called when the current engine has died; the flag says whether it is being restarted."""
    on_outdated: Callable[[VlmtuiError], None] = staticmethod(lambda error: None)
    """Called when the files of a loaded model have changed. The engine goes on answering with the earlier files."""

    def __init__(
        self,
        host: EngineHost,
        *,
        keep_alive_s: float | None,
        on_change: Callable[[], None],
        hang_s: float = 30.0,
        look_every_s: float | None = None,
        forget_death_s: float = 600.0,
    ) -> None:
        """on_change: called after every change, in the event loop. hang_s: seconds of silence after which an engine is
        HUNG; 0: never. forget_death_s: seconds after which a death no longer counts."""
        self._host = host
        self._keep_alive_s = keep_alive_s
        self._on_change = on_change
        self._forget_death_s = forget_death_s
        self._hang_s = hang_s
        self._look_every_s = (hang_s or _LOOK_S) / _LOOKS_PER_HANG if look_every_s is None else look_every_s
        self._look_now = asyncio.Event()
        """Set when the current engine is used: `watch` then looks whether it is outdated."""
        self._current: AppEngine | None = None
        self._former: AppEngine | None = None
        self._beside: dict[AppEngine, asyncio.Task[None] | None] = {}
        """Each with the task that removes it when it closes; None while it loads."""
        self._endings: set[asyncio.Task[None]] = set()
        """Tasks of engines that are being stopped."""
        self._told_outdated: VlmtuiError | None = None
        self._died_at = 0.0
        self.deaths = 0
        """Deaths of the engine since its last finished answer, without those before a pause of `forget_death_s`."""
        self.log = LogRing(LOG_LINES)
        """The newest lines of the current engine's log; kept after its death."""

    @property
    def state(self) -> EngineState:
        return self._current.state if self._current is not None else EngineState.NONE

    @property
    def model(self) -> Model | None:
        return self._current.model if self._current is not None else None

    @property
    def engine(self) -> Engine | None:
        return self._current.engine if self._current is not None else None

    @property
    def info(self) -> EngineInfo | None:
        return self.engine.info if self.engine is not None else None

    @property
    def error(self) -> VlmtuiError | None:
        """Why the load failed, or the engine died or hangs."""
        return self._current.error if self._current is not None else None

    @property
    def outdated(self) -> VlmtuiError | None:
        """Says which files have changed since the loaded engine has read them; None: none of them."""
        return self._current.outdated if self._current is not None and self._current.is_loaded else None

    @property
    def progress(self) -> LoadProgress | None:
        return self._current.progress if self._current is not None else None

    @property
    def started_at(self) -> float:
        """`time.monotonic()` at the start of the load."""
        return self._current.started_at if self._current is not None else 0.0

    @property
    def is_loaded(self) -> bool:
        """True if an engine is loaded, even if it hangs."""
        return self._current is not None and self._current.is_loaded

    @property
    def is_to_restart(self) -> bool:
        """True if loading the current model again helps: its engine died, hangs, was not started or is outdated."""
        is_outdated = self.outdated is not None and self.outdated.remedy is Remedy.RESTART_ENGINE
        return is_outdated or self.state in (EngineState.NONE, EngineState.DEAD, EngineState.HUNG)

    @property
    def has_failed_to_load(self) -> bool:
        """True if the current engine ended before its model was loaded."""
        return self.state is EngineState.DEAD and self.info is None

    @property
    def can_stop_load(self) -> bool:
        """True if a model is loading, or has failed to and can be left for the former one."""
        return self.state is EngineState.LOADING or (self.has_failed_to_load and self._former is not None)

    @property
    def former(self) -> Model | None:
        """The previous model while the current one loads; `go_back` returns to it."""
        return self._former.model if self._former is not None else None

    @property
    def keeps_former(self) -> bool:
        """True if the previous model is still loaded."""
        return self._former is not None and self._former.is_loaded

    @property
    def models(self) -> tuple[Model, ...]:
        """The current model, then those loaded beside it."""
        current = (self._current.model,) if self._current is not None else ()
        return (*current, *(one.model for one in self._beside if one.is_loaded))

    def engine_of(self, model: Model) -> Engine | None:
        """Return the loaded engine with this model; None if there is none."""
        if self.model is not None and self.model.spec == model.spec:
            return self.engine if self.state is EngineState.READY else None
        found = self._find_beside(model)
        return found.engine if found is not None else None

    def serves(self, model: Model) -> bool:
        """Return True if the current engine is, or will be, one that can serve this model."""
        return self.model is not None and can_serve(self.model.spec, model.spec)

    async def others(self, model: Model) -> list[EngineStatus]:
        """Return the engines that other processes have loaded on this machine; none if one of them can serve this
        model, which then needs no memory."""
        running = list[EngineStatus]()
        with suppress(VlmtuiError):  # the load meets the same error, and reports it
            running = await self._host.running()
        if any(can_serve(status.spec, model.spec) for status in running):
            return []
        own = [one.spec for one in (*self.models, *([self.former] if self.former is not None else []))]
        local = [status for status in running if status.spec.backend != REMOTE_BACKEND]
        return [status for status in local if status.spec not in own and status.state is not Activity.STOPPING]

    def require_model(self) -> Model:
        """Return the current model. Raises VlmtuiError when there is none."""
        if self.model is None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "No model is loaded.", remedy=Remedy.LOAD_MODEL)
        return self.model

    def require_engine(self) -> Engine:
        """Return the engine if it is ready. Raises VlmtuiError otherwise."""
        if self.state is EngineState.LOADING:
            raise self._still_loading()
        if self.state is not EngineState.READY or self.engine is None:
            raise self.error or engine_died()
        self._look_now.set()
        return self.engine

    def require_info(self) -> EngineInfo:
        """Return the facts of the loaded engine. Raises VlmtuiError if none is loaded."""
        if self.state is EngineState.LOADING:
            raise self._still_loading()
        if self.info is None:
            raise self.error or engine_died()
        return self.info

    async def read_status(self) -> EngineStatus | None:
        """Return the engine's status; None without an engine, or if it does not answer."""
        try:
            return await self.engine.status() if self.engine is not None else None
        except VlmtuiError:
            return None

    async def start(
        self, model: Model, *, keep_former: bool = False, may_open: Callable[[], Awaitable[bool]] | None = None
    ) -> bool:
        """Make `model` the current one, loading it if necessary; if it is the current one, load it again, even if other
        clients use its engine. Return True once it is READY: then run `watch`. Return False if that failed, or if
        another model was chosen meanwhile. Run it in a task.

        keep_former: keep the loaded model until the new one is ready, so that `go_back` can return to it. Without it, a
        model that loads on this machine first stops the other models there. may_open: called before an engine is
        opened; False: the load stops there."""
        if (loaded := self._find_beside(model)) is not None:
            self._make_current(loaded)
            return True
        if not keep_former and not is_remote(model):
            self._end_local_beside()
        left, app_engine = self._current, AppEngine(model, self._changed)
        self._set_current(app_engine)
        if left is not None:
            self._leave(left, app_engine, keep_former=keep_former)
        self._on_change()
        await self._wait_for_endings()
        if may_open is not None and not await may_open():
            await app_engine.stop()
        if app_engine is self._current and app_engine.state is EngineState.LOADING:
            await app_engine.load(self._host, self._keep_alive_s)
        return app_engine is self._current and app_engine.state is EngineState.READY

    async def go_back(self) -> bool:
        """Make the former model the current one again, and stop the model that is loading. Return True if this worked:
        then run `watch`. Return False if the former model is no longer loaded, or another model was chosen
        meanwhile."""
        left, former = self._current, self._former
        if former is None or not former.is_loaded:
            return False
        self._former = None
        self._set_current(former)
        if left is not None:
            await left.stop()
        self._changed(former)
        return former is self._current

    async def open_beside(self, model: Model) -> Engine:
        """Load a model in addition to the current one. Raises VlmtuiError."""
        if (loaded := self.engine_of(model)) is not None and not await self._leave_outdated(model, loaded):
            return loaded
        app_engine = AppEngine(model, self._changed)
        self._beside[app_engine] = None
        try:
            await app_engine.load(self._host, self._keep_alive_s, is_exact=True)  # engines are compared
        finally:
            if app_engine.state is not EngineState.READY:
                self._beside.pop(app_engine, None)
                await app_engine.stop()
        if app_engine.engine is None:
            raise app_engine.error or engine_died()
        self._keep_beside(app_engine)
        self._on_change()
        if app_engine.outdated is not None:
            self.on_outdated(app_engine.outdated)
        return app_engine.engine

    async def _leave_outdated(self, model: Model, engine: Engine) -> bool:
        """Stop an engine beside the current one if the model's files have changed since it loaded them, and no other
        client uses it. Return whether it was stopped."""
        beside = self._find_beside(model)
        status = await engine.status() if beside is not None else None
        if beside is None or status is None:
            self._look_now.set()  # it is the current engine
            return False
        if not status.changed or status.clients > 1 or status.running:
            if status.changed:
                self.on_outdated(outdated(status, WhenChanged.KEEP))
            return False
        self._forget(beside)
        await beside.stop()
        return True

    async def make_room(self) -> None:
        """Stop all engines on this machine; return when they have ended. `return_to` loads the current model again."""
        self._end_local_beside()
        if self.model is not None and not is_remote(self.model):
            await self.abort()
        await self._wait_for_endings()

    async def return_to(self, model: Model) -> bool:
        """Load a model again that `make_room` stopped, unless another model was chosen meanwhile. Return as `start`
        does."""
        return self.state is EngineState.NONE and self.model == model and await self.start(model)

    async def follow_log(self, engine: Engine, on_line: Callable[[], None]) -> None:
        """Copy the engine's log into `self.log` until it ends, calling `on_line` after each line. Run it in a task."""
        async for line in engine.log():
            if engine is not self.engine:
                return
            self.log.append(line)
            on_line()

    async def watch(self) -> None:
        """Watch the current engine: report hangs, and restart it when it dies. Run it in a task after READY."""
        while (app_engine := self._current) is not None and app_engine.is_loaded and app_engine.engine is not None:
            error = await self._wait_for_end(app_engine, app_engine.engine)
            if error is None or app_engine is not self._current or not app_engine.is_loaded:
                return
            now = time.monotonic()
            self.deaths = 1 if now - self._died_at > self._forget_death_s else self.deaths + 1
            self._died_at = now
            loads_again = self.deaths <= _RESTARTS and not isinstance(error, EngineStopped)
            self.on_death(error, loads_again)
            app_engine.fail(error)
            if not loads_again or not await self.start(app_engine.model):
                return

    async def _wait_for_end(self, app_engine: AppEngine, engine: Engine) -> VlmtuiError | None:
        """Wait for an engine's end; return its cause as `Engine.closed` does. Meanwhile regularly ask how long the
        engine has been silent and whether its files have changed, and note in `app_engine` what is new."""
        closed = asyncio.ensure_future(engine.closed())
        deaf_s = silent_s = 0.0
        hangs = False
        try:
            while not closed.done() and (waited_s := await self._until_next_look(closed)) is not None:
                began = time.monotonic()
                try:
                    status = await engine.status()
                    silent_s, deaf_s = status.engine_silent_s, 0.0
                    app_engine.look_at_files(status)
                except VlmtuiError:
                    deaf_s += waited_s + min(time.monotonic() - began, _LONGEST_ANSWER_S)
                longest = max(deaf_s, silent_s) if self._hang_s > 0 else -1.0
                if (longest >= self._hang_s) is not hangs and not closed.done():
                    hangs = not hangs
                    app_engine.heard(_silent(engine, longest) if hangs else None)
            return await closed
        finally:
            closed.cancel()

    async def _until_next_look(self, closed: asyncio.Future[VlmtuiError | None]) -> float | None:
        """Wait until the engine's status is due, or the engine is used. Return the seconds; None if it has closed."""
        began = time.monotonic()
        used = asyncio.ensure_future(self._look_now.wait())
        either: list[asyncio.Future[Any]] = [closed, used]
        try:
            await asyncio.wait(either, timeout=self._look_every_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            used.cancel()
        self._look_now.clear()
        return None if closed.done() else min(time.monotonic() - began, self._look_every_s)

    def answered(self) -> None:
        """Reset the death count after a finished answer."""
        self.deaths = 0

    async def abort(self) -> None:
        """Stop the load or the engine; return when its processes have ended."""
        if self._current is not None:
            await self._current.stop()
        await self._wait_for_endings()

    async def leave(self) -> EngineStatus | None:
        """Release the engines at exit; loaded engines stay for their keep-alive time. Return the current engine's
        status if it stays."""
        former, self._former = self._former, None
        for app_engine in (*self._beside, *([former] if former is not None else [])):
            self._forget(app_engine)
            if app_engine.is_loaded and app_engine.engine is not None:
                await app_engine.engine.close()
            else:
                await app_engine.stop()
        await self._wait_for_endings()
        engine = self.engine
        if self.state is EngineState.READY and engine is not None:
            status = await self.read_status()
            await engine.close()
            return status if status is not None and status.keep_alive_s != 0 else None
        await self.abort()
        return None

    def _changed(self, app_engine: AppEngine) -> None:
        if app_engine is not self._current:
            return
        if app_engine.state is EngineState.READY:
            self._end_former(app_engine)
            self.on_ready(app_engine.model)
        self._on_change()
        if self._told_outdated is not self.outdated:
            self._told_outdated = self.outdated
            if self._told_outdated is not None:
                self.on_outdated(self._told_outdated)

    def _set_current(self, app_engine: AppEngine) -> None:
        self._current = app_engine
        self._look_now.set()
        self.log.clear()

    def _leave(self, left: AppEngine, loading: AppEngine, *, keep_former: bool) -> None:
        """Keep the engine `left`, which was the current one, as the former engine, or start stopping it."""
        is_other = not can_serve(left.model.spec, loading.model.spec)
        if is_other and left.state is EngineState.READY:
            self._former = left
            if keep_former or is_remote(left.model):
                return
        elif is_other and not keep_former and self._former is not None and not is_remote(self._former.model):
            self._start_stopping(self._former)
        self._start_stopping(left, by_force=not is_other)

    def _end_former(self, ready: AppEngine) -> None:
        """Keep the former engine loaded beside the ready engine if one of the two is on a server; otherwise stop it."""
        former, self._former = self._former, None
        if former is not None and former.is_loaded:
            if is_remote(former.model) or is_remote(ready.model):
                self._keep_beside(former)
            else:
                self._start_stopping(former)

    def _make_current(self, app_engine: AppEngine) -> None:
        """Make an engine from beside the current engine the current engine. The previous engine stays beside it if it
        is ready; otherwise it is stopped."""
        self._forget(app_engine)
        left, former = self._current, self._former
        self._former = None
        self._set_current(app_engine)
        for other in (left, former):
            if other is not None and other.state is EngineState.READY:
                self._keep_beside(other)
            elif other is not None:
                self._start_stopping(other)
        self._changed(app_engine)

    def _find_beside(self, model: Model) -> AppEngine | None:
        return next((one for one in self._beside if one.is_loaded and one.model.spec == model.spec), None)

    def _keep_beside(self, app_engine: AppEngine) -> None:
        self._beside[app_engine] = asyncio.ensure_future(self._forget_when_closed(app_engine))

    async def _forget_when_closed(self, app_engine: AppEngine) -> None:
        """Wait until an engine beside the current one closes, then forget it."""
        if (engine := app_engine.engine) is not None:
            await engine.closed()
            del self._beside[app_engine]
            self._on_change()
            await engine.close()

    def _forget(self, app_engine: AppEngine) -> None:
        """Remove an engine from those beside the current one."""
        watching = self._beside.pop(app_engine, None)
        if watching is not None:
            watching.cancel()

    def _end_local_beside(self) -> None:
        """Start stopping the engines of this machine that are beside the current one."""
        for app_engine in [one for one in self._beside if not is_remote(one.model)]:
            self._forget(app_engine)
            self._start_stopping(app_engine)

    def _start_stopping(self, app_engine: AppEngine, *, by_force: bool = False) -> None:
        """Start stopping an engine, in a task that nothing interrupts."""
        ending = asyncio.ensure_future(app_engine.stop(by_force=by_force))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def _wait_for_endings(self) -> None:
        if self._endings:
            await asyncio.wait(set(self._endings))

    def _still_loading(self) -> VlmtuiError:
        name = self.model.spec.name if self.model is not None else "The model"
        stage = f" ({self.progress.stage.label.lower()})" if self.progress is not None else ""
        hint = "A message that you send now is queued."
        return VlmtuiError(ErrorKind.ENGINE_BUSY, f"{name} is still loading{stage}.", hint=hint)


def engine_died() -> VlmtuiError:
    """Return the error for a request while no engine is running."""
    message = "The engine is not running."
    return VlmtuiError(ErrorKind.ENGINE_DIED, message, remedy=Remedy.RESTART_ENGINE)


_SPAN_S = 300.0
"""The time that `EngineMeter.speeds` covers, in seconds."""
_SAMPLES_MAX = 1000


class EngineMeter:
    """Computes an engine's speed from its metrics."""

    def __init__(self) -> None:
        self._samples: deque[MetricsSample] = deque(maxlen=_SAMPLES_MAX)
        self.failure: Failure | None = None
        """Why there is no newer sample."""

    def clear(self) -> None:
        """Forget all samples, for another engine."""
        self._samples.clear()
        self.failure = None

    def add(self, told: MetricsSample | Failure) -> None:
        """Add a sample, or a failure, which lasts until the next sample."""
        if isinstance(told, Failure):
            self.failure = told
            return
        self.failure = None
        self._samples.append(told)

    @property
    def newest(self) -> EngineMetrics | None:
        return self._samples[-1].metrics if self._samples else None

    @property
    def speed(self) -> float | None:
        """Tokens per second between the last two samples; None before there are two."""
        return _speed(self._samples[-2], self._samples[-1]) if len(self._samples) > 1 else None

    def speeds(self, columns: int) -> list[float]:
        """Return the tokens per second of the last five minutes, in `columns` equal parts, the newest last."""
        found = [0.0] * columns
        end = self._samples[-1].at if self._samples else 0.0
        for before, after in pairwise(self._samples):
            place = columns - 1 - int((end - after.at) / _SPAN_S * columns)
            if 0 <= place < columns:
                found[place] = max(found[place], _speed(before, after) or 0.0)
        return found


def _speed(before: MetricsSample, after: MetricsSample) -> float | None:
    """Return the tokens per second between two samples; None: not counted, or the counters were reset."""
    first, last, seconds = _generated(before.metrics), _generated(after.metrics), after.at - before.at
    return None if first is None or last is None or last < first or seconds <= 0 else (last - first) / seconds


def _generated(metrics: EngineMetrics) -> int | None:
    counts = [rank.generated_tokens for rank in metrics.ranks if rank.generated_tokens is not None]
    return sum(counts) if counts else None
