"""Counts how often an engine died while it answered a turn."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Text, Turn
from vlmtui.errors import VlmtuiError
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.exchange import Exchange

DEATHS_MAX = 2
"""A turn that ended the engine so often is not sent again without a question."""


class Suspect(msgspec.Struct, frozen=True):
    """A turn that the engine died of, more than once."""

    deaths: int
    attachment: Attachment | None
    """Its newest one."""


class DeathCounts:
    """How often an engine died while it answered a turn. Turns of the same content are the same."""

    def __init__(self) -> None:
        self._deaths: Counter[tuple[object, ...]] = Counter()

    def add(self, turn: Turn) -> None:
        """An engine died of it."""
        self._deaths[_content(turn)] += 1

    async def look_up(self, exchange: Exchange, store: AsyncStore) -> None:
        """Count what the store has of an exchange's turn; nothing where the store cannot be read."""
        user_id, content = exchange.user_id, _content(exchange.user)
        if user_id is not None:
            with suppress(VlmtuiError):
                deaths = await store.run(lambda store: store.deaths_below(user_id))
                self._deaths[content] = max(deaths, self._deaths[content])

    def suspect(self, turn: Turn) -> Suspect | None:
        """Why a turn is not to be sent without a question: the engine has died of it before, more than once."""
        deaths = self._deaths[_content(turn)]
        if deaths < DEATHS_MAX:
            return None
        return Suspect(deaths, turn.attachments[-1] if turn.attachments else None)


def _content(turn: Turn) -> tuple[object, ...]:
    """What makes two turns the same to an engine."""
    return tuple(part.text if isinstance(part, Text) else part.attachment.sha256 for part in turn.parts)
