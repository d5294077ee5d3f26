"""The database's schema (`schema.sql`). It has one version; a database of another one is refused."""

from __future__ import annotations

import re
import sqlite3
from functools import cache
from importlib import resources

from vlmtui.text import one_line

SEARCHES = ("turns_search", "titles_search")
"""The indexes for searching: of turns, and of titles."""
_SQL = (resources.files("vlmtui.store") / "schema.sql").read_text(encoding="utf-8")
VERSION, _APPLICATION_ID = (int(number, 0) for number in re.findall(r"^PRAGMA \w+ = (\w+);", _SQL, re.MULTILINE))


SchemaPart = tuple[str, str, str]
"""A table, index, view or trigger: its kind, its name and its SQL."""


def create_schema(connection: sqlite3.Connection) -> None:
    """Create everything in an empty database, all or nothing."""
    connection.executescript(f"BEGIN IMMEDIATE; {_SQL} COMMIT;")


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def schema_fault(connection: sqlite3.Connection) -> str | None:
    """Return why a database's schema is not exactly that of `schema.sql`, or None. Raises sqlite3.Error."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        return "its header is not vlmtui's"
    found, expected = schema_of(connection), expected_schema()
    foreign, lacking = _named(found - expected), _named(expected - found)
    if foreign:
        return f"it has parts that vlmtui did not make: {foreign}"
    return f"it lacks parts of its schema: {lacking}" if lacking else None


@cache
def expected_schema() -> frozenset[SchemaPart]:
    """Return every table, index, view and trigger."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        create_schema(connection)
        return schema_of(connection)
    finally:
        connection.close()


def schema_of(connection: sqlite3.Connection) -> frozenset[SchemaPart]:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return frozenset((str(kind), str(name), str(sql)) for kind, name, sql in rows)


def _named(parts: frozenset[SchemaPart]) -> str:
    names = sorted(f"{one_line(kind)} {one_line(name)}"[:80] for kind, name, _ in parts)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
