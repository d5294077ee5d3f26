"""Taking away for good what was deleted long ago."""

from __future__ import annotations

from vlmtui.store import blobs
from vlmtui.store.records import ConversationId
from vlmtui.store.store import Store


def purge_deleted(store: Store, older_than_s: float) -> list[ConversationId]:
    """The conversations that were deleted so long ago are gone afterwards, with the media that only they needed; says
    which they were. Other media stay, also where nothing needs them: a database that was set aside might. Raises
    VlmtuiError."""
    if not store.deleted():
        return []
    with store.database.writing() as now:
        # Where it is open still, in another terminal, what is said there counts as well.
        ages = {found.id: now - max(found.deleted_ms or now, found.updated_ms) for found in store.deleted()}
        old = [conversation for conversation, age_ms in ages.items() if age_ms >= older_than_s * 1000]
        media = {sha256 for conversation in old for sha256 in _media(store, conversation)}
        for conversation in old:
            store.purge(conversation)
    with store.database.writing():  # no process can begin to need one meanwhile
        needed = {row[0] for row in store.database.rows("SELECT DISTINCT sha256 FROM media_references")}
        for sha256 in media - needed:
            for path in blobs.of(store.media, sha256):
                blobs.remove(path)
    return old


def _media(store: Store, conversation: ConversationId) -> list[str]:
    """The hashes of what its turns and its draft need."""
    sql = """
        SELECT m.sha256 FROM media_references AS m LEFT JOIN turns AS t ON t.id = m.turn
        WHERE t.conversation = ?1 OR m.draft = ?1
    """
    return [row[0] for row in store.database.rows(sql, (conversation,))]
