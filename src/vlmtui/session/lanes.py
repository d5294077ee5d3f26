"""Lanes: one message sent in several ways at once, each with its own prompt, sampling, engine and answer.

Scores say how likely one lane's answer is under the other lanes' prompts, as a ratio: `0.02×` means that the whole
answer, with the token that ends it, is 50 times less likely. They ignore temperature and other sampling parameters."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from vlmtui.config.settings import EngineSettings
from vlmtui.config.trust import TrustStore
from vlmtui.domain.capabilities import lack
from vlmtui.domain.conversation import Attachment, Prompt, RawPrompt, Turn, attachments_of
from vlmtui.domain.dials import no_dials
from vlmtui.domain.engine import DEFAULT_BACKEND, TRANSFORMERS_BACKEND, EngineInfo, read_backend
from vlmtui.domain.generation import (
    Cancelled,
    Failed,
    Failure,
    Finished,
    GenerateRequest,
    PromptReady,
    ScoreRequest,
    Timings,
    Usage,
)
from vlmtui.domain.sampling import PARAMETERS, Number, Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError, bad_input
from vlmtui.inspection.build import comparison_of, fingerprint_of, side_of, with_paths
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve, with_engine_args
from vlmtui.registry.routes import model_closed
from vlmtui.registry.schema import Family
from vlmtui.session.adapters import recorded_folder
from vlmtui.session.engines import AppEngines, is_remote, names_of
from vlmtui.session.generation import (
    Answer,
    PromptMode,
    broken_off,
    make_request,
    new_request_id,
    request_for,
    run_turn,
)
from vlmtui.session.models import LoadChecks
from vlmtui.text import nats, one_line

_SEEDS = 2**31
OnChange = Callable[["Lane"], None]
"""Called after each event of a lane's answer, and when it ends."""
_NOISE = 1e-3
"""Smaller differences of log-probabilities come from the order of sums in a batch."""
MATTERS = 0.5
"""Below this likelihood ratio an answer counts as less likely, above its inverse as more likely."""
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
HERE = "here"
"""The name of the app's own engine and model."""
EXAMPLES = (
    "Write here, vllm, transformers, vllm==X.Y.Z, a model, transformers:MODEL, a server's address or its name in "
    "config.toml; engine arguments may follow: here dtype=bfloat16."
)
_BACKENDS = (DEFAULT_BACKEND, TRANSFORMERS_BACKEND)


class LaneSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A lane's request, without an engine."""

    request: GenerateRequest | ScoreRequest
    sampling: Sampling
    """The user's sampling, without the family's stop tokens that the request adds."""
    mode: PromptMode = "chat"
    label: str = ""
    """`seed 2`, for people; empty for a single lane."""
    turns: tuple[Turn, ...] = ()
    """The turns to send, the user's message last; empty if unknown."""

    @property
    def turn(self) -> Turn | None:
        """The user's message, if known."""
        return self.turns[-1] if self.turns else None


class InFlightRequest(msgspec.Struct, frozen=True):
    """A request that the conversation itself sends. A lane shows its answer; the other lanes start when this request is
    being sent."""

    request: GenerateRequest
    answer: Answer
    sent: Callable[[], Awaitable[object]]
    """Returns when the turn is stored and its request is being sent."""
    over: Callable[[], Awaitable[object]]
    """Returns when the answer has its outcome."""


