"""What the draft would cost: counted by the engine, or estimated from the model's record."""

from __future__ import annotations

from vlmtui.domain.capabilities import lack
from vlmtui.errors import VlmtuiError
from vlmtui.session.conversation import Conversation
from vlmtui.session.cost import Cost, CostEstimate, Uncounted, cost_of, estimate_of
from vlmtui.session.engines import EngineController, EngineState
from vlmtui.session.generation import render

_LONG_TEXT = 2000
"""Fewest characters for which a text without attachments is counted."""

Outcome = Cost | CostEstimate | Uncounted | VlmtuiError | None
"""The cost of the draft, or why it cannot be sent; None: nothing to tell."""


async def draft_cost(chat: Conversation, controller: EngineController) -> Outcome:
    """Return the draft's cost; None while an answer is running, and for short texts."""
    draft, engine, info = chat.draft, controller.engine, controller.info
    if chat.running is not None or not (draft.attachments or len(draft.words) >= _LONG_TEXT):
        return None
    try:
        request = chat.preview(controller.require_model().family)
        if engine is None or info is None or controller.state is not EngineState.READY:
            return draft_estimate(chat, controller)
        if why := lack(info, "render_only"):
            return Uncounted(why, draft_estimate(chat, controller))
        tokens = draft.tokens
        return cost_of(await render(engine, request.prompt, request.sampling), tokens, info.max_model_len)
    except VlmtuiError as error:
        return error


def draft_estimate(chat: Conversation, controller: EngineController) -> CostEstimate | None:
    """Estimate the draft's attachments from the model's record; None: no estimate."""
    model = controller.model
    return None if model is None else estimate_of(model, chat.draft.tokens, chat.settings.sampling)
