"""Copies all readable rows out of a damaged database."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from vlmtui.store.checksums import keep_checksums
from vlmtui.store.database import Row, code_of, open_connection
from vlmtui.store.row_repair import mend
from vlmtui.store.tables import TABLES, TURNS, Table

_PROBED_PAST_END = 1_000
"""Rows to try one by one if the number of rows is unknown."""
_PROBED_MAX = 100_000
_INTERIOR_PAGE = 5
_ATTEMPTS = ((True, True), (False, True), (False, False))
"""The file with its own schema, or a new one; with the journal, or without it: it may contain the damaged page."""
Make = Callable[[Path], Path]


@dataclass
class SalvageResult:
    """How much was recovered. `turns_lost` is None if the number of turns is unknown."""

    conversations: int = 0
    turns: int = 0
    turns_lost: int | None = None


@dataclass
class _Found:
    rows: dict[str, list[Row]] = field(default_factory=dict)
    turns_lost: int | None = None


def salvage(damaged: Path, fresh: Path, *, make: Make) -> SalvageResult:
    """Fill the empty database `fresh` from `damaged`, which is only read. `make` creates an empty
    database."""
    best = _Found()
    copy = damaged.with_name(f"{damaged.name}.salvage")
    try:
        for has_schema, with_journal in _ATTEMPTS:
            _remove(copy)
            shutil.copyfile(damaged, copy)
            journal = damaged.with_name(f"{damaged.name}-wal")
            if with_journal and journal.exists():
                shutil.copyfile(journal, copy.with_name(f"{copy.name}-wal"))
            if not has_schema:
                _replace_schema(copy, make)
            found = _read(copy)
            if _count(found) > _count(best):
                best = found
            if best.rows.get("turns") and best.rows.get("conversations"):
                break
    finally:
        _remove(copy)
    return _write(best, fresh)


def readable_rows(copy: Path) -> dict[str, list[Row]]:
    """Return the rows of each table that can be read, by the table's name. The file may be changed."""
    return _read(copy).rows


