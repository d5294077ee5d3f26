"""Writes answers into the store: how much of each is written, and one transaction for each write. Stores a conversation
again from the screen's copy, after the store has lost it: its files were deleted, or a backup took their place.

Mutable state is copied first: the store's thread reads the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.conversation import Text, Turn
from vlmtui.domain.generation import Cancelled, Failed, Finished
from vlmtui.domain.sampling import Sampling
from vlmtui.session.branch import Branch
from vlmtui.session.exchange import Exchange, Siblings
from vlmtui.session.generation import Answer
from vlmtui.store.records import ConversationId, EndState, GenerationRecord, Outcome, Statistics, StoredDraft, TurnId
from vlmtui.text import one_line

if TYPE_CHECKING:
    from concurrent.futures import Future

    from vlmtui.store.store import Store

TITLE_MAX = 60


@dataclass(eq=False, slots=True)
class LiveConversation:
    """A conversation of this process; in the store once it has an id."""

    id: ConversationId | None = None
    model: str = ""
    """What the user calls the model that answered last."""
    branch: Branch | None = None
    """The branch on screen, to store it again if the store has lost it."""


@dataclass(eq=False, slots=True)
class PendingAnswer:
    """An answer with the user's turn before it, and how much of it is stored."""

    conversation: LiveConversation
    exchange: Exchange
    answer: Answer
    record: GenerationRecord
    id: TurnId | None = None
    pieces: int = 0
    """How many of the answer's pieces are stored."""
    has_prompt: bool = False
    is_over: bool = False
    was_gone: bool = False
    """It was stored, but the store has lost it."""
    begun: tuple[AnswerWrite, Future[WriteResult]] | None = None
    """A write that the store has begun; the next flush waits for it."""
    is_parentless: bool = False
    """The turn before it is gone from the store: this one begins a conversation."""

    def note_gone(self, *, is_parentless: bool) -> None:
        """Note that nothing of it is in the store any more."""
        self.id, self.pieces, self.has_prompt = None, 0, False
        self.was_gone, self.is_parentless = True, is_parentless
        self.exchange.note_gone()

    @property
    def is_dirty(self) -> bool:
        """Whether there is something to store."""
        answer = self.answer
        return not self.is_over and (
            self.id is None
            or answer.outcome is not None
            or len(answer.pieces) > self.pieces
            or (answer.prompt is not None and not self.has_prompt)
        )


class AnswerWrite(msgspec.Struct, frozen=True):
    """A snapshot of a pending answer, to be written."""

    conversation: ConversationId | None
    model: str
    parent: TurnId | None
    user_id: TurnId | None
    user: Turn
    left_out: bool
    answer_id: TurnId | None
    record: GenerationRecord
    record_is_new: bool
    """Whether the engine has reported how the answer is generated since the last write."""
    used: Sampling | None
    pieces: int
    text: str
    tokens: int
    outcome: Outcome | None
    keeps_draft: bool = False
    """The stored draft is not this message, but a later one."""

    def write_to(self, store: Store) -> WriteResult:
        """Write everything in one transaction."""
        with store.together():
            title = title_from_turn(self.user)
            conversation = self.conversation or store.new_conversation(title=title, model=self.model)
            user, answer = self.user_id, self.answer_id
            if user is None:
                user = store.add_turn(conversation, self.parent, self.user)
                if self.left_out:
                    store.leave_out(user, True)
                if not self.keeps_draft:
                    store.save_draft(conversation, StoredDraft())
            if answer is None:
                self._name(store, conversation, title)
                answer = store.begin_answer(user, self.record)
            if self.record_is_new:
                store.set_generation(answer, self.record, self.used)
            if self.outcome is not None:
                store.end_answer(answer, self.text, self.outcome, tokens=self.tokens)
            elif self.pieces:
                store.append_answer(answer, self.text, self.tokens)
            if self.answer_id is not None:
                return WriteResult(conversation, user, answer)
            message, reply = store.turn(user), store.turn(answer)
            return WriteResult(
                conversation,
                user,
                answer,
                Siblings(message.position, message.siblings),
                Siblings(reply.position, reply.siblings),
            )

    def _name(self, store: Store, conversation: ConversationId, title: str) -> None:
        """Set the title, if it was only a draft so far, and the model."""
        found = store.conversation(conversation)
        if not found.title:
            store.rename(conversation, title)
        if self.model and found.model != self.model:
            store.set_model(conversation, self.model)


