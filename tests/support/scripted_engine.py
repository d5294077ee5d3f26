"""An engine with scripted answers, which implements `vlmtui.engine.interface`.

    pause = asyncio.Event()
    host = ScriptedHost(answers=[["A red ", Hold(pause), "circle."], ["Half ", Die()], [Fail(some_failure)]])
    engine = await host.open(spec, client="test", keep_alive_s=None)

Each request gets the next answer; after the last one, `DEFAULT_ANSWER`. Nothing sleeps: an answer waits only for the
events of `Hold`, and for one turn of the event loop between two pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from tests.support.scripted_tokens import SPECIAL_TOKENS, cut, scripted_logprob, token_id, vocabulary_of, with_media
from vlmtui.domain.capabilities import ALL
from vlmtui.domain.conversation import (
    Attachment,
    ChatPrompt,
    Media,
    MessagesPrompt,
    Modality,
    Prompt,
    RawPrompt,
    Text,
    all_attachments,
    attachments_of,
)
from vlmtui.domain.engine import (
    Activity,
    EngineInfo,
    EngineReady,
    EngineStatus,
    LoadEvent,
    LoadFailed,
    LoadProgress,
    LoadSpec,
    LoadStage,
    can_serve,
)
from vlmtui.domain.generation import (
    Cancelled,
    Delta,
    EngineEvent,
    Failed,
    Failure,
    Finished,
    FinishReason,
    GenerateRequest,
    PromptReady,
    RenderRequest,
    Request,
    ScoreRequest,
    Timings,
    TokenLogprob,
    Usage,
    usage_of,
)
from vlmtui.domain.metrics import MetricsSample
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Leftover, WhenChanged
from vlmtui.errors import ErrorKind, VlmtuiError


@dataclass(frozen=True)
class Hold:
    """Wait until the event is set."""

    until: asyncio.Event


@dataclass(frozen=True)
class Say:
    """A delta of several tokens; a plain string is a delta of one token."""

    text: str
    tokens: int = 1
    top: Mapping[str, float] | None = None
    """Alternatives at each token's position, by text, for requests with log-probabilities."""


@dataclass(frozen=True)
class Fail:
    """The request fails; the engine lives on."""

    failure: Failure


@dataclass(frozen=True)
class Die:
    """The engine dies at this step."""

    message: str = "The engine was killed."


@dataclass(frozen=True)
class End:
    """The end of an answer; default: `stop`."""

    finish_reason: FinishReason = "stop"
    stop: str | None = "<|im_end|>"
    timings: Timings = field(default_factory=lambda: Timings(ttft_s=0.05, total_s=0.25))


Step = str | Say | Hold | Fail | Die | End
LoadStep = LoadProgress | Hold | LoadFailed | Die

DEFAULT_ANSWER: tuple[Step, ...] = ("a ", "red ", "circle ", "at ", "the ", "left")
DEFAULT_LOAD: tuple[LoadStep, ...] = tuple(
    LoadProgress(stage=stage, elapsed_s=float(number), fraction=1.0 if stage is LoadStage.WEIGHTS else None)
    for number, stage in enumerate(LoadStage)
)
DEFAULT_LIMITS: dict[Modality, int] = {"image": 8, "video": 2}
DEFAULT_SPEC = LoadSpec(model="/models/shapes", name="shapes", family="shapes")


def scripted_info(spec: LoadSpec = DEFAULT_SPEC) -> EngineInfo:
    """Return the EngineInfo of a scripted engine."""
    return EngineInfo(
        spec=spec,
        architecture="Qwen2VLForConditionalGeneration",
        engine="vLLM",
        engine_version="0.32.0",
        device="cpu",
        dtype=str(spec.engine_args.get("dtype", "float32")),
        max_model_len=4096,
        has_chat_template=True,
        limits=dict(DEFAULT_LIMITS),
        load_s=1.5,
        engine_args={"max_model_len": 4096},
        chat_template="{% for message in messages %}{{ message.role }}: {{ message.content }}{% endfor %}",
        template_variables={"thinking": (True, False)},
        special_tokens=SPECIAL_TOKENS,
        stop_tokens=("<|im_end|>", "<|endoftext|>"),
        capabilities=ALL,
    )


