"""What is said, on its way into the store. No widgets here.

Nothing waits for the disk but a message before it is sent. What cannot be written stays here, in its order, and is
tried again until it can.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from vlmtui.errors import VlmtuiError
from vlmtui.store.database import StoreError
from vlmtui.store.records import Recipe, StoredDraft
from vlmtui.ui.controllers.exchange import Exchange
from vlmtui.ui.controllers.keeper import Keeper
from vlmtui.ui.controllers.writing import AnswerWrite, Entry, LiveConversation, Written, keep_draft_of, write_of

__all__ = ["LiveConversation", "Recorder"]

_log = logging.getLogger(__name__)

WRITE_EVERY_S = 0.8
"""How old a streamed text or a draft becomes before it is written."""
RETRY_EVERY_S = 3.0


class Recorder:
    """Writes answers and drafts. `on_trouble` is called with the error when writing fails at first, and with None when
    all is written again."""

    def __init__(self, keeper: Keeper, *, on_trouble: Callable[[VlmtuiError | None], None]) -> None:
        self.keeper = keeper
        self._on_trouble = on_trouble
        self._entries: list[Entry] = []
        self._drafts: dict[LiveConversation, StoredDraft] = {}
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self.trouble: VlmtuiError | None = None
        """Why what waits could not be written."""

    @property
    def waiting(self) -> int:
        """How many answers and drafts are not wholly written."""
        return sum(entry.is_dirty for entry in self._entries) + len(self._drafts)

    def is_waiting(self, conversation: LiveConversation) -> bool:
        """Whether something of this conversation is not written."""
        return any(entry.conversation is conversation and entry.is_dirty for entry in self._entries)

    def begin(self, conversation: LiveConversation, exchange: Exchange, recipe: Recipe) -> Entry:
        """An exchange with a new answer; `flush` writes both. Its turn was written down as a draft until now."""
        self._drafts.pop(conversation, None)
        entry = Entry(conversation, exchange, exchange.answer, recipe)
        self._entries.append(entry)
        return entry

    def go_on(self, conversation: LiveConversation, exchange: Exchange, recipe: Recipe) -> Entry:
        """An answer that is stored in part, and comes anew from its beginning."""
        entry = self.begin(conversation, exchange, recipe)
        entry.id, entry.has_prompt = exchange.answer_id, bool(recipe.prompt)
        return entry

    def give_up(self, entry: Entry) -> None:
        """Leave it as it is stored."""
        self._entries = [other for other in self._entries if other is not entry]

    def touch(self) -> None:
        """Something has changed: it is written within a second."""
        if self._timer is None and not self._is_closed:
            delay = WRITE_EVERY_S if self.trouble is None else RETRY_EVERY_S
            self._timer = asyncio.get_running_loop().call_later(delay, self._write_soon)

    def keep_draft(self, conversation: LiveConversation, draft: StoredDraft) -> None:
        """Write a draft within a second; an empty one deletes it."""
        self._drafts[conversation] = draft
        self.touch()

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something that `settle` waits for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, timeout_s: float) -> None:
        """Wait for what was begun, and write all that waits."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        await self.flush()

    async def close(self, timeout_s: float = 0.0) -> None:
        """Write what waits, for the last time."""
        await self.settle(timeout_s)
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def flush(self) -> bool:
        """Write all there is, in its order. False where something could not be written; it is tried again later."""
        async with self._lock:
            try:
                for entry in list(self._entries):
                    await self._write(entry)
                for conversation, draft in list(self._drafts.items()):
                    await self._write_draft(conversation, draft)
            except VlmtuiError as error:
                self._tell(error)
                self.touch()
                return False
            self._tell(None)
            return True

    def _write_soon(self) -> None:
        self._timer = None
        self.spawn(self.flush())

    def _tell(self, error: VlmtuiError | None) -> None:
        """The first failure, and the end of it."""
        was, self.trouble = self.trouble, error
        if (was is None) != (error is None):
            _log.warning("the store: %s", error.message if error else "all is written again")
            self._on_trouble(error)

    async def _write(self, entry: Entry) -> None:
        if not entry.is_dirty:
            return
        write = write_of(entry)
        try:
            written = await self.keeper.run(write.into)
        except StoreError:
            raise
        except VlmtuiError as error:
            _log.warning("an answer could not be stored where it belongs: %s", error.message)
            if await self._ended_elsewhere(entry):
                entry.is_over = True
                self.give_up(entry)
                return
            # The conversation is not there any more: what is said now goes into a new one.
            entry.conversation.id = entry.exchange.user_id = entry.id = entry.exchange.above = None
            write = write_of(entry)
            written = await self.keeper.run(write.into)
        self._note(entry, write, written)

    async def _ended_elsewhere(self, entry: Entry) -> bool:
        turn = entry.id
        if turn is None:
            return False
        try:
            return (await self.keeper.run(lambda store: store.turn(turn))).state in ("complete", "stopped", "failed")
        except StoreError:
            raise
        except VlmtuiError:
            return False

    def _note(self, entry: Entry, write: AnswerWrite, written: Written) -> None:
        """What the store has now."""
        entry.conversation.id, entry.id = written.conversation, written.answer
        entry.pieces, entry.has_prompt = write.pieces, bool(write.recipe.prompt)
        entry.recipe = write.recipe
        exchange = entry.exchange
        exchange.user_id = written.user
        exchange.user_siblings = written.user_siblings or exchange.user_siblings
        if exchange.answer is entry.answer:
            exchange.answer_id, exchange.recipe = written.answer, write.recipe
            exchange.answer_siblings = written.answer_siblings or exchange.answer_siblings
        if write.outcome is not None:
            entry.is_over = True
            self.give_up(entry)

    async def _write_draft(self, conversation: LiveConversation, draft: StoredDraft) -> None:
        work = partial(keep_draft_of, conversation=conversation.id, model=conversation.model, draft=draft)
        try:
            conversation.id = await self.keeper.run(work)
        except StoreError:
            raise
        except VlmtuiError as error:
            _log.warning("a draft's conversation is gone: %s", error.message)
            work = partial(keep_draft_of, conversation=None, model=conversation.model, draft=draft)
            conversation.id = await self.keeper.run(work)
        if self._drafts.get(conversation) is draft:
            del self._drafts[conversation]