class WriteResult(msgspec.Struct, frozen=True):
    """The ids from the store, and the siblings if they may have changed."""

    conversation: ConversationId
    user: TurnId
    answer: TurnId
    user_siblings: Siblings | None = None
    answer_siblings: Siblings | None = None


def title_from_turn(turn: Turn) -> str:
    """Return the first words of a message as one line, with the names of attachments that stand among them; without
    words, the names of all."""
    text = " ".join(map(one_line, _titled(turn).split())) or ", ".join(one_line(item.name) for item in turn.attachments)
    return text if len(text) <= TITLE_MAX else text[: TITLE_MAX - 1].rstrip() + "…"


def _titled(turn: Turn) -> str:
    """The text with the names of attachments, but for those before its first word."""
    text = ""
    for part in turn.parts:
        if isinstance(part, Text):
            text += f" {part.text}" if text[-1:].isalnum() and part.text[:1].isalnum() else part.text
        elif text.strip():
            text += part.attachment.name if text[-1:].isspace() or text[-1:] in "([“\"'" else f" {part.attachment.name}"
    return text


def write_draft(
    store: Store, *, conversation: ConversationId | None, model: str, draft: StoredDraft
) -> ConversationId | None:
    """Store a draft, or delete it if empty. Return its conversation; None if none is needed."""
    is_empty = not draft.text and not draft.attachments
    with store.together():
        if conversation is None:
            if is_empty:
                return None
            conversation = store.new_conversation(model=model)
        elif is_empty and store.conversation(conversation).leaf is None:
            store.purge(conversation)
            return None
        store.save_draft(conversation, draft)
    return conversation


def write_of(pending: PendingAnswer) -> AnswerWrite:
    """Return a snapshot of what is to be written of a pending answer."""
    answer, exchange, above = pending.answer, pending.exchange, pending.exchange.above
    record = pending.record
    record_is_new = answer.prompt is not None and not pending.has_prompt
    if record_is_new and answer.prompt is not None:
        record = msgspec.structs.replace(record, prompt=answer.prompt.prompt)
    return AnswerWrite(
        conversation=pending.conversation.id,
        model=pending.conversation.model,
        parent=None if above is None or pending.is_parentless else above.answer_id or above.user_id,
        user_id=exchange.user_id,
        user=exchange.user,
        left_out=exchange.is_left_out,
        answer_id=pending.id,
        record=record,
        record_is_new=record_is_new,
        used=answer.used,
        pieces=len(answer.pieces),
        text=answer.text,
        tokens=answer.tokens,
        outcome=outcome_of(answer),
        keeps_draft=pending.was_gone,
    )


def outcome_of(answer: Answer) -> Outcome | None:
    """Return how it ended, for the store."""
    state: EndState
    match answer.outcome:
        case None:
            return None
        case Finished():
            state = "complete"
        case Cancelled():
            state = "stopped"
        case Failed():
            state = "failed"
    statistics = Statistics(usage=answer.usage, thought=answer.thought.ended)
    if isinstance(answer.outcome, Finished):
        ended = answer.outcome
        statistics = msgspec.structs.replace(statistics, finish_reason=ended.finish_reason, stop=ended.stop)
    if answer.timings is not None:
        statistics = msgspec.structs.replace(statistics, timings=answer.timings)
    return Outcome(state=state, statistics=statistics, failure=answer.failure)


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
