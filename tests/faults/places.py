"""What a database stores, for comparing all of it, and what the bytes are in which two files differ."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from vlmtui.store.database import open_connection
from vlmtui.store.search import SEARCHES
from vlmtui.store.tables import TABLES

Content = tuple[object, ...]
_HEADER_BYTES = 100
_TABLES = (*(table.name for table in TABLES), "clock", "sqlite_sequence")
_PRAGMAS = ("user_version", "application_id", "encoding", "page_size", "auto_vacuum", "journal_mode")


def stored(database: bytes) -> Content | None:
    """Return every value of every row, the schema and the settings of a database; None if it cannot be read."""
    with _opened(database) as connection:
        try:
            rows = [tuple(connection.execute(f"SELECT rowid, * FROM {table} NOT INDEXED")) for table in _TABLES]
            settings = [connection.execute(f"PRAGMA {pragma}").fetchone() for pragma in _PRAGMAS]
            schema = frozenset(connection.execute("SELECT name, sql FROM sqlite_schema"))
            return (*rows, *settings, schema)
        except sqlite3.Error:
            return None


def places(before: bytes, after: bytes) -> str:
    """Return what the bytes belong to in which two files differ; `nothing` if they do not."""
    with _opened(before) as connection:
        size = int.from_bytes(before[16:18], "big")
        owners = {page: name.decode() for page, name in connection.execute("SELECT pageno, name FROM dbstat")}
    differing = [at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
    return " and ".join(sorted({_place(at, at // size + 1, owners) for at in differing})) or "nothing"


def _place(at: int, page: int, owners: dict[int, str]) -> str:
    if at < _HEADER_BYTES:
        return f"file header, byte {at}"
    if page not in owners:
        return "a free page"
    return "a page of the search index" if owners[page].startswith(SEARCHES) else "a page of a table or its index"


def counted(found: Iterable[str]) -> str:
    """Return each text with how often it is there."""
    every = sorted(found)
    return ", ".join(f"{text} {every.count(text):,}" for text in dict.fromkeys(every))


@contextmanager
def _opened(database: bytes) -> Iterator[sqlite3.Connection]:
    """Open a copy, whose texts are read as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copy.db"
        path.write_bytes(database)
        with closing(open_connection(path)) as connection:
            connection.text_factory = bytes
            yield connection
