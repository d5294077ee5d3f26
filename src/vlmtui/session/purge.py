"""Removes deleted conversations from the disk, with everything stored only for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlmtui.paths import Paths
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.raw_draft import draft_file

if TYPE_CHECKING:
    from vlmtui.store.records import ConversationId
    from vlmtui.store.store import Store


async def purge(conversations: AsyncStore, paths: Paths, *, older_than_s: float) -> list[ConversationId]:
    """Purge conversations deleted more than `older_than_s` seconds ago, and return their ids. Raises VlmtuiError as
    the store does."""
    from vlmtui.store.purging import purge_deleted

    def work(store: Store) -> list[ConversationId]:
        purged = purge_deleted(store, older_than_s)
        for conversation in purged:
            draft_file(paths, conversation).unlink(missing_ok=True)
        return purged

    return await conversations.run(work)