def request_media(request: Request) -> tuple[Attachment, ...]:
    """Return a request's attachments."""
    return attachments_of(request.prompt)


@dataclass
class _Request:
    request: Request
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    tokens: int = 0


@dataclass
class KeptAnswer:
    """A kept request: its events so far, its remaining steps, and its outcome if it has ended."""

    request: GenerateRequest
    said: str = ""
    tokens: int = 0
    left: list[Step] = field(default_factory=list)
    outcome: Finished | Failed | Cancelled | None = None

    def events(self) -> list[EngineEvent]:
        """Return the events so far, with all text in one delta."""
        said = [scripted_delta(self.request, Say(self.said, self.tokens))] if self.said else []
        ended = [self.outcome] if self.outcome else []
        return [scripted_prompt(self.request), *said, *ended]


class ScriptedEngine:
    """One connection to a scripted engine. `requests` lists the requests received, `cancelled` the ids of cancelled
    ones; `keep_alive_s` is the latest value."""

    def __init__(
        self,
        spec: LoadSpec = DEFAULT_SPEC,
        *,
        answers: Sequence[Sequence[Step]] = (),
        load: Sequence[LoadStep] = DEFAULT_LOAD,
        info: EngineInfo | None = None,
    ) -> None:
        self.spec = spec
        self.info: EngineInfo | None = None
        self.attached = False
        self.answers = [list(answer) for answer in answers]
        self.load_steps = list(load)
        self.requests: list[GenerateRequest] = []
        self.renders: list[RenderRequest] = []
        """Requests that only render a prompt."""
        self.scored: list[ScoreRequest] = []
        """Requests to score an answer."""
        self.score: Callable[[ScoreRequest], float] = lambda request: -0.1 if request_media(request) else -3.0
        """Returns the log-probability of every token of a scored answer."""
        self.render_failure: Failure | None = None
        self.cancelled: list[str] = []
        self.log_lines = ["loading", "ready"]
        self.keep_alive_s: float | None = 300.0
        self.hung = False
        """If True, `status` gets no answer."""
        self.was_shut_down = False
        self.clients = 1
        """The number of clients in its status."""
        self.kept: dict[str, KeptAnswer] = {}
        """Requests without a client, by id. A test may add some for `resume`."""
        self.forgotten: list[str] = []
        self.silent_s = 0.0
        """Seconds without a sign of life from its engine, for its status."""
        self.gpu_bytes: int | None = None
        self.changed: tuple[str, ...] = ()
        """The files that have changed since its load, for its status."""
        self._loaded_info = info or scripted_info(spec)
        self._running: dict[str, _Request] = {}
        self._gone = asyncio.Event()
        self._cause: VlmtuiError | None = None
        self._log_grew = asyncio.Event()
        self.metrics_told: list[MetricsSample | Failure] = []
        self._metrics_grew = asyncio.Event()

    @property
    def alive(self) -> bool:
        return not self._gone.is_set()

    def die(self, message: str = "The engine was killed.") -> None:
        """Act as after `kill -9`: every request fails, the connection is closed."""
        self.leave(VlmtuiError(ErrorKind.ENGINE_DIED, message, hint="Start the engine again."))

    def add_log(self, line: str) -> None:
        """Add a line to the engine's log."""
        self.log_lines.append(line)
        self._log_grew.set()

    async def load(self) -> AsyncIterator[LoadEvent]:
        if self.info is None:
            for step in self.load_steps:
                await asyncio.sleep(0)
                match step:
                    case Hold(event):
                        await _first(event.wait, self._gone.wait)
                    case Die(message):
                        self.die(message)
                    case LoadFailed(failure):
                        self.leave(failure.error())
                        yield step
                        return
                    case LoadProgress():
                        yield step
                if not self.alive:
                    yield LoadFailed(Failure.of(self._cause or _died("The engine was shut down.")))
                    return
            self.info = self._loaded_info
        yield EngineReady(self.info)

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        match request:
            case RenderRequest():
                self.renders.append(request)
            case ScoreRequest():
                self.scored.append(request)
            case GenerateRequest():
                self.requests.append(request)
        state = self._running[request.request_id] = _Request(request)
        try:
            if not self.alive:
                yield self._failed(request.request_id)
                return
            if isinstance(request, RenderRequest) and self.render_failure is not None:
                yield Failed(request_id=request.request_id, failure=self.render_failure)
                return
            yield scripted_prompt(request)
            if isinstance(request, RenderRequest):
                yield Finished(request_id=request.request_id, finish_reason="stop", usage=Usage(), timings=Timings())
                return
            if isinstance(request, ScoreRequest):
                told = tuple(TokenLogprob(token_id=token, logprob=self.score(request)) for token in request.tokens)
                yield Delta(
                    request_id=request.request_id, text="", tokens=len(told), token_ids=request.tokens, logprobs=told
                )
                yield Finished(request_id=request.request_id, finish_reason="stop", usage=Usage(), timings=Timings())
                return
            for step in [*(self.answers.pop(0) if self.answers else DEFAULT_ANSWER), End()]:
                event = await self._event(step, state)
                if event is not None:
                    yield event
                if isinstance(event, Finished | Failed | Cancelled):
                    return
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.append(request.request_id)
            raise
        finally:
            del self._running[request.request_id]

    async def resume(self, request_id: str) -> AsyncGenerator[EngineEvent, None]:
        kept = self.kept.get(request_id)
        if not self.alive or kept is None:
            yield self._failed(request_id) if not self.alive else not_kept(request_id)
            return
        for told in kept.events():
            yield told
        if kept.outcome is not None:
            return
        state = self._running[request_id] = _Request(kept.request, tokens=kept.tokens)
        try:
            for step in [*kept.left, End()]:
                made = await self._event(step, state)
                if made is None:
                    continue
                if isinstance(made, Delta):
                    kept.said, kept.tokens = kept.said + made.text, state.tokens
                elif isinstance(made, Finished | Failed | Cancelled):
                    kept.outcome = made
                yield made
                if kept.outcome is not None:
                    return
        finally:
            del self._running[request_id]

    async def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)
        self.kept.pop(request_id, None)

    async def cancel(self, request_id: str) -> None:
        if request_id in self._running:
            self.cancelled.append(request_id)
            self._running[request_id].cancelled.set()

    async def status(self) -> EngineStatus:
        self._answer_or_die()
        return self.describe()

    def describe(self) -> EngineStatus:
        """Return the status, even if `status` gets no answer."""
        state = Activity.BUSY if self._running else Activity.IDLE
        return EngineStatus(
            spec=self.spec,
            state=state if self.info else Activity.LOADING,
            clients=self.clients,
            running=len(self._running),
            idle_s=0.0,
            keep_alive_s=self.keep_alive_s,
            rss_bytes=700 * 2**20,
            gpu_bytes=self.gpu_bytes,
            kept=tuple(self.kept),
            engine_silent_s=self.silent_s,
            changed=self.changed,
        )

    async def log(self, lines: int = 200) -> AsyncGenerator[str, None]:
        shown = max(0, len(self.log_lines) - lines)
        while True:
            while shown < len(self.log_lines):
                shown += 1
                yield self.log_lines[shown - 1]
            self._log_grew.clear()
            await _first(self._log_grew.wait, self._gone.wait)
            if not self.alive and shown == len(self.log_lines):
                return

    def add_metrics(self, told: MetricsSample | Failure) -> None:
        """Report these metrics, or the reason why there are none now."""
        self.metrics_told.append(told)
        self._metrics_grew.set()

    async def metrics(self) -> AsyncGenerator[MetricsSample | Failure, None]:
        shown = 0
        while True:
            while shown < len(self.metrics_told):
                shown += 1
                yield self.metrics_told[shown - 1]
            self._metrics_grew.clear()
            await _first(self._metrics_grew.wait, self._gone.wait)
            if not self.alive:
                raise self._cause or VlmtuiError(ErrorKind.ENGINE_DIED, "The engine was closed.")

    async def closed(self) -> VlmtuiError | None:
        await self._gone.wait()
        return self._cause

    async def close(self) -> None:
        self.leave(None)

    async def shutdown(self) -> None:
        self.was_shut_down = True
        self.leave(None)

    async def _event(self, step: Step, state: _Request) -> EngineEvent | None:
        request_id = state.request.request_id
        await asyncio.sleep(0)
        match step:
            case Hold(event):
                await _first(event.wait, state.cancelled.wait, self._gone.wait)
            case Die(message):
                self.die(message)
        if not self.alive:
            return self._failed(request_id)
        if state.cancelled.is_set():
            return Cancelled(request_id=request_id, usage=self._usage(state), timings=Timings(total_s=0.1))
        match step:
            case str():
                return self._delta(Say(step), state)
            case Say():
                return self._delta(step, state)
            case Fail(failure):
                return Failed(request_id=request_id, failure=failure)
            case End(finish_reason=reason, stop=stop, timings=timings):
                usage = self._usage(state)
                return Finished(
                    request_id=request_id,
                    finish_reason=reason,
                    usage=usage,
                    timings=timings,
                    stop=stop if reason == "stop" else None,
                )
        return None

    def _delta(self, step: Say, state: _Request) -> Delta:
        state.tokens += step.tokens
        return scripted_delta(state.request, step)

    def _usage(self, state: _Request) -> Usage:
        return usage_of(scripted_prompt(state.request), state.tokens)

    def _failed(self, request_id: str) -> Failed:
        cause = self._cause or _died("The connection to the engine is closed.")
        return Failed(request_id=request_id, failure=Failure.of(cause))

    def _answer_or_die(self) -> None:
        if self.hung:
            raise _died("The engine does not answer.")
        if not self.alive:
            raise self._cause or _died("The connection to the engine is closed.")

    def leave(self, cause: VlmtuiError | None) -> None:
        """Close the connection for this cause; None: we closed it."""
        if not self._gone.is_set():
            self._cause = cause
            self._gone.set()


