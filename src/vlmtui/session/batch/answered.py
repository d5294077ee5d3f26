"""Which items have a line in the output file already. On disk, so that memory stays flat for a million of them."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import NamedTuple

_CACHE_KIB = 1024
_SCHEMA = """
CREATE TABLE answered (
    name BLOB PRIMARY KEY, key TEXT NOT NULL, failed INTEGER NOT NULL, place INTEGER NOT NULL, line INTEGER NOT NULL,
    has_id INTEGER NOT NULL
) WITHOUT ROWID
"""


class AnsweredRow(NamedTuple):
    """An item's line in the output file."""

    key: str
    failed: bool
    place: int
    """The byte at which the line begins; -1: there is none."""
    line: int
    """The input line that this run has met it at; 0: not yet."""
    has_id: bool = True
    """False: an input line that was not an item."""


class AnsweredIndex:
    """Rows by item, in a temporary database that the system removes with the process. Use it from one thread at a
    time."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in (f"cache_size = -{_CACHE_KIB}", "journal_mode = OFF", "synchronous = OFF"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute(_SCHEMA)

    def find(self, name: bytes) -> AnsweredRow | None:
        found = self._database.execute("SELECT key, failed, place, line, has_id FROM answered WHERE name = ?", (name,))
        row = found.fetchone()
        return None if row is None else AnsweredRow(row[0], bool(row[1]), row[2], row[3], bool(row[4]))

    def put(self, name: bytes, row: AnsweredRow) -> None:
        """Add or replace a row."""
        self._database.execute("INSERT OR REPLACE INTO answered VALUES (?, ?, ?, ?, ?, ?)", (name, *row))

    def meet(self, name: bytes, line: int, *, has_id: bool = True) -> AnsweredRow | None:
        """Return the row of an item as it was, and note the line of the input that it is at."""
        row = self.find(name)
        self.put(name, (row or AnsweredRow("", False, -1, 0, has_id))._replace(line=line))
        return row

    def has_stale_lines(self) -> bool:
        """Whether there are errors of input lines that this run has not met."""
        found = self._database.execute("SELECT 1 FROM answered WHERE has_id = 0 AND line = 0 LIMIT 1")
        return found.fetchone() is not None

    def move(self, places: list[tuple[int, bytes]]) -> None:
        """Set where lines begin now."""
        self._database.executemany("UPDATE answered SET place = ? WHERE name = ?", places)

    def remove(self, name: bytes) -> None:
        self._database.execute("DELETE FROM answered WHERE name = ?", (name,))

    def begin(self) -> None:
        """Begin many changes at once, which is faster."""
        self._database.execute("BEGIN")

    def end(self) -> None:
        self._database.execute("COMMIT")

    def close(self) -> None:
        self._database.close()


def name_of(item_id: str | None, line: int) -> bytes:
    """Return the key of an item in the index: by its id, or where a line has none by the line's number."""
    text = f"line {line}" if item_id is None else f"id {item_id}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
