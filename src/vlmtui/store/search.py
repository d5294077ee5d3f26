"""Full-text search. The query is plain words, never syntax."""

from __future__ import annotations

from vlmtui.store.database import Database
from vlmtui.store.records import SearchHit, Snippet, TurnId

SEARCHES = ("turns_search", "titles_search")
"""The indexes: of turns, and of titles."""
_OPEN, _CLOSE = "\ue000", "\ue001"
"""Private-use characters that mark the matches."""
_SNIPPET_TOKENS = 16
_QUERY_MAX, _WORDS_MAX = 1_000, 32


def match_expression(query: str) -> str | None:
    """Return an FTS5 expression that matches all words of `query`, the last one as a prefix; None if it has no words.
    Words are quoted, so that they cannot act as operators."""
    words = [word for word in query[:_QUERY_MAX].split() if any(character.isalnum() for character in word)]
    quoted = [f'"{_plain(word)}"' for word in words[:_WORDS_MAX]]
    return " ".join(quoted) + "*" if quoted else None


def search_turns(database: Database, expression: str, limit: int, offset: int) -> list[SearchHit]:
    """Return matching turns, newest first, without deleted conversations."""
    sql = f"""
        SELECT t.conversation, t.id, t.role, {_snippet()}
        FROM turns_search JOIN turns AS t ON t.id = turns_search.rowid
        JOIN conversations AS c ON c.id = t.conversation
        WHERE turns_search MATCH ? AND c.deleted_ms IS NULL
        ORDER BY turns_search.rowid DESC LIMIT ? OFFSET ?
    """
    return [
        SearchHit(conversation=row[0], turn=row[1], role=row[2], snippet=read_snippet(row[3]))
        for row in database.rows(sql, (expression, limit, offset))
    ]


def newest_match(database: Database, expression: str, turn: TurnId) -> Snippet | None:
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
