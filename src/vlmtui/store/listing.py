"""Conversations as rows: making, listing, finding."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from vlmtui.errors import bad_input
from vlmtui.store import tree
from vlmtui.store.columns import storable, to_json
from vlmtui.store.database import Database, Row
from vlmtui.store.records import Conversation, ConversationId, Listed, Pictures, Snippet, StoredDraft, TurnId
from vlmtui.store.search import match_expression, newest_match

_COLUMNS = """
    c.id, c.title, c.model, c.created_ms, c.updated_ms, c.pinned, c.deleted_ms, c.leaf,
    coalesce((SELECT depth + 1 FROM turns WHERE turns.id = c.leaf), 0)
"""
_DRAFT = "(SELECT substr(text, 1, 1000) FROM drafts WHERE drafts.conversation = c.id)"
_ORDER = "ORDER BY c.pinned DESC, c.updated_ms DESC, c.number DESC LIMIT ? OFFSET ?"
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32: sorts as the numbers do, and no two signs look alike."""


def new_id(made_ms: int) -> ConversationId:
    """Nine signs of time (milliseconds, until the year 3084) and four of chance."""
    number = (made_ms << 20) | secrets.randbits(20)
    return ConversationId("".join(_ALPHABET[number >> shift & 31] for shift in range(60, -1, -5)))


def insert(database: Database, made_ms: int, *, title: str, model: str) -> ConversationId:
    """A new conversation, inside a transaction. All that one transaction makes have one time, so an id that is
    taken is drawn again."""
    made = new_id(made_ms)
    while database.row("SELECT 1 FROM conversations WHERE id = ?", (made,)) is not None:
        made = new_id(made_ms)
    database.rows(
        "INSERT INTO conversations (id, title, model, created_ms, updated_ms) VALUES (?, ?, ?, ?, ?)",
        (made, storable(title), storable(model), made_ms, made_ms),
    )
    return made


def one(database: Database, conversation: ConversationId) -> Conversation:
    row = database.row(f"SELECT {_COLUMNS} FROM conversations AS c WHERE c.id = ?", (conversation,))
    if row is None:
        raise bad_input(f"There is no conversation {conversation}.")
    return _conversation(row)


def listed(database: Database, query: str | None, limit: int, offset: int) -> list[Listed]:
    """Pinned ones first, then the last changed first; with `query`, those that have its words in their title or in one
    turn."""
    if query is None or not query.strip():
        sql = f"SELECT {_COLUMNS}, {_DRAFT} FROM conversations AS c WHERE c.deleted_ms IS NULL {_ORDER}"
        return [_listed(row) for row in database.rows(sql, (limit, offset))]
    expression = match_expression(query)
    if expression is None:
        return []
    sql = f"""
        WITH hits (id, turn) AS (
            SELECT t.conversation, max(t.id) FROM turns_search JOIN turns AS t ON t.id = turns_search.rowid
            WHERE turns_search MATCH ?1 GROUP BY t.conversation
            UNION ALL
            SELECT c.id, NULL FROM titles_search JOIN conversations AS c ON c.number = titles_search.rowid
            WHERE titles_search MATCH ?1
        )
        SELECT {_COLUMNS}, {_DRAFT}, (SELECT max(turn) FROM hits WHERE hits.id = c.id)
        FROM conversations AS c WHERE c.id IN (SELECT id FROM hits) AND c.deleted_ms IS NULL
        {_ORDER.replace("LIMIT ? OFFSET ?", "LIMIT ?2 OFFSET ?3")}
    """
    with database.reading():
        rows = database.rows(sql, (expression, limit, offset))
        return [_listed(row, row[10], row[10] and newest_match(database, expression, row[10])) for row in rows]


def _listed(row: Row, turn: TurnId | None = None, snippet: Snippet | None = None) -> Listed:
    return Listed(conversation=_conversation(row[:9]), draft=row[9] or "", turn=turn, snippet=snippet)


def keep_draft(database: Database, now: int, conversation: ConversationId, draft: StoredDraft) -> None:
    """Replace the conversation's draft, and what it refers to. Inside a transaction."""
    database.rows("DELETE FROM drafts WHERE conversation = ?", (conversation,))
    if draft.text or draft.attachments:
        values = (conversation, storable(draft.text), to_json(draft.attachments), now)
        database.rows("INSERT INTO drafts (conversation, text, attachments, saved_ms) VALUES (?, ?, ?, ?)", values)
        for sha256 in {item.sha256 for item in draft.attachments.values()}:
            database.rows("INSERT INTO media_references (sha256, draft) VALUES (?, ?)", (sha256, conversation))


def deleted(database: Database) -> list[Conversation]:
    """Those that can be undeleted, the last deleted first."""
    sql = f"SELECT {_COLUMNS} FROM conversations AS c WHERE c.deleted_ms IS NOT NULL ORDER BY c.deleted_ms DESC"
    return [_conversation(row) for row in database.rows(sql)]


def pictures(database: Database, conversations: Sequence[ConversationId]) -> dict[ConversationId, Pictures]:
    """The images and videos of each conversation that has any."""
    sql = f"""
        SELECT t.conversation, count(DISTINCT m.sha256), min(m.turn)
        FROM turns AS t JOIN media_references AS m ON m.turn = t.id
        WHERE t.conversation IN ({", ".join("?" * len(conversations))}) GROUP BY t.conversation
    """
    found = {}
    with database.reading():
        for conversation, count, turn in database.rows(sql, tuple(conversations)):
            first = next(iter(tree.one(database, turn).turn.attachments), None)
            found[ConversationId(conversation)] = Pictures(count=count, first=first)
    return found


def _conversation(row: Row) -> Conversation:
    return Conversation(
        id=row[0],
        title=row[1],
        model=row[2],
        created_ms=row[3],
        updated_ms=row[4],
        pinned=bool(row[5]),
        deleted_ms=row[6],
        leaf=row[7],
        length=row[8],
    )
