"""Stores a conversation again from the screen's copy, after the store has lost it (its files were deleted or
replaced)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.conversation import Turn
from vlmtui.domain.sampling import Sampling
from vlmtui.session.exchange import Exchange
from vlmtui.session.stored_answer import outcome_of, title_from_turn
from vlmtui.store.records import ConversationId, GenerationRecord, Outcome, TurnId

if TYPE_CHECKING:
    from vlmtui.store.store import Store


class PastExchange(msgspec.Struct, frozen=True):
    """A message and its answer as shown; no outcome: it was never answered."""

    user: Turn
    text: str
    tokens: int
    record: GenerationRecord
    outcome: Outcome | None
    left_out: bool
    used: Sampling | None


class SavedAgain(msgspec.Struct, frozen=True):
    """The new conversation, and the ids of each message and its answer."""

    conversation: ConversationId
    turns: tuple[tuple[TurnId, TurnId | None], ...]


def past_of(exchanges: Iterable[Exchange], model: str) -> tuple[PastExchange, ...]:
    """Return copies that the store's thread can read."""
    return tuple(
        PastExchange(
            exchange.user,
            exchange.answer.text,
            exchange.answer.tokens,
            exchange.record or GenerationRecord(model=model, mode=exchange.mode),
            outcome_of(exchange.answer) if exchange.answer_id is not None else None,
            exchange.is_left_out,
            exchange.answer.used,
        )
        for exchange in exchanges
    )


def write_past(store: Store, past: Sequence[PastExchange], model: str) -> SavedAgain:
    """Store the exchanges (at least one) as a new conversation, in one transaction."""
    with store.together():
        conversation = store.new_conversation(title=title_from_turn(past[0].user), model=model)
        parent: TurnId | None = None
        turns: list[tuple[TurnId, TurnId | None]] = []
        for one in past:
            parent = user = store.add_turn(conversation, parent, one.user)
            if one.left_out:
                store.leave_out(user, True)
            answer: TurnId | None = None
            if one.outcome is not None:
                parent = answer = store.begin_answer(user, one.record)
                store.set_generation(answer, one.record, one.used)
                store.end_answer(answer, one.text, one.outcome, tokens=one.tokens)
            turns.append((user, answer))
        return SavedAgain(conversation, tuple(turns))
