"""Insert, read, list and search conversations. The query of a search is plain words, never syntax."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import msgspec

from vlmtui.errors import bad_input
from vlmtui.store import tree
from vlmtui.store.database import Database, Row
from vlmtui.store.records import ConversationId, ConversationRecord, ListEntry, Pictures, Snippet, StoredDraft, TurnId
from vlmtui.store.tables import CONVERSATIONS, DRAFTS

_LENGTH = "coalesce((SELECT depth + 1 FROM turns WHERE turns.id = c.leaf), 0)"
_DRAFT = "(SELECT substr(text, 1, 1000) FROM drafts WHERE drafts.conversation = c.id)"
_ORDER = "ORDER BY c.pinned DESC, c.updated_ms DESC, c.number DESC LIMIT ? OFFSET ?"
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base 32: sorts numerically, and no two characters look alike."""
_OPEN = "\ue000"
"""Private-use character before a match."""
_CLOSE = "\ue001"
"""Private-use character after a match."""
_SNIPPET_TOKENS = 16
_QUERY_MAX, _WORDS_MAX = 1_000, 32


def new_id(made_ms: int) -> ConversationId:
    """Return an id of nine characters for the time (milliseconds, until the year 3084) and four random ones."""
    number = (made_ms << 20) | secrets.randbits(20)
    return ConversationId("".join(_ALPHABET[number >> shift & 31] for shift in range(60, -1, -5)))


def insert_conversation(database: Database, made_ms: int, *, title: str, model: str) -> ConversationId:
    """Insert a conversation, inside a transaction. Draws a new id if one is taken, as all conversations of a
    transaction share one time."""
    made = new_id(made_ms)
    while database.row("SELECT 1 FROM conversations WHERE id = ?", (made,)) is not None:
        made = new_id(made_ms)
    fields = {"id": made, "title": title, "model": model, "created_ms": made_ms, "updated_ms": made_ms}
    database.insert("conversations", CONVERSATIONS.encode(fields))
    return made


def read_conversation(database: Database, conversation: ConversationId) -> ConversationRecord:
    row = database.row(f"SELECT {_columns()} FROM conversations AS c WHERE c.id = ?", (conversation,))
    if row is None:
        raise bad_input(f"There is no conversation {conversation}.")
    return _conversation(row)


def list_conversations(database: Database, query: str | None, limit: int, offset: int) -> list[ListEntry]:
    """Return pinned conversations first, then the most recently changed; with `query`, those that contain its words in
    the title or in one turn."""
    if query is None or not query.strip():
        sql = f"SELECT {_columns()}, {_DRAFT} FROM conversations AS c WHERE c.deleted_ms IS NULL {_ORDER}"
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
        SELECT {_columns()}, {_DRAFT}, (SELECT max(turn) FROM hits WHERE hits.id = c.id)
        FROM conversations AS c WHERE c.id IN (SELECT id FROM hits) AND c.deleted_ms IS NULL
        {_ORDER.replace("LIMIT ? OFFSET ?", "LIMIT ?2 OFFSET ?3")}
    """
    with database.reading():
        rows = database.rows(sql, (expression, limit, offset))
        return [_found(database, expression, row) for row in rows]


def _found(database: Database, expression: str, row: Row) -> ListEntry:
    *known, turn = row
    snippet = _newest_match(database, expression, turn) if turn else None
    return msgspec.structs.replace(_listed(tuple(known)), turn=turn, snippet=snippet)


def _listed(row: Row) -> ListEntry:
    *columns, draft = row
    return ListEntry(conversation=_conversation(tuple(columns)), draft=draft or "")


def replace_draft(database: Database, now: int, conversation: ConversationId, draft: StoredDraft) -> None:
    """Replace the conversation's draft and its media references. Inside a transaction."""
    database.rows("DELETE FROM drafts WHERE conversation = ?", (conversation,))
    if draft.text or draft.attachments:
        fields = {**msgspec.structs.asdict(draft), "conversation": conversation, "saved_ms": now}
        database.insert("drafts", DRAFTS.encode(fields))
        for sha256 in {item.sha256 for item in draft.attachments.values()}:
            database.rows("INSERT INTO media_references (sha256, draft) VALUES (?, ?)", (sha256, conversation))


def deleted_conversations(database: Database) -> list[ConversationRecord]:
    """Return the conversations that can be restored, most recently deleted first."""
    sql = f"SELECT {_columns()} FROM conversations AS c WHERE c.deleted_ms IS NOT NULL ORDER BY c.deleted_ms DESC"
    return [_conversation(row) for row in database.rows(sql)]


def pictures(database: Database, conversations: Sequence[ConversationId]) -> dict[ConversationId, Pictures]:
    """Return the images and videos of each conversation that has any."""
    sql = f"""
        SELECT t.conversation, count(DISTINCT m.sha256), min(m.turn)
        FROM turns AS t JOIN media_references AS m ON m.turn = t.id
        WHERE t.conversation IN ({", ".join("?" * len(conversations))}) GROUP BY t.conversation
    """
    found = {}
    with database.reading():
        for conversation, count, turn in database.rows(sql, tuple(conversations)):
            first = next(iter(tree.read_turn(database, turn).turn.attachments), None)
            found[ConversationId(conversation)] = Pictures(count=count, first=first)
    return found


def _columns() -> str:
    return f"{CONVERSATIONS.select('c')}, {_LENGTH}"


def _conversation(row: Row) -> ConversationRecord:
    fields = CONVERSATIONS.decode(row)
    del fields["number"], fields["active_root"]
    return ConversationRecord(length=row[-1], **fields)


def match_expression(query: str) -> str | None:
    """Return an FTS5 expression that matches all words of `query`, the last one as a prefix; None if it has no words.
    Words are quoted, so that they cannot act as operators."""
    words = [word for word in query[:_QUERY_MAX].split() if any(character.isalnum() for character in word)]
    quoted = [f'"{_plain(word)}"' for word in words[:_WORDS_MAX]]
    return " ".join(quoted) + "*" if quoted else None


def _newest_match(database: Database, expression: str, turn: TurnId) -> Snippet | None:
    """Return the text around the matches in one turn."""
    sql = f"SELECT {_snippet()} FROM turns_search WHERE turns_search MATCH ? AND rowid = ?"
    row = database.row(sql, (expression, turn))
    return read_snippet(row[0]) if row else None


def read_snippet(marked: str) -> Snippet:
    """Split FTS5's marked text into text and positions. Marks in the original text only shift positions."""
    text, marks, start = "", [], -1
    for character in marked:
        if character == _OPEN:
            start = len(text)
        elif character == _CLOSE:
            if 0 <= start < len(text):
                marks.append((start, len(text)))
            start = -1
        else:
            text += character
    return Snippet(text, tuple(marks))


def _snippet() -> str:
    return f"snippet(turns_search, 0, '{_OPEN}', '{_CLOSE}', '…', {_SNIPPET_TOKENS})"


def _plain(word: str) -> str:
    """Remove characters that SQLite cannot handle, and double the quotes."""
    kept = "".join(character for character in word if character != "\0" and not "\ud800" <= character <= "\udfff")
    return kept.replace('"', '""')