@dataclass(eq=False, slots=True)
class Lane:
    """A request, its engine, and its answer."""

    spec: LaneSpec
    engine: Engine | None
    """None until `answer_in_turns` has loaded it."""
    in_flight: InFlightRequest | None = None
    answer: Answer = field(init=False)
    waits_for: str = ""
    """What the request waits for, for people; empty: nothing."""

    def __post_init__(self) -> None:
        self.answer = self.in_flight.answer if self.in_flight else Answer(self.spec.request.request_id)

    @property
    def request(self) -> GenerateRequest:
        """The request for an answer. Only for a lane that generates an answer, not for a scoring lane."""
        assert isinstance(self.spec.request, GenerateRequest)
        return self.spec.request

    @property
    def info(self) -> EngineInfo | None:
        """The facts of the lane's engine; None until the engine is loaded."""
        return self.engine.info if self.engine is not None else None

    @property
    def is_running(self) -> bool:
        return self.answer.outcome is None

    @property
    def has_failed(self) -> bool:
        """True if the lane's answer failed or was stopped."""
        return not self.is_running and not isinstance(self.answer.outcome, Finished)

    async def stop(self) -> None:
        """Ask the engine to stop the answer; keep the partial answer. A lane that waits for its engine is cancelled."""
        if self.is_running and self.engine is None:
            not_sent = Cancelled(request_id=self.spec.request.request_id, usage=Usage(), timings=Timings())
            self.answer.take(not_sent)
        elif self.is_running and self.engine is not None:
            await self.engine.cancel(self.answer.request_id)


