"""Stores a comparison with its message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from vlmtui.registry.match import Model
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.comparison import CompareController, ComparedSide


async def keep_comparison(controller: CompareController, message: ComparedMessage, model: Callable[[], Model]) -> None:
    """Store an answered comparison with its message. A draft that the conversation did not send itself becomes its
    next message, with the first answer. `model` returns the app's. Raises VlmtuiError."""
    answered = [side for side in controller.sides if side.answer is not None and side.answer.text]
    if not answered:
        return
    if message.exchange is None:
        await adopt_side(controller, message, answered[0], model)
    await message.store(await asyncio.to_thread(controller.document), controller.input.attachments)


async def adopt_side(
    controller: CompareController, message: ComparedMessage, side: ComparedSide, model: Callable[[], Model]
) -> None:
    """Continue the conversation with a side's answer; `model` as above. Raises VlmtuiError."""
    if side.lane is not None:
        await message.adopt(side.lane, controller.model_of(side) or model())
