"""The list of stored conversations: search, rename, pin, delete, undo."""

from __future__ import annotations

import time
from datetime import datetime

import msgspec

from vlmtui.domain.times import local_time
from vlmtui.errors import Remedy, bad_input
from vlmtui.session.async_store import AsyncStore
from vlmtui.store.records import ConversationId, ConversationRecord, ListEntry, StoredTurn
from vlmtui.store.store import Store

LISTED_MAX = 1000
"""Most conversations in the list without a search."""
FOUND_MAX = 100
"""Most conversations that a search returns."""
PREVIEW_TURNS = 8
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class ConversationList:
    """The list and its actions. A method that raises the store's VlmtuiError leaves the list unchanged."""

    def __init__(self, store: AsyncStore, open_id: ConversationId | None = None) -> None:
        """`open_id`: the open conversation, which can't be deleted here."""
        self._store = store
        self.open_id = open_id
        self.query = ""
        self.entries: list[ListEntry] = []
        self.is_whole = False
        """True if `entries` has all conversations that were found."""
        self.deleted: list[ConversationRecord] = []
        """Conversations deleted in this list that `undo` can restore, most recent last."""

    async def find(self, query: str) -> None:
        """List the conversations that contain all words of `query`; empty: all conversations."""
        limit = FOUND_MAX if query else LISTED_MAX
        found = await self._store.run(lambda store: store.conversations(query, limit=limit + 1))
        self.query, self.entries, self.is_whole = query, found[:limit], len(found) <= limit

    async def reload(self) -> None:
        await self.find(self.query)

    async def rename(self, entry: ListEntry, title: str) -> None:
        title = " ".join(title.split())
        await self._store.run(lambda store: store.rename(entry.id, title))
        await self.reload()

    async def toggle_pin(self, entry: ListEntry) -> None:
        """Pin a conversation, or unpin a pinned one. Pinned ones come first."""
        await self._store.run(lambda store: store.pin(entry.id, not store.conversation(entry.id).pinned))
        await self.reload()

    async def delete(self, entry: ListEntry) -> None:
        """Delete a conversation; `undo` restores it. Raises VlmtuiError for the open conversation."""
        if entry.id == self.open_id:
            raise bad_input("This conversation is open.", remedy=Remedy.START_CONVERSATION)
        await self._store.run(lambda store: store.delete(entry.id))
        self.deleted = [*self.deleted, entry.conversation]
        await self.reload()

    async def undo(self) -> ConversationRecord:
        """Restore the conversation deleted last in this list; if none was deleted here, the one deleted last in the
        store. Raises VlmtuiError."""
        if not self.deleted:
            last = await undelete_last(self._store)
        else:
            last = self.deleted[-1]
            await self._store.run(lambda store: store.undelete(last.id))
            self.deleted = self.deleted[:-1]
        await self.reload()
        return last

    async def preview(self, entry: ListEntry) -> list[StoredTurn]:
        """Return the turn that matched the search; without a search, the newest turns."""
        turn = entry.turn
        if turn is not None:
            return [await self._store.run(lambda store: store.turn(turn))]
        return await self._store.run(lambda store: store.turns(entry.id, limit=PREVIEW_TURNS, generations=False))


async def undelete_last(store: AsyncStore) -> ConversationRecord:
    """Restore the conversation that was deleted last. Raises VlmtuiError if there is none."""

    def bring_back(store: Store) -> ConversationRecord:
        deleted = store.deleted()
        if not deleted:
            raise bad_input("No conversation was deleted.")
        store.undelete(deleted[0].id)
        return msgspec.structs.replace(deleted[0], deleted_ms=None)

    return await store.run(bring_back)


def ago(then_ms: int, now_s: float | None = None) -> str:
    """Format a time for display: `just now`, `5 min ago`, `3 h ago`, `yesterday`, `Tuesday`, `3 Mar`, `3 Mar 2024`. A
    time in the future (the clock was set back) is given by its date."""
    now_s = time.time() if now_s is None else now_s
    then, now = local_time(then_ms), datetime.fromtimestamp(now_s)
    seconds, days = now_s - then_ms / 1000, (now.date() - then.date()).days
    date = f"{then.day} {then.strftime('%b')}" if then.year == now.year else f"{then.day} {then.strftime('%b %Y')}"
    if seconds <= -_HOUR:
        return date
    if seconds < _MINUTE:
        return "just now"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min ago"
    if days < 1 or seconds < _DAY / 4:
        return f"{int(seconds // _HOUR)} h ago"
    if days < 2:
        return "yesterday"
    if days < 7:
        return then.strftime("%A")
    return date
