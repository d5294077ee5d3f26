"""Full-text search. What the user types is words to be found, never syntax."""

from __future__ import annotations

from vlmtui.store.database import Database
from vlmtui.store.records import SearchHit, Snippet, TurnId

_OPEN, _CLOSE = "\ue000", "\ue001"
"""Private-use characters that mark what was found."""
_SNIPPET_TOKENS = 16
_QUERY_MAX, _WORDS_MAX = 1_000, 32


def match_expression(query: str) -> str | None:
    """An FTS5 expression for text that has all words of `query`, the last one perhaps still being typed; None where
    there is no word in it. Each word is quoted, so that nothing in it is an operator."""
    words = [word for word in query[:_QUERY_MAX].split() if any(character.isalnum() for character in word)]
    quoted = [f'"{_plain(word)}"' for word in words[:_WORDS_MAX]]
    return " ".join(quoted) + "*" if quoted else None


def search_turns(database: Database, expression: str, limit: int, offset: int) -> list[SearchHit]:
    """Turns that match, the newest first; none of deleted conversations."""
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
    """The words around what was found in one turn."""
    sql = f"SELECT {_snippet()} FROM turns_search WHERE turns_search MATCH ? AND rowid = ?"
    row = database.row(sql, (expression, turn))
    return read_snippet(row[0]) if row else None


def read_snippet(marked: str) -> Snippet:
    """FTS5's text with marks as text and positions. A text that holds the marks itself costs at most odd positions."""
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
    """Without what SQLite cannot take; quotes are doubled."""
    kept = "".join(character for character in word if character != "\0" and not "\ud800" <= character <= "\udfff")
    return kept.replace('"', '""')
