"""A conversation's title, and whether it was imported."""

from __future__ import annotations

from typing import NamedTuple

from vlmtui.errors import VlmtuiError
from vlmtui.session.conversation import Conversation
from vlmtui.session.stored_answer import title_from_turn

NEW = "New chat"


class Head(NamedTuple):
    """The facts above a conversation."""

    title: str
    is_imported: bool = False
    """It came from a document, and no message was sent in it since."""


async def head_of(conversation: Conversation) -> Head:
    """Return the stored title; if there is none, the first words of the first message."""
    exchanges = conversation.all_exchanges()
    known = title_from_turn(exchanges[0].user) if exchanges else NEW
    identity = conversation.id
    if identity is None:
        return Head(known)
    try:
        stored = await conversation.recorder.store.run(lambda store: store.conversation(identity))
    except VlmtuiError:
        return Head(known)
    return Head(stored.title or known, stored.imported)
