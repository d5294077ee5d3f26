"""Writes answers and drafts to the store.

Only a message waits for the disk, before it is sent. Failed writes are queued in order and retried until they succeed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any

from vlmtui.errors import VlmtuiError
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.exchange import Exchange, Siblings
from vlmtui.session.stored_answer import (
    AnswerWrite,
    LiveConversation,
    PendingAnswer,
    WriteResult,
    past_of,
    write_draft,
    write_of,
    write_past,
)
from vlmtui.store.database import StoreError
from vlmtui.store.records import GenerationRecord, StoredDraft

_log = logging.getLogger(__name__)

WRITE_EVERY_S = 0.8
"""Most seconds that streamed text or a draft stays unwritten."""


class Recorder:
    """Writes answers and drafts as they change. `on_trouble` is called with the error when writing first fails, and
    with None when everything is written; `on_saved_again` when the store had lost a conversation, which was stored
    again from the screen's copy."""

    def __init__(
        self,
        store: AsyncStore,
        *,
        on_trouble: Callable[[VlmtuiError | None], None],
        on_saved_again: Callable[[], None] = lambda: None,
        retry_s: float = 3.0,
    ) -> None:
        """`retry_s`: seconds between attempts while the store cannot be written."""
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
        """Why the pending writes failed."""

    @property
    def waiting(self) -> int:
        """How many answers, drafts and other changes are not completely written."""
        return sum(pending.is_dirty for pending in self._pending) + len(self._drafts) + len(self._left_out)

    def is_waiting(self, conversation: LiveConversation) -> bool:
        """Whether something of this conversation is not written yet."""
        return any(pending.conversation is conversation and pending.is_dirty for pending in self._pending)

    def begin(self, conversation: LiveConversation, exchange: Exchange, record: GenerationRecord) -> PendingAnswer:
        """Write an exchange with a new answer from the next `flush` on. It replaces the stored draft."""
        self._drafts.pop(conversation, None)
        pending = PendingAnswer(conversation, exchange, exchange.answer, record)
        self._pending.append(pending)
        return pending

    def write_now(self, pending: PendingAnswer) -> None:
        """Begin to write an answer before the event loop does anything else; the next `flush` waits for it. Does
        nothing where other writes come first."""
        is_first = not any(other.is_dirty for other in self._pending if other is not pending)
        if is_first and not self._lock.locked() and self.trouble is None:
            with suppress(VlmtuiError):  # the store is closed: `flush` tells so
                pending.begun = self._begun(pending)

    def rewrite(self, conversation: LiveConversation, exchange: Exchange, record: GenerationRecord) -> PendingAnswer:
        """Rewrite an answer that is stored in part and is received again from its beginning."""
        pending = self.begin(conversation, exchange, record)
        pending.id, pending.has_prompt = exchange.answer_id, bool(record.prompt)
        return pending

    def abandon(self, pending: PendingAnswer) -> None:
        """Stop writing an answer: it stays as it is stored."""
        self._pending = [other for other in self._pending if other is not pending]

    def touch(self) -> None:
        """Write all changes within a second."""
        if self._timer is None and not self._is_closed:
            delay = WRITE_EVERY_S if self.trouble is None else self._retry_s
            self._timer = asyncio.get_running_loop().call_later(delay, self._write_soon)

    def save_draft(self, conversation: LiveConversation, draft: StoredDraft) -> None:
        """Write a draft within a second; an empty one deletes it."""
        self._drafts[conversation] = draft
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
        """Wait for tasks of `spawn`, then write everything pending."""
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
        """Write everything pending, in order. False if something could not be written; it is retried later."""
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
        """Report the first failure, and recovery."""
        was, self.trouble = self.trouble, error
        if (was is None) != (error is None):
            _log.warning("the store: %s", error.message if error else "all is written again")
            self._on_trouble(error)

    async def _write(self, pending: PendingAnswer) -> None:
        if not pending.is_dirty:
            return
        begun, pending.begun = pending.begun, None
        try:
            write, writing = begun or self._begun(pending)
            written = await self.store.result(writing)
        except StoreError:
            raise
        except VlmtuiError as error:
            _log.warning("an answer could not be stored where it belongs: %s", error.message)
            if await self._ended_elsewhere(pending):
                pending.is_over = True
                self.abandon(pending)
                return
            # The conversation is gone: store it again as a new one, with the answer at its end.
            await self._save_again(pending.conversation)
            write = write_of(pending)
            written = await self.store.run(write.write_to)
        self._note(pending, write, written)

    def _begun(self, pending: PendingAnswer) -> tuple[AnswerWrite, Future[WriteResult]]:
        write = write_of(pending)
        return write, self.store.begin(write.write_to)

    async def _save_again(self, conversation: LiveConversation) -> None:
        """Store a lost conversation again, except for the pending answers, which are then written into it."""
        waiting = [pending for pending in self._pending if pending.conversation is conversation]
        shown = conversation.branch.all if conversation.branch is not None else []
        exchanges = list(takewhile(lambda exchange: all(exchange is not one.exchange for one in waiting), shown))
        conversation.id = None
        for pending in waiting:
            pending.note_gone(is_parentless=not exchanges)
        if not exchanges:
            return
        past = past_of(exchanges, conversation.model)
        saved = await self.store.run(partial(write_past, past=past, model=conversation.model))
        conversation.id = saved.conversation
        for exchange, one, (user, answer) in zip(exchanges, past, saved.turns, strict=True):
            exchange.note_stored(user, Siblings())
            if answer is not None:
                exchange.note_answer_stored(answer, one.record, Siblings())
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

    def _note(self, pending: PendingAnswer, write: AnswerWrite, written: WriteResult) -> None:
        """Update the pending answer with what was stored."""
        pending.conversation.id, pending.id = written.conversation, written.answer
        pending.pieces, pending.has_prompt = write.pieces, bool(write.record.prompt)
        pending.record = write.record
        exchange = pending.exchange
        exchange.note_stored(written.user, written.user_siblings)
        if exchange.answer is pending.answer:
            exchange.note_answer_stored(written.answer, write.record, written.answer_siblings)
        if write.outcome is not None:
            pending.is_over = True
            self.abandon(pending)

    async def _write_left_out(self, exchange: Exchange) -> None:
        """Store the flag; a turn that is not stored yet carries it with it."""
        turn, left_out = exchange.user_id, exchange.is_left_out
        if turn is not None:
            try:
                await self.store.run(lambda store: store.leave_out(turn, left_out))
            except StoreError:
                raise
            except VlmtuiError as error:
                _log.warning("a turn whose attachments are left out is gone: %s", error.message)
        if exchange.is_left_out == left_out:
            self._left_out = [other for other in self._left_out if other is not exchange]

    async def _write_draft(self, conversation: LiveConversation, draft: StoredDraft) -> None:
        work = partial(write_draft, conversation=conversation.id, model=conversation.model, draft=draft)
        try:
            conversation.id = await self.store.run(work)
        except StoreError:
            raise
        except VlmtuiError as error:
            _log.warning("a draft's conversation is gone: %s", error.message)
            await self._save_again(conversation)
            work = partial(write_draft, conversation=conversation.id, model=conversation.model, draft=draft)
            conversation.id = await self.store.run(work)
        if self._drafts.get(conversation) is draft:
            del self._drafts[conversation]