def _replace_schema(copy: Path, make: Make) -> None:
    """Replace header and schema with those of a new database: they occupy the same pages in every database created with
    this schema. Offsets: sqlite.org/fileformat."""
    pattern = copy.with_name(f"{copy.name}-pattern")
    make(pattern)
    whole = pattern.read_bytes()
    _remove(pattern)
    size = int.from_bytes(whole[16:18], "big")
    with copy.open("r+b") as file:
        pages = max(1, file.seek(0, 2) // size)
        for page in _schema_pages(whole, size):
            if page <= pages:
                file.seek((page - 1) * size)
                file.write(whole[(page - 1) * size : page * size])
        # Pages in the file, first page of the free list, pages in the free list.
        file.seek(28)
        file.write(pages.to_bytes(4, "big") + bytes(8))


def _schema_pages(whole: bytes, size: int) -> list[int]:
    """Return the numbers of the pages of the schema table: the first one and those it points to."""
    if whole[100] != _INTERIOR_PAGE:
        return [1]
    count = int.from_bytes(whole[103:105], "big")
    cells = [int.from_bytes(whole[112 + 2 * cell : 114 + 2 * cell], "big") for cell in range(count)]
    pointers = [*cells, 108]
    return [1, *(int.from_bytes(whole[at : at + 4], "big") for at in pointers)]


def _read(copy: Path) -> _Found:
    found = _Found()
    with closing(open_connection(copy)) as connection:
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA writable_schema = ON")
        for table in TABLES:
            rows, lost = _rows_of(connection, table)
            found.rows[table.name] = rows
            if table is TURNS:
                found.turns_lost = lost
    return found


def _rows_of(connection: sqlite3.Connection, table: Table) -> tuple[list[Row], int | None]:
    """Return the readable rows of a table, and the most rows that may be lost. Reads forwards to the first damage,
    backwards to the last, and one by one in between."""
    rows: dict[int, Row] = {}
    known = _last_number(connection, table.name)
    top = known or 2**40
    select = f"SELECT rowid, {_columns(connection, table)} FROM {table.name} NOT INDEXED"
    damage = _scan(connection, f"{select} ORDER BY rowid", range(1, top + 1), rows)
    if damage is None:
        return list(rows.values()), 0
    if damage != sqlite3.SQLITE_CORRUPT and not rows:
        return [], None
    low = max(rows, default=0)
    _scan(connection, f"{select} WHERE rowid > {low} ORDER BY rowid DESC", range(low + 1, top + 1), rows)
    high = min((row for row in rows if row > low), default=None)
    end = high or (known + 1 if known else low + _PROBED_PAST_END)
    for number in range(low + 1, min(end, low + _PROBED_MAX)):
        _scan(connection, f"{select} WHERE rowid = {number}", range(number, number + 1), rows)
    # Includes rows purged long ago, as a damaged page does not show what it contained.
    lost = end - 1 - sum(number < end for number in rows)
    is_known = (high is not None or known is not None) and lost <= _PROBED_MAX
    return [rows[number] for number in sorted(rows)], lost if is_known else None


def _columns(connection: sqlite3.Connection, table: Table) -> str:
    """Return the table's columns for a SELECT, with defaults for those that an older version lacks."""
    with suppress(sqlite3.Error):
        present = {row[1] for row in connection.execute(f"PRAGMA table_info({table.name})")}
        if present:
            quote = "SELECT quote(?)"
            return ", ".join(
                column.name
                if column.name in present
                else str(connection.execute(quote, (column.encode(column.default),)).fetchone()[0])
                for column in table.columns
            )
    return table.names


def _scan(connection: sqlite3.Connection, sql: str, wanted: range, rows: dict[int, Row]) -> int | None:
    """Add the readable rows. Return None, or the error code of the damage. A duplicate or out-of-range row id means a
    damaged row."""
    damage = None
    try:
        for number, *row in connection.execute(sql):
            if number in wanted and number not in rows:
                rows[number] = tuple(row)
            else:
                damage = sqlite3.SQLITE_CORRUPT
    except (sqlite3.Error, OverflowError) as error:
        return code_of(error) if isinstance(error, sqlite3.Error) else sqlite3.SQLITE_CORRUPT
    return damage


def _last_number(connection: sqlite3.Connection, table: str) -> int | None:
    try:
        found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    except sqlite3.Error:
        return None
    return int(found[0]) if found and isinstance(found[0], int) and 0 <= found[0] < 2**40 else None


def _write(found: _Found, fresh: Path) -> SalvageResult:
    rows = mend(found.rows)
    with closing(open_connection(fresh)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        keep_checksums(connection)
        connection.execute("BEGIN IMMEDIATE")
        for table in TABLES:
            marks = ", ".join("?" * len(table.columns))
            sql = f"INSERT OR IGNORE INTO {table.name} ({table.names}) VALUES ({marks})"
            for row in rows[table.name]:
                # A damaged row may break the table's own rules.
                with suppress(sqlite3.IntegrityError, sqlite3.InterfaceError, OverflowError):
                    connection.execute(sql, row)
        times = "SELECT max(updated_ms) AS ms FROM conversations UNION ALL SELECT max(created_ms) FROM turns"
        connection.execute(f"UPDATE clock SET last_ms = coalesce((SELECT max(ms) FROM ({times})), 0)")
        connection.execute("COMMIT")
        counts = [int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]) for name in rows]
    kept_of = dict(zip(rows, counts, strict=True))
    left_out = len(found.rows.get("turns", [])) - kept_of["turns"]
    lost = None if found.turns_lost is None else found.turns_lost + left_out
    return SalvageResult(kept_of["conversations"], kept_of["turns"], lost)


def _count(found: _Found) -> int:
    return sum(len(rows) for rows in found.rows.values())


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
