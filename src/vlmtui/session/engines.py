"""The engines of the app: the one that answers, and those that stay loaded beside it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from enum import StrEnum
from functools import partial
from itertools import pairwise

from vlmtui.domain.engine import (
    REMOTE_BACKEND,
    EngineInfo,
    EngineReady,
    EngineStatus,
    LoadFailed,
    LoadProgress,
    LoadStage,
)
from vlmtui.domain.failure import Failure
from vlmtui.domain.metrics import EngineMetrics, MetricsSample
from vlmtui.engine.interface import Engine, EngineHost
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError
from vlmtui.log_ring import LogRing
from vlmtui.registry.match import Model

_PINGS_PER_HANG = 6
_LONGEST_ANSWER_S = 6.0
"""Longest that one ping waits for its answer, as it counts: this process itself may have been suspended."""

OnSilence = Callable[[VlmtuiError | None], None]
"""Called with an error when an engine has been silent for too long, and with None when it answers again."""


class HealthMonitor:
    """Pings an engine's worker now and then, and asks it whether the engine shows signs of life."""

    def __init__(self, hang_s: float, *, ping_every_s: float | None = None) -> None:
        """`hang_s`: seconds of silence after which an engine counts as hung; 0: never. `ping_every_s`: six times in
        these seconds, if it is None, so that an idle app seldom wakes."""
        self._hang_s = hang_s
        self._ping_every_s = hang_s / _PINGS_PER_HANG if ping_every_s is None else ping_every_s

    async def watch(self, engine: Engine, on_silence: OnSilence) -> VlmtuiError | None:
        """Wait for the engine's end, and return its cause as `Engine.closed` does."""
        closed = asyncio.ensure_future(engine.closed())
        try:
            if self._hang_s > 0:
                await self._listen(engine, closed, on_silence)
            return await closed
        finally:
            closed.cancel()

    async def _listen(self, engine: Engine, closed: asyncio.Future[VlmtuiError | None], on_silence: OnSilence) -> None:
        deaf_s = silent_s = asked_s = 0.0
        hangs = False
        while not (await asyncio.wait([closed], timeout=self._ping_every_s))[0]:
            began = time.monotonic()
            asked_s += self._ping_every_s
            try:
                await engine.ping()
                deaf_s = 0.0
                if asked_s >= self._hang_s / 3:
                    silent_s, asked_s = (await engine.status()).engine_silent_s, 0.0
            except VlmtuiError:
                deaf_s += self._ping_every_s + min(time.monotonic() - began, _LONGEST_ANSWER_S)
            longest = max(deaf_s, silent_s)
            if (longest >= self._hang_s) is not hangs and not closed.done():
                hangs = not hangs
                on_silence(_silent(engine, longest) if hangs else None)


def _silent(engine: Engine, seconds: float) -> VlmtuiError:
    return VlmtuiError(
        ErrorKind.ENGINE_DIED,
        f"The engine of {engine.spec.name} has not answered for {seconds:.0f} s.",
        hint="It may be stuck. The partial answer stays.",
        remedy=Remedy.RESTART_ENGINE,
    )


class EnginesBeside:
    """Models and their engines, in the order in which they were left. One that goes away by itself is forgotten."""

    def __init__(self, on_gone: Callable[[], None]) -> None:
        """`on_gone` is called after an engine was forgotten because it went away."""
        self._on_gone = on_gone
        self._found: list[tuple[Model, Engine]] = []
        self._watches: dict[int, asyncio.Task[None]] = {}
        """By the `id` of the engine."""

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(model for model, _ in self._found)

    def add(self, model: Model, engine: Engine) -> None:
        self._found.append((model, engine))
        self._watches[id(engine)] = asyncio.ensure_future(self._watch(engine))

    def get(self, model: Model) -> Engine | None:
        return next((engine for other, engine in self._found if other.spec == model.spec), None)

    def take(self, model: Model) -> Engine | None:
        """Return the engine with this model and forget it; None if there is none."""
        engine = self.get(model)
        self._forget([engine] if engine is not None else [])
        return engine

    def take_local(self) -> list[Engine]:
        """Return the engines that take memory of this machine, and forget them."""
        return self._forget([engine for model, engine in self._found if not is_remote(model)])

    def take_all(self) -> list[Engine]:
        return self._forget([engine for _, engine in self._found])

    def _forget(self, engines: list[Engine]) -> list[Engine]:
        for engine in engines:
            self._watches.pop(id(engine)).cancel()
        self._found = [one for one in self._found if one[1] not in engines]
        return engines

    async def _watch(self, engine: Engine) -> None:
        await engine.closed()
        del self._watches[id(engine)]
        self._found = [one for one in self._found if one[1] is not engine]
        self._on_gone()
        await engine.close()


