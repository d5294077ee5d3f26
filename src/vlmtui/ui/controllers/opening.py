"""A stored conversation, read for the chat. Runs on the store's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.sampling import Sampling
from vlmtui.store.records import ConversationId, StoredDraft, StoredTurn
from vlmtui.ui.controllers.chat_settings import ChatSettings
from vlmtui.ui.controllers.exchange import Exchange, exchanges_of

if TYPE_CHECKING:
    from vlmtui.store.store import Store

WINDOW = 40
"""Turns that are read with all that is known of them."""


class Opened(msgspec.Struct, frozen=True):
    """A conversation to go on with."""

    model: str
    exchanges: list[Exchange]
    """The newest ones."""
    older: list[Exchange]
    """All above them."""
    draft: StoredDraft
    settings: ChatSettings | None
    """Of its newest answer; None where nothing is known."""


def read_conversation(store: Store, *, conversation: ConversationId) -> Opened:
    """Raises VlmtuiError where there is none."""
    found = store.conversation(conversation)
    newest = store.turns(conversation, limit=WINDOW)
    above = store.above(newest[0].id) if newest else []
    if newest and newest[0].role == "assistant" and above:
        # A question stays with its answer.
        newest = [above.pop(), *newest]
    older = list(exchanges_of(above))
    return Opened(
        model=found.model,
        exchanges=list(exchanges_of(newest, older[-1] if older else None)),
        older=older,
        draft=store.draft(conversation),
        settings=_settings([*above, *newest]),
    )


def _settings(turns: Sequence[StoredTurn]) -> ChatSettings | None:
    """Those of the newest answer; of an imported conversation, what stands in it."""
    for turn in reversed(turns):
        if turn.recipe is not None and turn.recipe.mode == "chat":
            return ChatSettings(turn.recipe.system_prompt, turn.recipe.sampling)
        if turn.role == "system":
            return ChatSettings(turn.text, Sampling())
    return None
