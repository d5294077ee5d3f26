"""Which of the chat's actions have nothing to act on at the moment."""

from __future__ import annotations

from vlmtui.session.conversation import Conversation
from vlmtui.session.engine_controller import EngineController, EngineState


def impossible_actions(chat: Conversation, controller: EngineController) -> frozenset[str]:
    """The ids of the actions that are not possible now: the footer leaves them out, their keys do nothing."""
    answering = chat.running is not None
    possible = {
        "stop": answering,
        "take_back": bool(chat.queue) and not answering,
        "leave_edit": chat.editing is not None and not answering,
        "new_chat": not answering,
        "restart_engine": controller.state in (EngineState.DEAD, EngineState.HUNG, EngineState.NONE),
    }
    return frozenset(id for id, is_possible in possible.items() if not is_possible)
