"""The engines of lanes in the app: of a fan-out (`engine=here,transformers`), or of the sides of a comparison."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from vlmtui.config.engines import EngineSettings
from vlmtui.config.trust import TrustStore
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model
from vlmtui.registry.routes import model_closed
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.engine_names import HERE, find_engine
from vlmtui.session.engine_turns import answer_in_turns
from vlmtui.session.engines_beside import is_remote, names_of
from vlmtui.session.lanes import Lanes
from vlmtui.session.load_checks import LoadChecks


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
