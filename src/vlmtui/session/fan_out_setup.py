"""Prepares a fan-out over a message: its pictures, and whether the engine can do it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from vlmtui.domain.capabilities import require_capability
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.engines import EngineController
from vlmtui.session.fan_out import FanOut
from vlmtui.session.lane_engines import LaneEngines
from vlmtui.session.lane_plan import PICTURE, PIXELS, Plan, plan_of
from vlmtui.session.picture_changes import changed_pictures, possible_changes


def look_plan(message: ComparedMessage) -> Plan:
    """Return the plan that asks whether an answer needs its pictures. Raises VlmtuiError if there is no picture."""
    return plan_of(PICTURE, possible_changes(message.turns))


async def planned_fan_out(
    plan: Plan,
    message: ComparedMessage,
    controller: EngineController,
    *,
    media: Path,
    engines: LaneEngines | None = None,
) -> FanOut:
    """Return the fan-out of a message, ready to be sent. `media`: the folder of stored pictures; `engines`: those of a
    plan over engines. Raises VlmtuiError if the engine, the family or the message does not allow the plan."""
    engine = controller.require_engine()
    if plan.parameter == "seed":
        require_capability(controller.info, "seed")
    family, settings, turns = controller.require_model().family, message.conversation.settings, message.turns
    pictures = None
    if plan.parameter in (PICTURE, PIXELS):
        pictures = await asyncio.to_thread(changed_pictures, plan.values, turns, media)
    return FanOut(
        plan, family, turns, settings.sampling, engine, adapter=settings.adapter, pictures=pictures, engines=engines
    )
