"""What the store is to have of an answer, and how it is written: one transaction, all of it or nothing. Whatever is
written is taken from what changes first; the store's thread looks at that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.conversation import Turn
from vlmtui.domain.engine import Cancelled, Failed, Finished
from vlmtui.domain.text import one_line
from vlmtui.engine.session import Answer
from vlmtui.store.records import (
    ConversationId,
    EndState,
    Outcome,
    Recipe,
    Statistics,
    StoredDraft,
    TurnId,
)
from vlmtui.ui.controllers.exchange import Exchange, Siblings

if TYPE_CHECKING:
    from vlmtui.store.store import Store

TITLE_MAX = 60


@dataclass(eq=False, slots=True)
class LiveConversation:
    """A conversation of this process; in the store once it has an id."""

    id: ConversationId | None = None
    model: str = ""
    """What the user calls the model that was asked last."""


@dataclass(eq=False, slots=True)
class Entry:
    """An answer, with the user's turn above it, and how much of it is stored."""

    conversation: LiveConversation
    exchange: Exchange
    answer: Answer
    recipe: Recipe
    id: TurnId | None = None
    pieces: int = 0
    """How many of the answer's pieces are stored."""
    has_prompt: bool = False
    is_over: bool = False

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
    """An entry as it was when its writing began: the store's thread looks at nothing that still changes."""

    conversation: ConversationId | None
    model: str
    parent: TurnId | None
    user_id: TurnId | None
    user: Turn
    answer_id: TurnId | None
    recipe: Recipe
    recipe_is_new: bool
    pieces: int
    text: str
    tokens: int
    outcome: Outcome | None

    def into(self, store: Store) -> Written:
        """One transaction: all of it, or nothing."""
        with store.together():
            title = title_of(self.user)
            conversation = self.conversation or store.new_conversation(title=title, model=self.model)
            user, answer = self.user_id, self.answer_id
            if user is None:
                user = store.add_turn(conversation, self.parent, self.user)
                store.save_draft(conversation, StoredDraft())
            if answer is None:
                self._name(store, conversation, title)
                answer = store.begin_answer(user, self.recipe)
            elif self.recipe_is_new:
                store.set_recipe(answer, self.recipe)
            if self.outcome is not None:
                store.end_answer(answer, self.text, self.outcome, tokens=self.tokens)
            elif self.pieces:
                store.append_answer(answer, self.text, self.tokens)
            if self.answer_id is not None:
                return Written(conversation, user, answer)
            said, asked = store.turn(user), store.turn(answer)
            return Written(
                conversation,
                user,
                answer,
                Siblings(said.position, said.siblings),
                Siblings(asked.position, asked.siblings),
            )

    def _name(self, store: Store, conversation: ConversationId, title: str) -> None:
        """A conversation that was only a draft has no title yet; the model may be another one now."""
        found = store.conversation(conversation)
        if not found.title:
            store.rename(conversation, title)
        if self.model and found.model != self.model:
            store.set_model(conversation, self.model)


class Written(msgspec.Struct, frozen=True):
    conversation: ConversationId
    user: TurnId
    answer: TurnId
    user_siblings: Siblings | None = None
    answer_siblings: Siblings | None = None


def title_of(turn: Turn) -> str:
    """The first words of a message, in one line; of one without words the names of its attachments."""
    text = " ".join(map(one_line, turn.text.split())) or ", ".join(one_line(item.name) for item in turn.attachments)
    return text if len(text) <= TITLE_MAX else text[: TITLE_MAX - 1].rstrip() + "…"


def keep_draft_of(
    store: Store, *, conversation: ConversationId | None, model: str, draft: StoredDraft
) -> ConversationId | None:
    """The conversation that has the draft now; None where there is nothing to keep, and none is needed."""
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


def write_of(entry: Entry) -> AnswerWrite:
    answer, exchange, above = entry.answer, entry.exchange, entry.exchange.above
    recipe = entry.recipe
    recipe_is_new = answer.prompt is not None and not entry.has_prompt
    if recipe_is_new and answer.prompt is not None:
        recipe = msgspec.structs.replace(recipe, prompt=answer.prompt.prompt)
    return AnswerWrite(
        conversation=entry.conversation.id,
        model=entry.conversation.model,
        parent=None if above is None else above.answer_id or above.user_id,
        user_id=exchange.user_id,
        user=exchange.user,
        answer_id=entry.id,
        recipe=recipe,
        recipe_is_new=recipe_is_new,
        pieces=len(answer.pieces),
        text=answer.text,
        tokens=answer.tokens,
        outcome=_outcome(answer),
    )


def _outcome(answer: Answer) -> Outcome | None:
    """How it ended, for the store."""
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
    statistics = Statistics(usage=answer.usage)
    if isinstance(answer.outcome, Finished):
        ended = answer.outcome
        statistics = msgspec.structs.replace(statistics, finish_reason=ended.finish_reason, stop=ended.stop)
    if answer.timings is not None:
        statistics = msgspec.structs.replace(statistics, timings=answer.timings)
    return Outcome(state=state, statistics=statistics, failure=answer.failure)
