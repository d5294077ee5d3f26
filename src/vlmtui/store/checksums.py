"""Checksums of rows, so that content that changes below SQLite is noticed: flipped bits, a page that was not written.

Every table has a column `checksum`, and the one row of `clock` the sum of them all: a row that has an earlier, sound
content, or is gone, is missed there. An update adds to the checksum of a row what the content changed by, so that
updating a damaged row does not make it sound.

Temporary triggers keep the checksums. They belong to a connection: what other programs write is noticed, too.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from typing import Final

import msgspec

KEYS: Final = {
    "conversations": "id",
    "turns": "id",
    "drafts": "conversation",
    "comparisons": "id",
    "media_references": "sha256",
}
"""The tables, and what identifies a row to a reader."""
_LAST_ID: Final = {"conversations": "last_conversation", "turns": "last_turn", "comparisons": "last_comparison"}
"""The column of `clock` for a table's greatest id. SQLite's own note of it, `sqlite_sequence`, takes no trigger."""
_CLOCK = "clock"
_COLUMN = "checksum"
_MASK = (1 << 60) - 1
"""Sums of two checksums fit SQLite's integers."""


def keep_checksums(connection: sqlite3.Connection) -> None:
    """Make the connection keep the checksums of the newest schema with all that it writes. Raises sqlite3.Error."""
    _add_function(connection)
    for table in KEYS:
        for trigger in _triggers(connection, table):
            connection.execute(trigger)
    connection.execute(
        f"CREATE TEMP TRIGGER checksum_{_CLOCK} AFTER UPDATE OF {', '.join(_columns(connection, _CLOCK))}"
        f" ON main.{_CLOCK} BEGIN {_updated(connection, _CLOCK)}; END"
    )


def write_checksums(connection: sqlite3.Connection) -> None:
    """Set every checksum from what is there, inside a transaction. Raises sqlite3.Error."""
    _add_function(connection)
    total = 0
    for table in KEYS:
        connection.execute(f"UPDATE {table} SET {_COLUMN} = {_sum_of(connection, table, table)}")
        total += sum(int(row[0]) for row in connection.execute(f"SELECT {_COLUMN} FROM {table}"))
    last = {column: _given_out(connection, table) for table, column in _LAST_ID.items()}
    sets = ", ".join(f"{column} = {number}" for column, number in {"rows_sum": total & _MASK, **last}.items())
    connection.execute(f"UPDATE {_CLOCK} SET {sets}")
    connection.execute(f"UPDATE {_CLOCK} SET {_COLUMN} = {_sum_of(connection, _CLOCK, _CLOCK)}")


def broken_checksums(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Yield where stored content is not what was written, and in what way. Raises sqlite3.Error."""
    _add_function(connection)
    total = 0
    for table, key in KEYS.items():
        rows = connection.execute(
            f"SELECT {key}, {_COLUMN}, {_sum_of(connection, table, table)} FROM {table} NOT INDEXED ORDER BY rowid"
        )
        for identity, kept, found in rows:
            total += kept if isinstance(kept, int) else 0
            if kept != found:
                yield f"{table} {identity}", "is not what was stored"
    clock = connection.execute(
        f"SELECT {_COLUMN}, {_sum_of(connection, _CLOCK, _CLOCK)}, rows_sum, {', '.join(_LAST_ID.values())} FROM clock"
    ).fetchone()
    if clock is None or clock[0] != clock[1]:
        yield _CLOCK, "is not what was stored"
        return
    if clock[2] != total & _MASK:
        yield "all rows", "some are missing, or have an earlier content"
    for table, last in zip(_LAST_ID, clock[3:], strict=True):
        if _given_out(connection, table) != last:
            yield table, "the last number that was given out is not what was stored"


def _add_function(connection: sqlite3.Connection) -> None:
    connection.create_function("row_checksum", -1, _row_checksum, deterministic=True)


def _row_checksum(table: str, types: str, *values: bytes | None) -> int:
    """Return a number of 60 bits for a row of these values."""
    digest = hashlib.blake2b(msgspec.msgpack.encode((table, types, values)), digest_size=8).digest()
    return int.from_bytes(digest, "big") & _MASK


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})") if row[1] != _COLUMN]


def _sum_of(connection: sqlite3.Connection, table: str, row: str) -> str:
    """Return the SQL of a row's checksum; `row` is `new`, `old` or the table. Bytes and types are summed up, as damaged
    text cannot be decoded."""
    columns = _columns(connection, table)
    types = " || ".join(f"typeof({row}.{column})" for column in columns)
    return f"row_checksum('{table}', {types}, {', '.join(f'CAST({row}.{column} AS BLOB)' for column in columns)})"


def _triggers(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    stored = f"(SELECT {_COLUMN} FROM {table} WHERE rowid = new.rowid)"
    last = f", {_LAST_ID[table]} = max({_LAST_ID[table]}, new.rowid)" if table in _LAST_ID else ""
    yield (
        f"CREATE TEMP TRIGGER checksum_{table}_insert AFTER INSERT ON main.{table} BEGIN"
        f" UPDATE {table} SET {_COLUMN} = {_sum_of(connection, table, 'new')} WHERE rowid = new.rowid;"
        f" UPDATE {_CLOCK} SET rows_sum = (rows_sum + {stored}) & {_MASK}{last}; END"
    )
    yield (
        f"CREATE TEMP TRIGGER checksum_{table}_update AFTER UPDATE OF {', '.join(_columns(connection, table))}"
        f" ON main.{table} BEGIN {_updated(connection, table)};"
        f" UPDATE {_CLOCK} SET rows_sum = (rows_sum + {stored} - old.{_COLUMN}) & {_MASK}; END"
    )
    yield (
        f"CREATE TEMP TRIGGER checksum_{table}_delete AFTER DELETE ON main.{table} BEGIN"
        f" UPDATE {_CLOCK} SET rows_sum = (rows_sum - old.{_COLUMN}) & {_MASK}; END"
    )


def _updated(connection: sqlite3.Connection, table: str) -> str:
    after, before = _sum_of(connection, table, "new"), _sum_of(connection, table, "old")
    return f"UPDATE {table} SET {_COLUMN} = (old.{_COLUMN} + {after} - {before}) & {_MASK} WHERE rowid = new.rowid"


def _given_out(connection: sqlite3.Connection, table: str) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return 0 if row is None else int(row[0])