def names_of(model: Model) -> tuple[str, ...]:
    """What an engine that is loaded is called: `qwen at box`, `box`; `shapes`."""
    name = model.spec.name
    return (name, name.rpartition(" at ")[2]) if is_remote(model) else (name,)


def is_remote(model: Model) -> bool:
    """Whether it takes no memory of this machine."""
    return model.spec.backend == REMOTE_BACKEND


async def release(engine: Engine, *, hung: bool) -> None:
    """Stop an engine, unless others use it and it does not hang: then only disconnect."""
    shared = False
    if not hung:
        with suppress(VlmtuiError):
            shared = (await engine.status()).clients > 1
    await (engine.close() if shared else engine.shutdown())


_log = logging.getLogger(__name__)

LOG_LINES = 5000
"""Log lines kept in memory; the worker's log file has all of them."""


class EngineState(StrEnum):
    """The engine's lifecycle state."""

    NONE = "none"
    LOADING = "loading"
    READY = "ready"
    HUNG = "hung"
    """Running but not answering; it may recover."""
    DEAD = "dead"


class EngineController:
    """Holds the one engine of the app. `on_change` is called after every change, in the event loop."""

    on_ready: Callable[[Model], None] = staticmethod(lambda model: None)
    """Called when a model can be asked, before `on_change`."""

    def __init__(
        self,
        host: EngineHost,
        *,
        keep_alive_s: float | None,
        on_change: Callable[[], None],
        hang_s: float = 30.0,
        restarts: int = 1,
        ping_every_s: float | None = None,
        forget_death_s: float = 600.0,
    ) -> None:
        """`hang_s`: seconds of silence after which an engine is HUNG; 0: never. `restarts`: automatic restarts in a
        row after the engine died by itself. `forget_death_s`: seconds after which a death no longer counts."""
        self._host = host
        self._keep_alive_s = keep_alive_s
        self._on_change = on_change
        self._restarts = restarts
        self._forget_death_s = forget_death_s
        self._health = HealthMonitor(hang_s, ping_every_s=ping_every_s)
        self._died_at = 0.0
        self._attempt = 0
        self._opening: asyncio.Task[Engine] | None = None
        self._endings: list[asyncio.Task[None]] = []
        """Engines that are being stopped."""
        self._beside = EnginesBeside(on_change)
        self._kept: Engine | None = None
        """The engine of `former`, while it stays loaded beside the one being loaded."""
        self.former: Model | None = None
        """The previous model, until this one has loaded: `go_back` returns to it."""
        self.on_death: Callable[[VlmtuiError, bool], None] = lambda error, loads_again: None
        """Called when the loaded engine has died by itself; the flag says whether it is being restarted."""
        self.state = EngineState.NONE
        self.model: Model | None = None
        self.engine: Engine | None = None
        self.progress: LoadProgress | None = None
        self.began: dict[LoadStage, float] = {}
        """When each stage of the load began, in seconds since the start of the load."""
        self.error: VlmtuiError | None = None
        """Why the load failed or the engine died."""
        self.started_at = 0.0
        """`time.monotonic()` at the start of the load."""
        self.deaths = 0
        """Consecutive deaths of the engine since it last finished an answer, within ten minutes."""
        self.log = LogRing(LOG_LINES)
        """The newest lines of the engine's log; kept after its death."""

    @property
    def info(self) -> EngineInfo | None:
        return self.engine.info if self.engine else None

    @property
    def is_loaded(self) -> bool:
        """Whether an engine is loaded, answering or not."""
        return self.state in (EngineState.READY, EngineState.HUNG)

    def require_model(self) -> Model:
        """Return the loaded model. Raises VlmtuiError when there is none."""
        if self.model is None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "No model is loaded.", remedy=Remedy.PICK_MODEL)
        return self.model

    def require_engine(self) -> Engine:
        """Return the engine if it is ready. Raises VlmtuiError otherwise."""
        if self.state is EngineState.LOADING:
            raise self._still_loading()
        if self.state is not EngineState.READY or self.engine is None:
            raise self.error or engine_died()
        return self.engine

    def require_info(self) -> EngineInfo:
        """Return the facts of the loaded engine, answering or not. Raises VlmtuiError if there is none."""
        if self.state is EngineState.LOADING:
            raise self._still_loading()
        if self.info is None:
            raise self.error or engine_died()
        return self.info

    async def read_status(self) -> EngineStatus | None:
        """Return the engine's current status and costs; None without an engine, or if it does not answer."""
        try:
            return await self.engine.status() if self.engine is not None else None
        except VlmtuiError:
            return None

    @property
    def models(self) -> tuple[Model, ...]:
        """The current model, then those that stay loaded besides it."""
        return (*([self.model] if self.model is not None else []), *self._beside.models)

    def engine_of(self, model: Model) -> Engine | None:
        """Return the loaded engine with this model; None if there is none."""
        if self.model is not None and self.model.spec == model.spec:
            return self.engine if self.state is EngineState.READY else None
        return self._beside.get(model)

    @property
    def keeps_former(self) -> bool:
        """Whether the previous model is still loaded."""
        return self._kept is not None

    async def start(self, model: Model, *, keep_former: bool = False) -> None:
        """Load `model` and return once it is READY or DEAD. Run it in a task. `keep_former`: keep the loaded model
        until then, for `go_back`; otherwise stop first what takes memory of this machine."""
        if self._opening is not None:
            await self.abort()
        if (loaded := self._beside.take(model)) is not None:
            await self._change_to(model, loaded)
            return
        if not keep_former and not is_remote(model):
            for local in self._beside.take_local():
                self._endings.append(asyncio.ensure_future(release(local, hung=False)))
        self._attempt += 1
        attempt = self._attempt
        self._leave_current(model, keep_former=keep_former)
        self.model, self.error, self.progress = model, None, None
        self.began = {}
        self.started_at = time.monotonic()
        self.log.clear()
        self._set_state(EngineState.LOADING)
        await self._ended()
        if attempt != self._attempt:
            return
        engine = await self._open(model, attempt)
        if engine is None:
            return
        self.engine = engine
        self._on_change()
        async for event in engine.load():
            if attempt != self._attempt:
                return
            match event:
                case LoadProgress():
                    self.progress = event
                    self.began.setdefault(event.stage, event.elapsed_s)
                    self._on_change()
                case EngineReady():
                    self._end_former(beside=model)
                    self._set_state(EngineState.READY)
                case LoadFailed(failure=failure):
                    self._fail(failure.error())

    async def go_back(self) -> bool:
        """Return to the former model that `start` kept, and stop the one being loaded. False if none was kept. Run
        `watch` afterwards."""
        model, engine = self.former, self._kept
        if model is None or engine is None:
            return False
        self._kept = None
        await self.abort()
        self.model, self.engine, self.former = model, engine, None
        self.error = self.progress = None
        self.log.clear()
        self._set_state(EngineState.READY)
        return True

    async def open_beside(self, model: Model) -> Engine:
        """Load a model besides the current one, which stays. Raises VlmtuiError."""
        if (loaded := self.engine_of(model)) is not None:
            return loaded
        engine = await self._host.open(model.spec, client="app", keep_alive_s=self._keep_alive_s)
        async with AsyncExitStack() as unless_loaded:
            unless_loaded.push_async_callback(release, engine, hung=False)
            async for event in engine.load():
                if isinstance(event, LoadFailed):
                    raise event.failure.error()
            unless_loaded.pop_all()
        self._beside.add(model, engine)
        self._on_change()
        return engine

    async def make_room(self) -> None:
        """Stop what takes memory of this machine, the current engine included; return when it has ended. `return_to`
        loads the current model again."""
        for local in self._beside.take_local():
            self._endings.append(asyncio.ensure_future(release(local, hung=False)))
        if self.model is not None and not is_remote(self.model):
            await self.abort()
        await self._ended()

    async def return_to(self, model: Model) -> None:
        """Load the model again that `make_room` stopped, unless another one was chosen meanwhile. Run `watch`
        afterwards."""
        if self.state is EngineState.NONE and self.model is model:
            await self.start(model)

    async def follow_log(self, engine: Engine, on_line: Callable[[], None]) -> None:
        """Copy the engine's log into `self.log` until it ends, calling `on_line` after each line. Run it in a task."""
        async for line in engine.log():
            if engine is not self.engine:
                return
            self.log.append(line)
            on_line()

    async def watch(self) -> None:
        """Watch the loaded engine: report unexpected death or a hang, and restart it after a death. Run it in a task
        after READY."""
        while (engine := self.engine) is not None and self.is_loaded:
            error = await self._health.watch(engine, partial(self._silent, engine))
            if error is None or engine is not self.engine or not self.is_loaded or self.model is None:
                return
            self._count_death()
            self.on_death(error, self.deaths <= self._restarts)
            self._fail(error)
            if self.deaths > self._restarts:
                return
            attempt = self._attempt + 1
            await self.start(self.model)
            if attempt != self._attempt:
                return

    def answered(self) -> None:
        """Reset the death count after a finished answer."""
        self.deaths = 0

    async def abort(self) -> None:
        """Stop a load or the engine; return when all its processes have ended."""
        self._attempt += 1
        opening, self._opening = self._opening, None
        engine, self.engine = self.engine, None
        hung = self.state is EngineState.HUNG
        self._set_state(EngineState.NONE)
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                engine = opening.result()
        await self._ended()
        if engine is not None:
            await release(engine, hung=hung)

    async def leave(self) -> bool:
        """Release the engine at exit: a loading one is stopped, a ready one stays for its keep-alive time. True if
        one stays."""
        kept, self._kept = self._kept, None
        for engine in (*self._beside.take_all(), *([kept] if kept is not None else [])):
            await engine.close()
        await self._ended()
        if self.state is EngineState.READY and self.engine is not None:
            await self.engine.close()
            return self._keep_alive_s is None or self._keep_alive_s > 0
        await self.abort()
        return False

    async def _open(self, model: Model, attempt: int) -> Engine | None:
        """Open the engine; None if that failed, or if it is no longer wanted. Stores the task so that `abort` can
        wait for it."""
        opening = asyncio.ensure_future(self._host.open(model.spec, client="app", keep_alive_s=self._keep_alive_s))
        self._opening = opening
        try:
            await asyncio.wait([opening])
        except asyncio.CancelledError:
            opening.cancel()
            raise
        if attempt != self._attempt:
            return None
        self._opening = None
        try:
            return opening.result()
        except VlmtuiError as error:
            self._fail(error)
            return None

    def _leave_current(self, model: Model, *, keep_former: bool) -> None:
        """Keep the current engine for `go_back`, or start stopping it."""
        if self.model is None or self.model.spec == model.spec:
            self._end_current(keep_same=model)
            return
        if self.state is EngineState.READY:
            self.former = self.model
            if keep_former or is_remote(self.model):
                self._kept, self.engine = self.engine, None
        elif not keep_former:
            former = self.former
            self._end_former()
            self.former = former
        self._end_current(keep_same=model)

    def _end_former(self, *, beside: Model | None = None) -> None:
        """Stop keeping the former engine. It stays loaded `beside` a model where one of both takes no memory here."""
        kept, former = self._kept, self.former
        self._kept = self.former = None
        if kept is None or former is None:
            return
        if is_remote(former) or (beside is not None and is_remote(beside)):
            self._beside.add(former, kept)
        else:
            self._endings.append(asyncio.ensure_future(release(kept, hung=False)))

    async def _change_to(self, model: Model, engine: Engine) -> None:
        """Make an engine that is loaded the current one; the former one stays loaded."""
        self._attempt += 1
        self._leave_current(model, keep_former=True)
        self.model, self.engine, self.error, self.progress = model, engine, None, None
        self.log.clear()
        if self._kept is not None and self.former is not None:
            self._beside.add(self.former, self._kept)
        self._kept = self.former = None
        await self._ended()
        self._set_state(EngineState.READY)

    def _end_current(self, *, keep_same: Model) -> None:
        """Start stopping the current engine, in a task that nothing interrupts."""
        engine, self.engine = self.engine, None
        if engine is None:
            return
        stays = self.state is EngineState.READY and engine.spec == keep_same.spec
        ending = engine.close() if stays else release(engine, hung=self.state is EngineState.HUNG)
        self._endings.append(asyncio.ensure_future(ending))

    async def _ended(self) -> None:
        """Wait until the previous engines have stopped."""
        endings, self._endings = self._endings, []
        if endings:
            await asyncio.wait(endings)

    def _still_loading(self) -> VlmtuiError:
        name = self.model.spec.name if self.model is not None else "The model"
        stage = f" ({self.progress.stage.label.lower()})" if self.progress is not None else ""
        hint = "A message that you send now is queued."
        return VlmtuiError(ErrorKind.ENGINE_BUSY, f"{name} is still loading{stage}.", hint=hint)

    def _count_death(self) -> None:
        now = time.monotonic()
        if now - self._died_at > self._forget_death_s:
            self.deaths = 0
        self.deaths += 1
        self._died_at = now

    def _silent(self, engine: Engine, error: VlmtuiError | None) -> None:
        """Record that the engine hangs, or (None) answers again."""
        if engine is self.engine and self.is_loaded:
            self.error = error
            self._set_state(EngineState.READY if error is None else EngineState.HUNG)

    def _fail(self, error: VlmtuiError) -> None:
        _log.warning("engine: %s (%s)", error.message, error.detail)
        self.error = error
        self._set_state(EngineState.DEAD)

    def _set_state(self, state: EngineState) -> None:
        self.state = state
        if state is EngineState.READY and self.model is not None:
            self.on_ready(self.model)
        self._on_change()


