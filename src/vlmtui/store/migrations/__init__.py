"""The database's schema as numbered steps: `0001_….sql` leads from version 0 to 1, and so on."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources

from vlmtui.store.checksums import SINCE, write_checksums

APPLICATION_ID = 0x766C6D74
"""`vlmt`: marks the file as ours in its header."""
_NAME = re.compile(r"(\d{4})_\w+\.sql")


@cache
def known_steps() -> Mapping[int, str]:
    """The SQL that leads to each version, by version, in order."""
    files = ((_NAME.fullmatch(file.name), file) for file in resources.files(__name__).iterdir())
    steps = {int(match[1]): file.read_text(encoding="utf-8") for match, file in files if match}
    return dict(sorted(steps.items()))


def latest() -> int:
    """The version that this code reads and writes."""
    return max(known_steps())


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, to: int | None = None) -> None:
    """Bring the schema up to version `to` (default: the latest). Call it inside a transaction, so that all or nothing
    of it happens."""
    done, wanted = version_of(connection), latest() if to is None else to
    for version, sql in known_steps().items():
        if done < version <= wanted:
            for statement in _statements(sql):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")
    if done < wanted and wanted >= SINCE:
        write_checksums(connection)  # of the columns that are there now
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def expected_schema(version: int) -> frozenset[tuple[str, str]]:
    """Every table, index, view and trigger of a version: its name and its SQL."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate(connection, version)
        return schema_of(connection)
    finally:
        connection.close()


def schema_of(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return frozenset((str(name), str(sql)) for name, sql in rows)


def _statements(sql: str) -> Iterator[str]:
    """Single statements; `executescript` would commit the transaction first."""
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
