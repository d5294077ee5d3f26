"""A conversation's title."""

from __future__ import annotations

from vlmtui.errors import VlmtuiError
from vlmtui.session.conversation import Conversation
from vlmtui.session.stored_answer import title_from_turn

NEW = "New chat"


async def title_of(conversation: Conversation) -> str:
    """Return the stored title; if there is none, the first words of the first message."""
    exchanges = conversation.all_exchanges()
    known = title_from_turn(exchanges[0].user) if exchanges else NEW
    identity = conversation.id
    if identity is None:
        return known
    try:
        stored = await conversation.recorder.store.run(lambda store: store.conversation(identity).title)
    except VlmtuiError:
        return known
    return stored or known
