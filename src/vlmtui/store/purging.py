"""Erases conversations that were deleted long ago, and the media that nothing else uses."""

from __future__ import annotations

from vlmtui.media.content_store import remove_copies
from vlmtui.store.records import ConversationId
from vlmtui.store.store import Store


def purge_deleted(store: Store, older_than_s: float) -> list[ConversationId]:
    """Erase, in one transaction, the conversations that were deleted at least `older_than_s` seconds ago, and return
    their ids. Those with newer changes or a running answer stay, and so do media that a turn or a draft refers to.

    The files go before the commit: a kill in between leaves a conversation that the next call erases, and no file that
    nothing refers to. Raises VlmtuiError if the database cannot be written, OSError if a file cannot be removed.
    """
    database = store.database
    last_change = "max(c.deleted_ms, c.updated_ms, coalesce(d.saved_ms, 0))"
    sql = (
        "SELECT c.id FROM conversations AS c LEFT JOIN drafts AS d ON d.conversation = c.id"
        f" WHERE c.deleted_ms IS NOT NULL AND {last_change} <= ?"
    )
    with database.writing():
        rows = database.rows(sql, (database.clock_ms - int(older_than_s * 1000),))
        due = [ConversationId(row[0]) for row in rows if not store.is_answering(row[0])]
        used = {sha256 for conversation in due for sha256 in _media(store, conversation)}
        for conversation in due:
            store.purge(conversation)
        for sha256 in sorted(used):
            if database.row("SELECT 1 FROM media_references WHERE sha256 = ?", (sha256,)) is None:
                remove_copies(store.media, sha256)
    return due


def _media(store: Store, conversation: ConversationId) -> list[str]:
    """Return the hashes of the media that its turns and its draft use."""
    sql = """
        SELECT DISTINCT m.sha256 FROM media_references AS m LEFT JOIN turns AS t ON t.id = m.turn
        WHERE t.conversation = ?1 OR m.draft = ?1
    """
    return [row[0] for row in store.database.rows(sql, (conversation,))]
