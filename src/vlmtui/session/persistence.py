"""Writes answers and drafts to the store. Its thread writes copies, since the originals change meanwhile.

Only sending a message waits for the disk. Failed writes stay queued in order and are retried until they succeed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from vlmtui.domain.conversation import Text, Turn, attachments_of
from vlmtui.errors import VlmtuiError
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.exchange import Branch, Exchange, Siblings, answer_data
from vlmtui.session.generation import Answer, media_items, system_tokens
from vlmtui.store.errors import StoreError
from vlmtui.store.records import AnswerData, ConversationId, GenerationRecord, StoredDraft, TurnId
from vlmtui.text import one_line

if TYPE_CHECKING:
    from vlmtui.store.store import Store

TITLE_MAX = 60
_log = logging.getLogger(__name__)
WRITE_EVERY_S = 0.8
"""The most seconds until streamed text or a draft is written."""


class LiveConversation(msgspec.Struct, eq=False):
    """A conversation that is open in this process; stored once it has an id."""

    id: ConversationId | None = None
    model: str = ""
    """The name of the model that answered last, as the user wrote it."""
    branch: Branch = msgspec.field(default_factory=Branch)
    """The branch on screen."""
    draft: StoredDraft = msgspec.field(default_factory=StoredDraft)
    """The draft that is stored or about to be."""


class PendingAnswer(msgspec.Struct, eq=False):
    """An answer and its message, and how much of both is stored."""

    conversation: LiveConversation
    exchange: Exchange
    answer: Answer
    record: GenerationRecord
    id: TurnId | None = None
    pieces: int = 0
    """The number of the answer's pieces that are stored."""
    has_prompt: bool = False
    is_over: bool = False

    def forget_stored(self) -> None:
        """Forget the ids from the store, and what was stored: the store has lost the conversation."""
        self.id, self.pieces, self.has_prompt = None, 0, False
        exchange = self.exchange
        exchange.user_id = exchange.answer_id = None
        exchange.user_siblings = exchange.answer_siblings = Siblings()

    @property
    def is_dirty(self) -> bool:
        """True if a part of the answer is not stored yet."""
        answer = self.answer
        return not self.is_over and (
            self.id is None
            or answer.outcome is not None
            or len(answer.pieces) > self.pieces
            or (answer.prompt is not None and not self.has_prompt)
        )


class AnswerWrite(msgspec.Struct, frozen=True):
    """A copy of a pending answer, for the store's thread."""

    conversation: ConversationId | None
    model: str
    parent: TurnId | None
    user_id: TurnId | None
    answer_id: TurnId | None
    user: Turn
    left_out: bool
    text: str
    answer: AnswerData
    record: GenerationRecord
    pieces: int
    draft: StoredDraft
    """The draft to store with a new message, in place of the old one."""

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
                store.save_draft(conversation, self.draft)
            if answer is None:
                self._name(store, conversation, title)
                answer = store.begin_answer(user, self.record)
            store.write_answer(answer, self.text, self.answer)
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
        """Set the conversation's model, and its title if it has none yet."""
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
    """Return a title: the first words of a message, and the names of attachments between these words. A message without
    words gets the names of all its attachments."""
    text = " ".join(map(one_line, _titled(turn).split())) or ", ".join(one_line(item.name) for item in turn.attachments)
    return text if len(text) <= TITLE_MAX else text[: TITLE_MAX - 1].rstrip() + "…"


def _titled(turn: Turn) -> str:
    """Return the message's text, with the name of each attachment that comes after the first word."""
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
    """Store a draft; delete it if it is empty. Return its conversation, which is created if necessary; None if an empty
    draft leaves no conversation."""
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
    """Return a copy of everything to write about a pending answer."""
    answer, exchange, above = pending.answer, pending.exchange, pending.exchange.above
    record, new_record = pending.record, None
    if answer.prompt is not None and not pending.has_prompt:
        sent = attachments_of(exchange.request.prompt) if exchange.request is not None else ()
        record = new_record = msgspec.structs.replace(
            record,
            prompt=answer.prompt.prompt,
            media_tokens=tuple(item.tokens for item in media_items(answer.prompt, sent)),
            system_tokens=system_tokens(answer, record.system_prompt),
        )
    return AnswerWrite(
        conversation=pending.conversation.id,
        model=pending.conversation.model,
        parent=None if above is None else above.answer_id or above.user_id,
        user_id=exchange.user_id,
        answer_id=pending.id,
        user=exchange.user,
        left_out=exchange.is_left_out,
        text=answer.text,
        answer=answer_data(answer, new_record),
        record=record,
        pieces=len(answer.pieces),
        draft=pending.conversation.draft,
    )


