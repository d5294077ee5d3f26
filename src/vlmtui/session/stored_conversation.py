"""Reads a stored conversation, to continue it. Runs on the store's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.generation import Finished
from vlmtui.domain.sampling import Sampling
from vlmtui.session.branch import Branch
from vlmtui.session.exchange import Exchange, exchanges_of
from vlmtui.session.resume import stored_sampling
from vlmtui.session.settings import ChatSettings
from vlmtui.session.structured import check_structure
from vlmtui.store.records import ConversationId, StoredDraft, StoredTurn

if TYPE_CHECKING:
    from vlmtui.store.store import Store

WINDOW = 40
"""Turns that are read in full detail."""


class LoadedConversation(msgspec.Struct, frozen=True):
    """A conversation to continue."""

    model: str
    branch: Branch
    draft: StoredDraft
    settings: ChatSettings | None
    """Settings of its newest answer; None if unknown."""


def load_conversation(store: Store, *, conversation: ConversationId) -> LoadedConversation:
    """Read the active branch, the draft and the settings. Raises VlmtuiError if the conversation does not exist."""
    found = store.conversation(conversation)
    newest = store.turns(conversation, limit=WINDOW)
    above = store.above(newest[0].id) if newest else []
    if newest and newest[0].role == "assistant" and above:
        # Keep a message together with its answer.
        newest = [above.pop(), *newest]
    older = list(exchanges_of(above))
    shown = list(exchanges_of(newest, older[-1] if older else None))
    for exchange in shown:
        _check_structure(exchange)
    return LoadedConversation(
        model=found.model,
        branch=Branch(older, shown),
        draft=store.draft(conversation),
        settings=_settings([*above, *newest]),
    )


def _check_structure(exchange: Exchange) -> None:
    answer, record = exchange.answer, exchange.record
    if record is not None and isinstance(answer.outcome, Finished):
        answer.structure = check_structure(record.sampling, answer.parts(answer.text).answer)


def _settings(turns: Sequence[StoredTurn]) -> ChatSettings | None:
    """Return the settings of the newest answer; for an imported conversation, what it says itself."""
    for turn in reversed(turns):
        if turn.generation is not None and turn.generation.mode == "chat":
            made = turn.generation
            adapter = "" if made.imported else made.adapter
            return ChatSettings(made.system_prompt, stored_sampling(made.sampling), made.family, adapter=adapter)
        if turn.role == "system":
            return ChatSettings(turn.text, Sampling())
    return None
