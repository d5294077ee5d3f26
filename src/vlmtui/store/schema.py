"""The database's schema (`schema.sql`). It has one version; a database of another one is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import cache
from importlib import resources

from vlmtui.store.checksums import write_checksums

APPLICATION_ID = 0x766C6D74
"""`vlmt`: marks the file as ours in its header."""
VERSION = 6
"""The `user_version` in the header. Change it with `schema.sql`."""


def create_schema(connection: sqlite3.Connection) -> None:
    """Create everything in an empty database. Call it inside a transaction, so that all or nothing of it happens."""
    for statement in _statements((resources.files("vlmtui.store") / "schema.sql").read_text(encoding="utf-8")):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    write_checksums(connection)


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@cache
def expected_schema() -> frozenset[tuple[str, str]]:
    """Return the name and the SQL of every table, index, view and trigger."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        create_schema(connection)
        return schema_of(connection)
    finally:
        connection.close()


def schema_of(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return frozenset((str(name), str(sql)) for name, sql in rows)


def _statements(sql: str) -> Iterator[str]:
    """Yield single statements; `executescript` would commit the transaction first."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