class Recorder:
    """Writes answers and drafts as they change.

    on_trouble: called with the error when writing first fails, and with None when everything is written.
    on_saved_again: called after a conversation that the store had lost was written again."""

    def __init__(
        self,
        store: AsyncStore,
        *,
        on_trouble: Callable[[VlmtuiError | None], None],
        on_saved_again: Callable[[], None] = lambda: None,
        retry_s: float = 3.0,
    ) -> None:
        """`retry_s`: seconds between attempts while writing fails."""
        self._on_saved_again = on_saved_again
        self.store = store
        self._retry_s = retry_s
        self._on_trouble = on_trouble
        self._pending: list[PendingAnswer] = []
        self._drafts: dict[LiveConversation, StoredDraft] = {}
        self._left_out: list[Exchange] = []
        """Exchanges whose `is_left_out` is not written yet."""
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self.trouble: VlmtuiError | None = None
        """Why the pending writes fail."""

    @property
    def waiting(self) -> int:
        """The number of changes that are not written yet."""
        return sum(pending.is_dirty for pending in self._pending) + len(self._drafts) + len(self._left_out)

    def is_waiting(self, conversation: LiveConversation) -> bool:
        """Return whether an answer of this conversation is not written yet."""
        return any(pending.conversation is conversation and pending.is_dirty for pending in self._pending)

    def begin(self, conversation: LiveConversation, exchange: Exchange, record: GenerationRecord) -> PendingAnswer:
        """Register an exchange with a new answer for writing. A new message replaces the stored draft."""
        if exchange.user_id is None:
            self._drafts.pop(conversation, None)
            conversation.draft = StoredDraft()
        pending = PendingAnswer(conversation, exchange, exchange.answer, record)
        self._pending.append(pending)
        return pending

    def rewrite(self, conversation: LiveConversation, exchange: Exchange, record: GenerationRecord) -> PendingAnswer:
        """Register a partly stored answer that is received again from its beginning."""
        pending = self.begin(conversation, exchange, record)
        pending.id, pending.has_prompt = exchange.answer_id, bool(record.prompt)
        return pending

    def abandon(self, pending: PendingAnswer) -> None:
        """Stop writing an answer; the stored part stays."""
        self._pending = [other for other in self._pending if other is not pending]

    def touch(self) -> None:
        """Write all changes within a second."""
        if self._timer is None and not self._is_closed:
            delay = WRITE_EVERY_S if self.trouble is None else self._retry_s
            self._timer = asyncio.get_running_loop().call_later(delay, self._write_soon)

    def save_draft(self, conversation: LiveConversation, draft: StoredDraft) -> None:
        """Write a draft within a second if it has changed; an empty draft deletes the stored draft."""
        if draft != conversation.draft:
            conversation.draft = self._drafts[conversation] = draft
            self.touch()

    def save_left_out(self, exchange: Exchange) -> None:
        """Write within a second whether later prompts leave the exchange's attachments out."""
        self._left_out = [*(other for other in self._left_out if other is not exchange), exchange]
        self.touch()

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Run `work` in a task that `settle` waits for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, timeout_s: float) -> None:
        """Wait for the tasks of `spawn`, then write everything pending."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        await self.flush()

    async def close(self, timeout_s: float = 0.0) -> None:
        """Write everything pending, for the last time."""
        await self.settle(timeout_s)
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def flush(self) -> bool:
        """Write everything pending, in order. Return False if something can't be written; it is retried later."""
        async with self._lock:
            try:
                for pending in list(self._pending):
                    await self._write(pending)
                for conversation, draft in list(self._drafts.items()):
                    await self._write_draft(conversation, draft)
                for exchange in list(self._left_out):
                    await self._write_left_out(exchange)
            except VlmtuiError as error:
                self._note_trouble(error)
                self.touch()
                return False
            self._note_trouble(None)
            return True

    def _write_soon(self) -> None:
        self._timer = None
        self.spawn(self.flush())

    def _note_trouble(self, error: VlmtuiError | None) -> None:
        was, self.trouble = self.trouble, error
        if (was is None) != (error is None):
            _log.warning("the store: %s", error.message if error else "all is written again")
            self._on_trouble(error)

    async def _write(self, pending: PendingAnswer) -> None:
        if not pending.is_dirty or await self._is_done("an answer", self._put(pending)):
            return
        if await self._ended_elsewhere(pending):
            pending.is_over = True
            self.abandon(pending)
        else:
            await self._write_again(pending.conversation)

    async def _is_done(self, what: str, work: Awaitable[object]) -> bool:
        """Await a write. Return False if the store no longer has what it belongs to. Raises StoreError."""
        try:
            await work
        except StoreError:
            raise
        except VlmtuiError as error:
            _log.warning("%s could not be stored where it belongs: %s", what, error.message)
            return False
        return True

    async def _put(self, pending: PendingAnswer) -> None:
        """Write a pending answer, and note its ids and how much of it is stored."""
        write = write_of(pending)
        written = await self.store.run(write.write_to)
        conversation = pending.conversation
        conversation.id, pending.id = written.conversation, written.answer
        pending.pieces, pending.has_prompt = write.pieces, bool(write.record.prompt)
        pending.record = write.record
        exchange = pending.exchange
        exchange.user_id = written.user
        exchange.user_siblings = written.user_siblings or exchange.user_siblings
        if exchange.answer is pending.answer:
            exchange.answer_id, exchange.record = written.answer, write.record
            exchange.answer_siblings = written.answer_siblings or exchange.answer_siblings
        if write.answer.state != "running":
            pending.is_over = True
            self.abandon(pending)

    async def _write_again(self, conversation: LiveConversation) -> None:
        """Write a conversation that the store has lost as a new one, with all exchanges of its branch."""
        waiting = [pending for pending in self._pending if pending.conversation is conversation]
        again: list[PendingAnswer] = []
        for exchange in conversation.branch.all:
            record = exchange.record or GenerationRecord(model=conversation.model, mode=exchange.mode)
            own = [pending for pending in waiting if pending.exchange is exchange]
            again += own or [PendingAnswer(conversation, exchange, exchange.answer, record)]
        again += [pending for pending in waiting if pending not in again]
        self._pending = [*(pending for pending in self._pending if pending not in waiting), *again]
        conversation.id = None
        for pending in again:
            pending.forget_stored()
        for pending in again:
            await self._put(pending)
        if len(again) > len(waiting):
            self._on_saved_again()

    async def _ended_elsewhere(self, pending: PendingAnswer) -> bool:
        turn = pending.id
        if turn is None:
            return False
        try:
            return (await self.store.run(lambda store: store.turn(turn))).state in ("complete", "stopped", "failed")
        except StoreError:
            raise
        except VlmtuiError:
            return False

    async def _write_left_out(self, exchange: Exchange) -> None:
        """Store whether later prompts leave the exchange's attachments out. If its message is not stored yet, this is
        stored with it."""
        turn, left_out = exchange.user_id, exchange.is_left_out
        if turn is not None:
            work = self.store.run(lambda store: store.leave_out(turn, left_out))
            await self._is_done("whether attachments are left out", work)
        if exchange.is_left_out == left_out:
            self._left_out = [other for other in self._left_out if other is not exchange]

    async def _write_draft(self, conversation: LiveConversation, draft: StoredDraft) -> None:
        async def write() -> None:
            work = partial(write_draft, conversation=conversation.id, model=conversation.model, draft=draft)
            conversation.id = await self.store.run(work)

        if not await self._is_done("a draft", write()):
            await self._write_again(conversation)
            await write()
        if self._drafts.get(conversation) is draft:
            del self._drafts[conversation]