class ScriptedHost:
    """Opens scripted engines: the living one for a spec, or a new one.

    `engines` lists all engines that it started, oldest first; `opened` the (spec, client, keep-alive) of each call. If
    `refuse` is set, `open` raises it. Kept answers: `kept` are given to the next new engine (until then `holder`
    returns the spec `holding`), `written` are those that an ended worker left on disk.
    """

    def __init__(
        self,
        *,
        answers: Sequence[Sequence[Step]] = (),
        load: Sequence[LoadStep] = DEFAULT_LOAD,
        info: EngineInfo | None = None,
    ) -> None:
        self.answers = [list(answer) for answer in answers]
        self.load_steps = list(load)
        self.info = info
        self.engines: list[ScriptedEngine] = []
        self.opened: list[tuple[LoadSpec, str, float | None]] = []
        self.refuse: VlmtuiError | None = None
        self.kept: dict[str, KeptAnswer] = {}
        self.holding: LoadSpec = DEFAULT_SPEC
        self.written: dict[str, list[EngineEvent]] = {}
        self.left_over: list[Leftover] = []
        self.ended: list[str] = []
        """The ids of the leftovers that were ended."""
        self.ends_when_opened = False
        """If True, the engine with the kept answers ends just before it is opened, and writes them to the disk."""

    @property
    def engine(self) -> ScriptedEngine:
        """The newest engine."""
        return self.engines[-1]

    async def open(
        self,
        spec: LoadSpec,
        *,
        client: str,
        keep_alive_s: float | None,
        when_changed: WhenChanged = WhenChanged.RELOAD,
        is_exact: bool = False,
    ) -> ScriptedEngine:
        self.opened.append((spec, client, keep_alive_s))
        is_kept = when_changed is WhenChanged.KEEP
        if self.refuse is not None and not (is_kept and self.refuse.kind is ErrorKind.MODEL_CHANGED):
            raise self.refuse
        if self.ends_when_opened:
            self.written, self.kept = {name: answer.events() for name, answer in self.kept.items()}, {}
        for engine in self.engines:
            if engine.alive and (engine.spec == spec or (not is_exact and can_serve(engine.spec, spec))):
                engine.attached = True
                return engine
        engine = ScriptedEngine(spec, answers=self.answers, load=self.load_steps, info=self.info)
        engine.answers = self.answers  # one queue for all engines, so that a restart goes on where the last one died
        engine.keep_alive_s = keep_alive_s
        engine.kept, self.kept = self.kept, {}
        engine.changed = ("config.json",) if is_kept and self.refuse is not None else ()
        self.engines.append(engine)
        return engine

    async def running(self) -> list[EngineStatus]:
        return [engine.describe() for engine in self.engines if engine.alive]

    async def holder(self, request_id: str) -> LoadSpec | None:
        for engine in self.engines:
            if engine.alive and request_id in engine.kept:
                return engine.spec
        return self.holding if request_id in self.kept else None

    async def unfetched_answer(self, request_id: str) -> list[EngineEvent] | None:
        return self.written.get(request_id)

    async def unfetched_answers(self) -> list[str]:
        return list(self.written)

    async def forget(self, request_id: str) -> None:
        self.written.pop(request_id, None)

    async def leftovers(self) -> list[Leftover]:
        return list(self.left_over)

    async def end(self, leftover: Leftover) -> None:
        self.ended.append(leftover.id)
        self.left_over = [one for one in self.left_over if one != leftover]


