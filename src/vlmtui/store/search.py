"""The words of a search: never syntax, whatever was typed; and the marked text that SQLite finds by them."""

from __future__ import annotations

from vlmtui.store.records import Snippet

_OPEN = "\ue000"
"""Private-use character before a match."""
_CLOSE = "\ue001"
"""Private-use character after a match."""
_SNIPPET_TOKENS = 16
_QUERY_MAX, _WORDS_MAX = 1_000, 32
SNIPPET = f"snippet(turns_search, 0, '{_OPEN}', '{_CLOSE}', '…', {_SNIPPET_TOKENS})"
"""The SQL expression of the text around the matches of one turn."""


def match_expression(query: str) -> str | None:
    """Return an FTS5 expression that matches all words of `query`, the last one as a prefix; None if it has no words.
    Words are quoted, so that they cannot act as operators."""
    words = [word for word in query[:_QUERY_MAX].split() if any(character.isalnum() for character in word)]
    quoted = [f'"{_plain(word)}"' for word in words[:_WORDS_MAX]]
    return " ".join(quoted) + "*" if quoted else None


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


def _plain(word: str) -> str:
    """Remove characters that SQLite cannot handle, and double the quotes."""
    kept = "".join(character for character in word if character != "\0" and not "\ud800" <= character <= "\udfff")
    return kept.replace('"', '""')
