"""The engines of lanes: found by the name that a person types, and loaded together or one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from vlmtui.config.settings import EngineSettings
from vlmtui.config.trust import TrustStore
from vlmtui.domain.backend_choice import read_backend
from vlmtui.domain.engine import DEFAULT_BACKEND, TRANSFORMERS_BACKEND
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Failed
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError, bad_input
from vlmtui.registry.engine_values import with_engine_args
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.registry.routes import model_closed
from vlmtui.session.engines import EngineController, is_remote, names_of
from vlmtui.session.lanes import Lanes, OnChange
from vlmtui.session.models import LoadChecks

HERE = "here"
"""The engine and model that are used without a name."""
EXAMPLES = (
    "Write here, vllm, transformers, vllm==X.Y.Z, a model, a server's address or its name in config.toml; engine "
    "arguments may follow: here dtype=bfloat16."
)
_ADDRESSES = ("http://", "https://", "unix:")
_BACKENDS = (DEFAULT_BACKEND, TRANSFORMERS_BACKEND)


def find_engine(
    name: str,
    base: Model | None,
    registry: Registry,
    servers: Mapping[str, EngineSettings],
    *,
    loaded: Sequence[tuple[str, Model]] = (),
    key_env: str | None = None,
) -> Model:
    """Return the model behind an engine's name. Blocks: a server is asked what it serves.

    base: what `here` is, and whose model a backend runs. loaded: what is loaded, by what it is called. key_env: the
    environment variable with a server's key. Raises VlmtuiError.
    """
    head, *arguments = name.split()
    if head in servers or head.startswith(_ADDRESSES):
        from vlmtui.engine.remote_models import find_remote_model  # the HTTP client takes a while to import

        if len(arguments) > 1 or "=" in "".join(arguments):
            raise bad_input(f"{head} is a server: it has its own engine arguments.", hint="Name one of its models.")
        return find_remote_model(registry, servers, head, key_env=key_env, name=next(iter(arguments), None))
    return with_engine_args(_local(head, base, registry, loaded), arguments)


def _local(head: str, base: Model | None, registry: Registry, loaded: Sequence[tuple[str, Model]]) -> Model:
    if head == HERE:
        return _based(base, head)
    if head in _BACKENDS or "==" in head:
        choice = read_backend(head)
        of = _based(base, head)
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


def _based(base: Model | None, head: str) -> Model:
    if base is None:
        raise bad_input(f"{head} needs a model.", hint=EXAMPLES)
    return base


def _with_permission(model: Model, base: Model) -> Model:
    """Return the model with the permission to run its own code that the same model has elsewhere."""
    if not base.spec.trust_remote_code or model.spec.model != base.spec.model:
        return model
    names = ("trust_remote_code", "revision", "code_revision", "code_sha256")
    spec = msgspec.structs.replace(model.spec, **{name: getattr(base.spec, name) for name in names})
    return msgspec.structs.replace(model, spec=spec)


class EngineSource(Protocol):
    """Loads engines for lanes."""

    async def has_room(self, model: Model) -> bool:
        """Return whether the model can be loaded beside what is loaded now; True where it is loaded already."""
        ...

    async def open(self, model: Model) -> Engine:
        """Return the loaded engine with this model. Raises VlmtuiError."""
        ...

    async def make_room(self) -> None:
        """Unload what takes memory of this machine; return when it has ended."""
        ...


async def answer_in_turns(
    lanes: Lanes,
    models: Sequence[Model],
    source: EngineSource,
    on_change: OnChange = lambda lane: None,
    *,
    names: Mapping[str, str] | None = None,
) -> None:
    """Give each lane the engine of its model and run them: all together where memory allows, else those that are
    loaded answer first, and make room for the next. A lane whose engine can't be loaded fails; the others go on.
    Cancelling the caller cancels the requests. `names`: the engines' by the lanes' labels, where they differ."""
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
            lane.answer.take(Failed(request_id=lane.request.request_id, failure=Failure.of(error)))
        lane.waits_for = ""
        on_change(lane)
    await lanes.run(on_change)


def _tell_waiting(lanes: Lanes, reason: str, on_change: OnChange) -> None:
    for lane in lanes:
        if lane.engine is None and lane.is_running:
            lane.waits_for = reason
            on_change(lane)


class LaneEngines:
    """The engines of lanes, by their labels. `one_by_one`: load those of this machine one after the other, and unload
    the others meanwhile."""

    def __init__(
        self,
        controller: EngineController,
        models: Mapping[str, Model],
        names: Mapping[str, str],
        on_unloaded: Callable[[Model], None],
    ) -> None:
        """`names`: as the user called the engines. `on_unloaded` is called at the end where the app's model was
        unloaded, with that model."""
        self._names = names
        self._controller = controller
        self._on_unloaded = on_unloaded
        self.models = dict(models)
        """By the lane's label."""
        self.one_by_one = False
        self._home: Model | None = None
        """The app's model, while it is unloaded."""

    def loaded(self, label: str) -> Engine | None:
        """Return the engine of a lane, if it is loaded."""
        return self._controller.engine_of(self.models[label])

    def is_current(self, label: str) -> bool:
        """Whether a lane's engine is the app's own."""
        current = self._controller.model
        return current is not None and self.models[label].spec == current.spec

    @property
    def to_load(self) -> tuple[Model, ...]:
        """The models to be loaded on this machine."""
        found = [model for name, model in self.models.items() if self.loaded(name) is None and not is_remote(model)]
        return tuple(model for at, model in enumerate(found) if model.spec not in [one.spec for one in found[:at]])

    async def run(self, lanes: Lanes) -> None:
        """Answer every lane."""
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
    controller: EngineController,
    registry: Registry,
    servers: Mapping[str, EngineSettings],
    trust: TrustStore,
    on_unloaded: Callable[[Model], None],
) -> LaneEngines:
    """Return the engines of lanes. `names`: those of the engines, by the lanes' labels. Servers are connected. Raises
    VlmtuiError naming the engine that is not there, or that can't run here."""
    controller.require_engine()
    home, checks = controller.require_model(), LoadChecks(trust)
    loaded = [(name, model) for model in controller.models for name in names_of(model)]
    found: dict[str, Model] = {}
    for label, name in names.items():
        own = next((model for called_so, model in loaded if called_so == name), None)
        if name == HERE or own is not None:
            found[label] = own or home
            continue
        model = await asyncio.to_thread(find_engine, name, home, registry, servers, loaded=loaded)
        found[label] = model if is_remote(model) else _allowed(model, checks)
    engines = LaneEngines(controller, found, names, on_unloaded)
    for model in found.values():
        if is_remote(model):
            await controller.open_beside(model)
    return engines


def _allowed(model: Model, checks: LoadChecks) -> Model:
    """Return the model with permission for its own code. Raises VlmtuiError where it does not run here, or where that
    permission was not given."""
    if error := model_closed(model.family, model.spec):
        raise error
    allowed = checks.allowed(model)
    if allowed.family.trust_remote_code and not allowed.spec.trust_remote_code:
        message = f"{model.spec.name} needs your permission to run its own Python code."
        hint = "Load it once by itself: it asks then."
        raise VlmtuiError(ErrorKind.REMOTE_CODE_REFUSED, message, hint=hint, remedy=Remedy.PICK_MODEL)
    return allowed