def engine_died(detail: str = "") -> VlmtuiError:
    """Return the error for a turn without an engine."""
    message = "The engine is not running."
    return VlmtuiError(ErrorKind.ENGINE_DIED, message, detail=detail, remedy=Remedy.RESTART_ENGINE)


_SPAN_S = 300.0
"""Seconds that are looked back."""
_SAMPLES_MAX = 1000


class EngineMeter:
    """Collects samples, of one engine after another."""

    def __init__(self) -> None:
        self._samples: deque[MetricsSample] = deque(maxlen=_SAMPLES_MAX)
        self.failure: Failure | None = None
        """Why there is no newer sample."""

    def clear(self) -> None:
        """Start over for another engine."""
        self._samples.clear()
        self.failure = None

    def add(self, told: MetricsSample | Failure) -> None:
        """Add a sample. A failure ends with the next one."""
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
        """Tokens a second between the last two samples; None before there are two."""
        return _speed(self._samples[-2], self._samples[-1]) if len(self._samples) > 1 else None

    def speeds(self, columns: int) -> list[float]:
        """Return the tokens a second of the last five minutes, in as many equal parts; the newest is the last."""
        values = [(after.at, _speed(before, after) or 0.0) for before, after in pairwise(self._samples)]
        return self._parts(columns, values)

    def _parts(self, columns: int, values: Sequence[tuple[float, float]]) -> list[float]:
        """The largest value of each part; 0 where there is none."""
        found = [0.0] * columns
        end = self._samples[-1].at if self._samples else 0.0
        for at, value in values:
            place = columns - 1 - int((end - at) / _SPAN_S * columns)
            if 0 <= place < columns:
                found[place] = max(found[place], value)
        return found


def _speed(before: MetricsSample, after: MetricsSample) -> float | None:
    """Tokens a second between two samples; None where the engine does not count them, or restarted its counters."""
    first, last, seconds = _generated(before.metrics), _generated(after.metrics), after.at - before.at
    return None if first is None or last is None or last < first or seconds <= 0 else (last - first) / seconds


def _generated(metrics: EngineMetrics) -> int | None:
    counts = [rank.generated_tokens for rank in metrics.ranks if rank.generated_tokens is not None]
    return sum(counts) if counts else None
