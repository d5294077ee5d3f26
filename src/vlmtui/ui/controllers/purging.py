"""What was deleted long ago, taken away for good. No widgets here."""

from __future__ import annotations

from vlmtui.paths import Paths
from vlmtui.store.records import ConversationId
from vlmtui.store.store import Store
from vlmtui.ui.controllers.keeper import Keeper
from vlmtui.ui.controllers.raw_draft import draft_file


async def purge(keeper: Keeper, paths: Paths, *, older_than_s: float) -> list[ConversationId]:
    """Conversations that were deleted so long ago, with all that is kept of them alone; says which. Raises VlmtuiError
    as the store does."""
    from vlmtui.store.purging import purge_deleted

    def work(store: Store) -> list[ConversationId]:
        purged = purge_deleted(store, older_than_s)
        for conversation in purged:
            draft_file(paths, conversation).unlink(missing_ok=True)
        return purged

    return await keeper.run(work)
