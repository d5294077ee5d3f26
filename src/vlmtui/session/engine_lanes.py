"""The engines of a fan-out over engines: `engine=here,box`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from vlmtui.config.engines import EngineSettings
from vlmtui.engine.interface import Engine
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.engines_beside import called
from vlmtui.session.lane_plan import Plan

HERE = "here"
"""The app's current engine."""


@dataclass(frozen=True)
class LaneEngine:
    """An engine, and the model that it holds."""

    model: Model
    engine: Engine


async def engines_of(
    plan: Plan, controller: EngineController, registry: Registry, settings: Mapping[str, EngineSettings]
) -> dict[str, LaneEngine]:
    """Return the engine behind each value of the plan; servers are connected beside what is loaded. Raises VlmtuiError
    naming the engine that is not there."""
    found: dict[str, LaneEngine] = {}
    for value in map(str, plan.values):
        model = await _model_of(value, controller, registry, settings)
        found[value] = LaneEngine(model, await controller.open_beside(model))
    return found


async def _model_of(
    name: str, controller: EngineController, registry: Registry, settings: Mapping[str, EngineSettings]
) -> Model:
    if name == HERE:
        controller.require_engine()
        return controller.require_model()
    loaded = next((model for model in controller.models if name in called(model)), None)
    if loaded is not None:
        return loaded
    from vlmtui.engine.remote_models import find_remote_model  # the HTTP client takes a while to import

    return await asyncio.to_thread(find_remote_model, registry, settings, name)
