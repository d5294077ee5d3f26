"""Counts how often an engine died while it answered a turn."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import msgspec

from vlmtui.domain.conversation import Attachment, Text, Turn
from vlmtui.errors import VlmtuiError
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.exchange import Exchange

DEATHS_MAX = 2
"""Deaths after which a turn is only sent again after confirmation."""


class Suspect(msgspec.Struct, frozen=True):
    """A turn that killed the engine more than once."""

    deaths: int
    attachment: Attachment | None
    """The turn's newest attachment."""


class DeathCounts:
    """How often an engine died while answering a turn. Turns with equal content count as one."""

    def __init__(self) -> None:
        self._deaths: Counter[tuple[object, ...]] = Counter()

    def add(self, turn: Turn) -> None:
        """Record that an engine died while answering this turn."""
        self._deaths[_content(turn)] += 1

    async def look_up(self, exchange: Exchange, store: AsyncStore) -> None:
        """Add the deaths that the store has recorded for an exchange's turn; none if the store cannot be read."""
        user_id, content = exchange.user_id, _content(exchange.user)
        if user_id is not None:
            with suppress(VlmtuiError):
                deaths = await store.run(lambda store: store.deaths_below(user_id))
                self._deaths[content] = max(deaths, self._deaths[content])

    def suspect(self, turn: Turn) -> Suspect | None:
        """Return why sending a turn needs confirmation (the engine died of it more than once), or None."""
        deaths = self._deaths[_content(turn)]
        if deaths < DEATHS_MAX:
            return None
        return Suspect(deaths, turn.attachments[-1] if turn.attachments else None)


def _content(turn: Turn) -> tuple[object, ...]:
    """Return a key that is equal for turns with the same content."""
    return tuple(part.text if isinstance(part, Text) else part.attachment.sha256 for part in turn.parts)