class Lanes(tuple[Lane, ...]):
    """The lanes of one message, sent together."""

    @property
    def is_running(self) -> bool:
        return any(lane.is_running for lane in self)

    async def run(self, on_change: OnChange = lambda lane: None) -> None:
        """Run all lanes that have an engine until they end. Cancelling the caller cancels the requests."""
        ready = [(lane, lane.engine) for lane in self if lane.engine is not None and lane.is_running]
        runs = (self._run(lane, engine, on_change) for lane, engine in ready)
        results = await asyncio.gather(*runs, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def stop(self) -> None:
        """Stop every running answer; keep the partial answers."""
        for lane in self:
            await lane.stop()

    def document(self, *, first: int = 0) -> Comparison:
        """Return requests and answers as a document, without the attachments' bytes. Slow for long prompts.

        first: the lane that the others are compared with."""
        order = [self[first], *(lane for at, lane in enumerate(self) if at != first)]
        info = next((lane.info for lane in order if lane.info is not None), None)
        if info is None:
            raise VlmtuiError(ErrorKind.INTERNAL, "No request was sent: the engine was not ready.")
        request = order[0].spec.request
        sides = [_side(lane, own, info, request.sampling) for lane, own in zip(order, _own_values(order), strict=True)]
        return comparison_of(info, request.sampling, self.attachments(first), sides)

    def attachments(self, first: int = 0) -> tuple[Attachment, ...]:
        """Return all attachments of all lanes: those of lane `first` in placeholder order, then the others."""
        own = attachments_of(self[first].spec.request.prompt)
        known = {item.sha256 for item in own}
        others = {item.sha256: item for lane in self for item in attachments_of(lane.spec.request.prompt)}
        return (*own, *(item for sha256, item in others.items() if sha256 not in known))

    async def _run(self, lane: Lane, engine: Engine, on_change: OnChange) -> None:
        if lane.in_flight is not None:
            await lane.in_flight.over()
            on_change(lane)
            return
        for other in self:
            if other.in_flight is not None:
                await other.in_flight.sent()
        try:
            async with aclosing(run_turn(engine, lane.spec.request, lane.answer)) as events:
                async for _ in events:
                    on_change(lane)
        finally:
            if lane.is_running:
                lane.answer.take(broken_off(lane.spec.request.request_id))
                on_change(lane)


def lane_spec(
    family: Family,
    turns: Sequence[Turn],
    sampling: Sampling,
    *,
    mode: PromptMode = "chat",
    raw: RawPrompt | None = None,
    label: str = "",
    logprobs: int | None = None,
    adapter: str = "",
) -> LaneSpec:
    """Return the spec of a lane that answers these turns. `raw`: a raw prompt to send instead of the prompt made from
    the turns. Raises VlmtuiError if the family does not accept the conversation."""
    if raw is not None:
        request = request_for(raw, family, sampling, logprobs=logprobs, adapter=adapter)
    else:
        request = make_request(family, turns, sampling, mode=mode, logprobs=logprobs, adapter=adapter)
    return LaneSpec(request=request, sampling=sampling, mode=mode, label=label, turns=tuple(turns))


def recorded_specs(comparison: Comparison, paths: Mapping[str, str]) -> list[LaneSpec]:
    """Return specs that repeat a document's requests. `paths`: the attachments' files by SHA-256. Raises KeyError if a
    file is missing, ValueError for a side without a request, and VlmtuiError."""
    specs = []
    for side in comparison.sides:
        if side.request is None:
            raise ValueError("This side has no request to repeat.")
        sampling = side.own or msgspec.structs.replace(comparison.sampling, **side.sampling)
        if names := no_dials(sampling.extra):
            message = f"The document sets {one_line(', '.join(names))}, which a document must not set."
            raise bad_input(message, hint="Ask again with `vlmtui ask` and the settings that you want.")
        request = GenerateRequest(
            request_id=new_request_id(),
            prompt=with_paths(side.request, paths),
            sampling=sampling,
            logprobs=max((len(one.top) for one in side.logprobs), default=0) if side.logprobs else None,
            adapter=str(Path(side.adapter).expanduser()) if side.adapter else "",
        )
        specs.append(LaneSpec(request=request, sampling=sampling, mode=side.mode, label=side.label))
    return specs


def recorded_side(
    mode: PromptMode,
    answer: Answer | None,
    prompt: PromptReady | None,
    *,
    request: Prompt | None = None,
    label: str = "",
) -> Side:
    """Return a prompt and its answer as a side of a document. `answer` None: not requested yet."""
    return side_of(
        mode,
        prompt,
        text=answer.text if answer else "",
        token_ids=answer.token_ids if answer else (),
        vocabulary=answer.vocabulary if answer else {},
        logprobs=(answer.logprobs or None) if answer else None,
        outcome=answer.outcome if answer else None,
        request=request,
        label=label,
    )


def _own_values(lanes: Sequence[Lane]) -> list[dict[str, Number | None]]:
    """Return each lane's values of the sampling parameters that differ between the lanes."""
    values = [{name: getattr(lane.request.sampling, name) for name in PARAMETERS} for lane in lanes]
    differing = [name for name in PARAMETERS if any(one[name] != values[0][name] for one in values)]
    return [{name: one[name] for name in differing} for one in values]


def _side(lane: Lane, own: dict[str, Number | None], info: EngineInfo, first: Sampling) -> Side:
    spec = lane.spec
    label = "" if spec.label == spec.mode else spec.label
    side = recorded_side(spec.mode, lane.answer, lane.answer.prompt, request=spec.request.prompt, label=label)
    other = fingerprint_of(lane.info) if lane.info is not None and lane.info is not info else None
    used = lane.request.sampling
    is_alike = msgspec.structs.replace(first, **own) == used
    return msgspec.structs.replace(
        side,
        adapter=recorded_folder(spec.request.adapter),
        sampling=own,
        engine=other,
        own=None if is_alike else used,
    )


class TokenDrop(msgspec.Struct, frozen=True):
    """The token of the answer whose probability drops most."""

    index: int
    text: str
    """Hostile text."""
    before: float
    after: float
    """The token's probability under the base's prompt (`before`) and this lane's (`after`), 0 to 1."""


class LaneScore(msgspec.Struct, frozen=True):
    """How likely the base's answer is under a lane's prompt, relative to its likelihood under the base's own prompt."""

    log_ratio: float
    """The natural logarithm of the ratio, over the tokens that both prompts scored."""
    tokens: int
    """Number of these tokens."""
    drop: TokenDrop | None = None
    """None if no probability drops."""

    is_equal: bool = False
    """True if every token is equally likely with both prompts, up to `_NOISE`."""

    @property
    def ratio(self) -> float:
        return math.exp(min(self.log_ratio, 700.0))

    @property
    def text(self) -> str:
        """`50 times less likely (−3.9 nats)`, `about as likely (0.18 nats)`."""
        if MATTERS <= self.ratio <= 1 / MATTERS:
            return f"about as likely ({nats(self.log_ratio)} nats)"
        way = "less" if self.log_ratio < 0 else "more"
        return f"{times(abs(self.log_ratio)).removesuffix('×')} times {way} likely ({nats(self.log_ratio)} nats)"


async def score_lanes(lanes: Lanes, base: int) -> list[LaneScore | None]:
    """Score the answer of lane `base` under every lane's prompt; None for the base. Raises VlmtuiError."""
    lane = lanes[base]
    if why := lack(lane.info, "scores"):
        raise bad_input(why)
    ids = tuple(lane.answer.token_ids)
    if not ids or lane.has_failed:
        raise bad_input("There is no complete answer to score.")
    scored = [scoring_lane(one.engine, one.request.prompt, ids, adapter=one.request.adapter) for one in lanes]
    found = await scores_of(Lanes(scored))
    texts = [lane.answer.vocabulary[token].text if token in lane.answer.vocabulary else f"⟨{token}⟩" for token in ids]
    return [None if at == base else _lane_score(found[base], other, texts) for at, other in enumerate(found)]


def scoring_lane(engine: Engine | None, prompt: Prompt, ids: tuple[int, ...], *, adapter: str = "") -> Lane:
    """Return a lane that scores the tokens `ids` as the answer to a prompt, and generates nothing."""
    sampling = Sampling(temperature=0)
    request = ScoreRequest(request_id=new_request_id(), prompt=prompt, sampling=sampling, tokens=ids, adapter=adapter)
    return Lane(LaneSpec(request=request, sampling=sampling), engine)


async def scores_of(lanes: Lanes, on_change: OnChange = lambda lane: None) -> list[list[float]]:
    """Run scoring lanes; return the tokens' log-probabilities, fewer if the context ends. Raises VlmtuiError."""
    await lanes.run(on_change)
    for lane in lanes:
        if lane.answer.failure is not None:
            raise lane.answer.failure.error()
        if not lane.answer.logprobs:
            raise bad_input("The engine scored no token of the answer.")
    return [[one.logprob for one in lane.answer.logprobs] for lane in lanes]


def times(log_ratio: float) -> str:
    """Return a ratio with two digits: `0.02×`, `1.1×`, `1.7·10⁻⁴×`."""
    exponent = log_ratio / math.log(10)
    if abs(exponent) >= 3:
        whole = math.floor(exponent)
        leading = f"{10 ** (exponent - whole):.1f}"
        if leading == "10.0":
            whole, leading = whole + 1, "1.0"
        shown = "" if leading == "1.0" else f"{leading}·"
        return f"{shown}10{str(whole).translate(_SUPERSCRIPTS)}×"
    value = 10**exponent
    return f"{value:.0f}×" if value >= 10 else f"{float(f'{value:.2g}'):g}×"


def _lane_score(own: Sequence[float], other: Sequence[float], texts: Sequence[str]) -> LaneScore:
    pairs = list(zip(own, other, strict=False))
    losses = [after - before for before, after in pairs]
    drop = None
    if losses and min(losses) < 0:
        at = losses.index(min(losses))
        drop = TokenDrop(at, texts[at], math.exp(pairs[at][0]), math.exp(pairs[at][1]))
    return LaneScore(math.fsum(losses), len(pairs), drop, not any(abs(loss) > _NOISE for loss in losses))


def find_engine(
    name: str,
    base: Model | None,
    registry: Registry,
    servers: Mapping[str, EngineSettings],
    *,
    loaded: Sequence[tuple[str, Model]] = (),
    key_env: str | None = None,
) -> Model:
    """Return the model behind an engine's name. Blocking: asks a server for its models. Raises VlmtuiError.

    base: the model that the names `here`, `vllm` and `transformers` refer to. loaded: the loaded models, each with its
    name."""
    head, *arguments = name.split()
    from vlmtui.engine.remote_models import find_remote_model, is_address

    if head in servers or is_address(head):
        if len(arguments) > 1 or "=" in "".join(arguments):
            raise bad_input(f"{head} is a server: it has its own engine arguments.", hint="Name one of its models.")
        return find_remote_model(registry, servers, head, key_env=key_env, name=next(iter(arguments), None))
    return with_engine_args(_find_local(head, base, registry, loaded), arguments)


def _find_local(head: str, base: Model | None, registry: Registry, loaded: Sequence[tuple[str, Model]]) -> Model:
    if head == HERE:
        return _require_base(base, head)
    backend, _, named = head.partition(":")
    if named and (backend in _BACKENDS or "==" in backend):
        return resolve(registry, named, read_backend(backend))
    if head in _BACKENDS or "==" in head:
        choice = read_backend(head)
        of = _require_base(base, head)
        found = resolve(registry, of.spec.name if of.spec.name in registry else of.spec.model, choice)
        return _with_permission(found, of)
    known = next((model for called, model in loaded if called == head), None)
    if known is not None:
        return known
    try:
        return resolve(registry, head)
    except VlmtuiError as error:
        message = error.message.replace("Unknown model", "Unknown engine or model")
        raise VlmtuiError(error.kind, message, detail=error.detail, hint=EXAMPLES) from error


def _require_base(base: Model | None, head: str) -> Model:
    if base is None:
        raise bad_input(f"{head} needs a model.", hint=EXAMPLES)
    return base


def _with_permission(model: Model, base: Model) -> Model:
    """Return the model with `base`'s permission to run its own code, if it is the same model."""
    if not base.spec.trust_remote_code or model.spec.model != base.spec.model:
        return model
    names = ("trust_remote_code", "revision", "code_revision", "code_sha256")
    spec = msgspec.structs.replace(model.spec, **{name: getattr(base.spec, name) for name in names})
    return msgspec.structs.replace(model, spec=spec)


class EngineSource(Protocol):
    """Loads engines for lanes."""

    async def has_room(self, model: Model) -> bool:
        """Return True if the model is loaded or fits in memory in addition to the loaded ones."""

    async def open(self, model: Model) -> Engine:
        """Return an engine with this model, loading the model if necessary. Raises VlmtuiError."""

    async def make_room(self) -> None:
        """Stop all engines on this machine; return when they have ended."""


async def answer_in_turns(
    lanes: Lanes,
    models: Sequence[Model],
    source: EngineSource,
    on_change: OnChange = lambda lane: None,
    *,
    names: Mapping[str, str] | None = None,
) -> None:
    """Give each lane its model's engine, and run all lanes. If memory does not allow all engines at once, the lanes of
    loaded engines run first; then these engines are stopped, and the next is loaded. A lane whose engine can't be
    loaded fails.

    Cancelling the caller cancels the requests. names: the engines' names by lane label; default: the labels."""
    for lane in lanes:
        if lane.engine is None:
            lane.waits_for = "its engine"
    for lane, model in zip(lanes, models, strict=True):
        if lane.engine is not None or not lane.is_running:
            continue
        if not await source.has_room(model):
            _tell_waiting(lanes, "memory: it loads after the answers before it", on_change)
            await lanes.run(on_change)
            if lane.answer.outcome is not None:  # stopped while it waited
                continue
            await source.make_room()
        lane.waits_for = f"{(names or {}).get(lane.spec.label, lane.spec.label)} to load"
        on_change(lane)
        try:
            lane.engine = await source.open(model)
        except VlmtuiError as error:
            lane.answer.take(Failed(request_id=lane.spec.request.request_id, failure=Failure.of(error)))
        lane.waits_for = ""
        on_change(lane)
    await lanes.run(on_change)


def _tell_waiting(lanes: Lanes, reason: str, on_change: OnChange) -> None:
    for lane in lanes:
        if lane.engine is None and lane.is_running:
            lane.waits_for = reason
            on_change(lane)


class LaneEngines:
    """The engines of lanes, by label. `one_by_one`: before an engine is loaded on this machine, the others there are
    stopped."""

    def __init__(
        self,
        controller: AppEngines,
        models: Mapping[str, Model],
        names: Mapping[str, str],
        on_unloaded: Callable[[Model], None],
    ) -> None:
        """`names`: the engines' names, by lane label. `on_unloaded`: called at the end with the app's own model, if it
        was stopped to make room."""
        self._names = names
        self._controller = controller
        self._on_unloaded = on_unloaded
        self.models = dict(models)
        """By lane label."""
        self.one_by_one = False
        self._home: Model | None = None
        """The app's model while it is stopped."""

    def loaded(self, label: str) -> Engine | None:
        """Return the engine of a lane, if it is loaded."""
        return self._controller.engine_of(self.models[label])

    @property
    def to_load(self) -> tuple[Model, ...]:
        """The models that must be loaded on this machine."""
        found = [model for name, model in self.models.items() if self.loaded(name) is None and not is_remote(model)]
        return tuple(model for at, model in enumerate(found) if model.spec not in [one.spec for one in found[:at]])

    async def run(self, lanes: Lanes) -> None:
        try:
            await answer_in_turns(lanes, [self.models[lane.spec.label] for lane in lanes], self, names=self._names)
        finally:
            home, self._home = self._home, None
            if home is not None:
                self._on_unloaded(home)

    async def has_room(self, model: Model) -> bool:
        """See `EngineSource`."""
        return not self.one_by_one or is_remote(model) or self._controller.engine_of(model) is not None

    async def open(self, model: Model) -> Engine:
        """See `EngineSource`."""
        return await self._controller.open_beside(model)

    async def make_room(self) -> None:
        """See `EngineSource`."""
        current = self._controller.model
        if current is not None and not is_remote(current) and self._home is None:
            self._home = current
        await self._controller.make_room()


async def engines_of(
    names: Mapping[str, str],
    controller: AppEngines,
    registry: Registry,
    servers: Mapping[str, EngineSettings],
    trust: TrustStore,
    on_unloaded: Callable[[Model], None],
) -> LaneEngines:
    """Return the engines of lanes. `names`: the engines' names, by lane label. Raises VlmtuiError with the name of an
    engine that can't run here."""
    controller.require_engine()
    home, checks = controller.require_model(), LoadChecks(trust)
    loaded = [(name, model) for model in controller.models for name in names_of(model)]
    by_name: dict[str, Model] = {}
    for name in dict.fromkeys(names.values()):
        own = next((model for called_so, model in loaded if called_so == name), None)
        if name == HERE or own is not None:
            by_name[name] = own or home
            continue
        model = await asyncio.to_thread(find_engine, name, home, registry, servers, loaded=loaded)
        by_name[name] = model if is_remote(model) else _allowed(model, checks)
    engines = LaneEngines(controller, {label: by_name[name] for label, name in names.items()}, names, on_unloaded)
    for model in by_name.values():
        if is_remote(model):
            await controller.open_beside(model)
    return engines


def _allowed(model: Model, checks: LoadChecks) -> Model:
    """Return the model with the user's permission to run its own code, if that was given before. Raises VlmtuiError if
    the model can't run here, or lacks a permission that it needs."""
    if error := model_closed(model.family, model.spec):
        raise error
    allowed = checks.allowed(model)
    if allowed.family.trust_remote_code and not allowed.spec.trust_remote_code:
        message = f"{model.spec.name} needs your permission to run its own Python code."
        hint = "Load it once by itself: it asks then."
        raise VlmtuiError(ErrorKind.REMOTE_CODE_REFUSED, message, hint=hint, remedy=Remedy.LOAD_MODEL)
    return allowed


def with_seed(sampling: Sampling) -> Sampling:
    """Return the sampling with a random seed if none is set and tokens are sampled."""
    if sampling.seed is not None or sampling.temperature == 0:
        return sampling
    return msgspec.structs.replace(sampling, seed=random.randrange(_SEEDS))
