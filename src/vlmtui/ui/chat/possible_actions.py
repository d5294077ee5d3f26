"""Which of the chat's actions are impossible at the moment."""

from __future__ import annotations

from vlmtui.session.conversation import Conversation


def impossible_actions(chat: Conversation) -> frozenset[str]:
    """Return the ids of actions that are impossible now: hidden from the footer, keys without effect."""
    answering = chat.running is not None
    possible = {
        "stop": answering,
        "take_back": bool(chat.queue) and not answering,
        "leave_edit": chat.editing is not None and not answering,
        "new_chat": not answering,
    }
    return frozenset(id for id, is_possible in possible.items() if not is_possible)


def left_out_of_footer(chat: Conversation) -> frozenset[str]:
    """Return the ids of actions that the footer hides before the first answer."""
    has_answer = any(exchange.answer.text for exchange in chat.exchanges)
    return frozenset() if has_answer else frozenset({"compare", "inspect", "fan_out"})