def not_kept(request_id: str) -> Failed:
    """Return the reply of `resume` to an unknown request."""
    failure = Failure(kind=ErrorKind.NOT_KEPT, message="The worker does not hold this answer.")
    return Failed(request_id=request_id, failure=failure)


def scripted_prompt(request: Request) -> PromptReady:
    """Return the prompt that a scripted engine reports: the turns as plain text, and `IMAGE_TOKENS` times `<image>` for
    every attachment."""
    text = prompt_text(request.prompt)
    match request.prompt:
        case ChatPrompt(turns=turns):
            attachments = all_attachments(turns)
        case RawPrompt(attachments=attachments) | MessagesPrompt(attachments=attachments):
            pass
    tokens, media = with_media(text, attachments)
    return PromptReady(
        request_id=request.request_id,
        prompt="".join(tokens),
        token_ids=tuple(map(token_id, tokens)),
        media=media,
        vocabulary=vocabulary_of(tokens),
        used=scripted_sampling(request),
    )


def scripted_sampling(request: Request) -> Sampling | None:
    """Return the sampling that a scripted engine reports: unset values are filled with a model's defaults; None for
    greedy requests."""
    asked = request.sampling
    if asked.temperature == 0:
        return None
    defaults = Sampling(temperature=0.6, top_p=0.9, top_k=20, min_p=0.0, max_tokens=4000, seed=12345)
    return msgspec.structs.replace(defaults, **asked.numbers())


