"""Copies the rows of a database into a new one, so that nothing but rows comes along."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Part
from vlmtui.errors import VlmtuiError
from vlmtui.store.database import Row, Value
from vlmtui.store.media_files import place
from vlmtui.store.tables import TABLES, Table


def copy_rows(old: sqlite3.Connection, new: sqlite3.Connection, media: Path) -> None:
    """Copy all rows into the empty database `new`. Attachments refer to the files in `media`. Raises sqlite3.Error, and
    ValueError for a row that vlmtui does not write."""
    new.execute("PRAGMA foreign_keys = OFF")  # until all are there
    new.execute("BEGIN IMMEDIATE")
    for table in TABLES:
        marks = ", ".join("?" * len(table.columns))
        rows = old.execute(f"SELECT {table.names} FROM {table.name} NOT INDEXED ORDER BY rowid")
        insert = f"INSERT INTO {table.name} ({table.names}) VALUES ({marks})"
        new.executemany(insert, (_copied(table, row, media) for row in rows))
    given_out = "SELECT seq, name FROM sqlite_sequence WHERE typeof(seq) = 'integer' AND typeof(name) = 'text'"
    new.executemany("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", old.execute(given_out))
    (last_ms,) = old.execute("SELECT max(last_ms) FROM clock WHERE typeof(last_ms) = 'integer'").fetchone()
    new.execute("UPDATE clock SET last_ms = ?", (last_ms or 0,))
    if broken := new.execute("PRAGMA foreign_key_check").fetchone():
        raise ValueError(f"a row of {broken[0]} refers to a row of {broken[2]} that is not there")
    new.execute("COMMIT")


def _copied(table: Table, row: Row, media: Path) -> Row:
    found: list[Value] = []
    for column, value in zip(table.columns, row, strict=True):
        if not column.accepts(value):
            raise ValueError(f"a value of {table.name}.{column.name} has another type")
        match column.decode(value) if column.name in ("parts", "attachments") else None:
            case tuple(parts) if parts:
                value = column.encode(tuple(_local_part(part, media) for part in parts))
            case dict(attachments) if attachments:
                value = column.encode({number: _local(item, media) for number, item in attachments.items()})
        found.append(value)
    return tuple(found)


def _local_part(part: Part, media: Path) -> Part:
    return Media(_local(part.attachment, media)) if isinstance(part, Media) else part


def _local(attachment: Attachment, media: Path) -> Attachment:
    try:
        path = str(place(media, attachment.sha256))
    except VlmtuiError as error:
        raise ValueError(error.message) from error
    return msgspec.structs.replace(attachment, path=path)
