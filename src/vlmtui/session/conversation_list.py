"""The list of stored conversations, loaded in pages, and the actions on them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial

import msgspec

from vlmtui.domain.times import local_time
from vlmtui.errors import Remedy, VlmtuiError, bad_input
from vlmtui.session.async_store import AsyncStore
from vlmtui.store.records import ConversationId, ConversationRecord, ListEntry, Pictures, StoredTurn
from vlmtui.store.store import Store

PAGE = 100
"""Conversations per page."""
PREVIEW_TURNS = 8
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class Entry(msgspec.Struct, frozen=True):
    """A conversation in the list."""

    listed: ListEntry
    pictures: Pictures = msgspec.field(default_factory=Pictures)

    @property
    def id(self) -> ConversationId:
        return self.conversation.id

    @property
    def conversation(self) -> ConversationRecord:
        return self.listed.conversation


class Page(msgspec.Struct, frozen=True):
    """A page of the list, and whether it is the last."""

    entries: list[Entry]
    is_last: bool


class ConversationList:
    """The list. Every method that uses the store raises its VlmtuiError, and then changes nothing."""

    def __init__(self, store: AsyncStore, open_id: ConversationId | None = None) -> None:
        """`open_id`: the conversation open in the chat, which cannot be deleted here."""
        self._store = store
        self.open_id = open_id
        self.query = ""
        self.entries: list[Entry] = []
        self.is_whole = False
        """True if `entries` is the complete list."""
        self.deleted: list[ConversationRecord] = []
        """Conversations deleted here that can be restored, most recent last."""

    async def find(self, query: str) -> None:
        """List the conversations that contain all words of `query`; empty: all."""
        await self._load(query, PAGE)

    async def reload(self) -> None:
        """Reload the list."""
        await self._load(self.query, max(PAGE, len(self.entries)))

    async def more(self) -> None:
        """Load the next page."""
        if self.is_whole:
            return
        query, start = self.query, len(self.entries)
        page = await self._store.run(partial(_page, query=query, limit=PAGE, offset=start))
        if query == self.query and start == len(self.entries):
            known = {entry.id for entry in self.entries}
            self.entries = [*self.entries, *(entry for entry in page.entries if entry.id not in known)]
            self.is_whole = page.is_last

    async def rename(self, entry: Entry, title: str) -> None:
        title = " ".join(title.split())
        if not title:
            raise bad_input("A conversation needs a title.")
        await self._store.run(lambda store: store.rename(entry.id, title))
        await self.reload()

    async def toggle_pin(self, entry: Entry) -> None:
        """Pin a conversation, or unpin it, according to the store. Pinned ones come first."""
        await self._store.run(lambda store: store.pin(entry.id, not store.conversation(entry.id).pinned))
        await self.reload()

    async def delete(self, entry: Entry) -> None:
        """Delete a conversation; `undo` restores it. Raises VlmtuiError for the open one."""
        if entry.id == self.open_id:
            raise bad_input("This conversation is open.", remedy=Remedy.START_CONVERSATION)
        await self._store.run(lambda store: store.delete(entry.id))
        self.deleted = [*self.deleted, entry.conversation]
        await self.reload()

    async def undo(self) -> ConversationRecord:
        """Restore the conversation deleted last, preferably one deleted here. Raises VlmtuiError if there is none."""
        if not self.deleted:
            last = await undelete_last(self._store)
        else:
            last = self.deleted[-1]
            await self._store.run(lambda store: store.undelete(last.id))
            self.deleted = self.deleted[:-1]
        await self.reload()
        return last

    async def preview(self, entry: Entry) -> list[StoredTurn]:
        """Return the turn that matched the search; without a search, the newest turns."""
        turn = entry.listed.turn
        if turn is not None:
            return [await self._store.run(lambda store: store.turn(turn))]
        return await self._store.run(lambda store: store.turns(entry.id, limit=PREVIEW_TURNS, generations=False))

    async def _load(self, query: str, limit: int) -> None:
        page = await self._store.run(partial(_page, query=query, limit=limit, offset=0))
        self.query, self.entries, self.is_whole = query, page.entries, page.is_last


async def undelete_last(store: AsyncStore) -> ConversationRecord:
    """Restore the conversation deleted last, whenever that was. Raises VlmtuiError if there is none."""

    def bring_back(store: Store) -> ConversationRecord:
        deleted = store.deleted()
        if not deleted:
            raise bad_input("No conversation was deleted.")
        store.undelete(deleted[0].id)
        return msgspec.structs.replace(deleted[0], deleted_ms=None)

    return await store.run(bring_back)


def _page(store: Store, *, query: str, limit: int, offset: int) -> Page:
    """Read one more than `limit`, to know whether there are more."""
    listed = store.conversations(query, limit=limit + 1, offset=offset)
    shown = listed[:limit]
    pictures = _pictures(store, [one.conversation.id for one in shown])
    entries = [Entry(one, pictures.get(one.conversation.id, Pictures())) for one in shown]
    return Page(entries, is_last=len(listed) <= limit)


def _pictures(store: Store, conversations: Sequence[ConversationId]) -> dict[ConversationId, Pictures]:
    """Return the pictures; if they cannot be read, the list is shown without them."""
    found: dict[ConversationId, Pictures] = {}
    for start in range(0, len(conversations), PAGE):
        try:
            found |= store.pictures(conversations[start : start + PAGE])
        except VlmtuiError:
            continue
    return found


def ago(then_ms: int, now_s: float | None = None) -> str:
    """Format a time for people: `just now`, `5 min ago`, `3 h ago`, `yesterday`, `Tuesday`, `3 Mar`, `3 Mar 2024`.

    After the clock was set back a time may lie ahead: it is given by its date.
    """
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