def scripted_delta(request: Request, step: Say) -> Delta:
    """Return the step's text as tokens, with log-probabilities if the request asks for them."""
    tokens = cut(step.text, step.tokens)
    vocabulary = vocabulary_of(tokens)
    logprobs = []
    alternatives = None if isinstance(request, RenderRequest) else request.logprobs
    for token in tokens if alternatives is not None else ():
        one, entries = scripted_logprob(token, alternatives or 0, step.top)
        logprobs.append(one)
        vocabulary |= entries
    return Delta(
        request_id=request.request_id,
        text=step.text,
        tokens=step.tokens,
        token_ids=tuple(map(token_id, tokens)),
        vocabulary=vocabulary,
        logprobs=tuple(logprobs),
    )


def prompt_text(prompt: Prompt) -> str:
    """Return a raw prompt's text; chat turns as `role: text` lines."""
    match prompt:
        case RawPrompt(text=text):
            return text
        case MessagesPrompt(messages=messages):
            return "\n".join(f"{message.role}: {message.content}" for message in messages)
        case ChatPrompt(turns=turns):
            return "\n".join(f"{turn.role}: {''.join(_part(part) for part in turn.parts)}" for turn in turns)


def _part(part: Text | Media) -> str:
    match part:
        case Text(text):
            return text
        case Media(attachment):
            return f"<{attachment.modality}>"


def _died(message: str) -> VlmtuiError:
    return VlmtuiError(ErrorKind.ENGINE_DIED, message, hint="Start the engine again.")


async def _first(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return when the first of them completes."""
    tasks = [asyncio.ensure_future(wait()) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
