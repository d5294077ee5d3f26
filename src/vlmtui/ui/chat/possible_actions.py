"""Which of the chat's actions have nothing to act on at the moment."""

from __future__ import annotations

from vlmtui.session.conversation import Conversation


def impossible_actions(chat: Conversation) -> frozenset[str]:
    """The ids of the actions that are not possible now: the footer leaves them out, their keys do nothing."""
    answering = chat.running is not None
    possible = {
        "stop": answering,
        "take_back": bool(chat.queue) and not answering,
        "leave_edit": chat.editing is not None and not answering,
        "new_chat": not answering,
    }
    return frozenset(id for id, is_possible in possible.items() if not is_possible)


def left_out_of_footer(chat: Conversation) -> frozenset[str]:
    """The ids of the actions that there is nothing for before the first answer."""
    has_answer = any(exchange.answer.text for exchange in chat.exchanges)
    return frozenset() if has_answer else frozenset({"compare", "inspect", "fan_out"})
