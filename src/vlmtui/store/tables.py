"""The columns of each table. A field of a struct in `records` is a column of the same name. Reading, writing, export,
import and restoring use these definitions; a test compares them with the schema."""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from vlmtui.domain.conversation import Attachment, Part, with_changed_media
from vlmtui.domain.times import LAST_MS
from vlmtui.errors import VlmtuiError
from vlmtui.media.content_store import place
from vlmtui.reading import decode_json
from vlmtui.store.database import Row, Value
from vlmtui.store.records import ConversationRecord, Milliseconds, StoredComparison, StoredDraft, StoredTurn

T = TypeVar("T")
Fields = dict[str, Any]
"""A row's values by field name."""
_LOG = logging.getLogger(__name__)
_LONE = re.compile("[\ud800-\udfff]")


class Column(NamedTuple):
    """A column of a table."""

    name: str
    """The column's name in the database, and the key in a document's JSON."""
    field: str
    """The name of the struct's field."""
    type: Any
    """The type of the field."""
    default: Any
    """The value for damaged JSON: the field's default."""
    is_json: bool

    def decode(self, value: Value) -> object:
        """Convert a stored value to the field's value. Never raises, so that a bad row does not make the others
        unusable."""
        if self.is_json:
            return from_json_text(None if value is None else str(value), self.type, otherwise=self.default)
        if not isinstance(value, int):
            return value
        try:
            return msgspec.convert(value, self.type, strict=False)
        except msgspec.ValidationError:
            return min(max(value, 0), LAST_MS)

    def encode(self, value: object) -> Value:
        """Convert a field's value to the stored value."""
        if value is None:
            return None
        if self.is_json:
            return to_json_text(value)
        return storable(value) if isinstance(value, str) else int(cast("int", value))


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.required else field.default


class Table:
    """A table whose columns are the fields of a struct.

    Args:
        name: its name in the database.
        struct: the struct of a row.
        own: columns that are not fields, with their types.
        computed: fields that are not columns.
        json: columns whose values are stored as JSON.
    """

    def __init__(
        self,
        name: str,
        struct: type[msgspec.Struct],
        *,
        own: Mapping[str, Any] | None = None,
        computed: tuple[str, ...] = (),
        json: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self._struct, self._own, self._computed, self._json = struct, own or {}, computed, json

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        of_struct = (
            Column(one.encode_name, one.name, one.type, _default(one), one.encode_name in self._json)
            for one in msgspec.structs.fields(self._struct)
            if one.name not in self._computed
        )
        own = (Column(name, name, kind, None, name in self._json) for name, kind in self._own.items())
        return (*of_struct, *own)

    @cached_property
    def names(self) -> str:
        """The column names for an SQL statement."""
        return ", ".join(column.name for column in self.columns)

    def select(self, alias: str, *, without: str = "") -> str:
        """Return the columns for a SELECT. The column `without` is not read; the statement yields NULL in its place."""
        return ", ".join("NULL" if column.name == without else f"{alias}.{column.name}" for column in self.columns)

    def decode(self, row: Row) -> Fields:
        """Return the fields of a row read with `select`; extra values in the row are ignored."""
        return {column.field: column.decode(value) for column, value in zip(self.columns, row, strict=False)}

    def encode(self, fields: Mapping[str, object]) -> dict[str, Value]:
        """Return the column values of the given fields."""
        return {column.name: column.encode(fields[column.field]) for column in self.columns if column.field in fields}


CONVERSATIONS = Table("conversations", ConversationRecord, own={"number": int}, computed=("length",))
TURNS = Table(
    "turns",
    StoredTurn,
    own={"writer": str | None, "text": str, "parts": tuple[Part, ...] | None},
    computed=("parts", "position", "siblings"),
    json=("statistics", "failure", "used", "parts", "recipe"),
)
DRAFTS = Table("drafts", StoredDraft, own={"conversation": str, "saved_ms": Milliseconds}, json=("attachments",))
COMPARISONS = Table("comparisons", StoredComparison, json=("document",))
MEDIA_REFERENCES = Table(
    "media_references", msgspec.Struct, own={"sha256": str, "turn": int | None, "draft": str | None}
)
TABLES = (CONVERSATIONS, TURNS, DRAFTS, COMPARISONS, MEDIA_REFERENCES)
"""The tables in insertion order: referenced tables first."""


def copy_rows(old: sqlite3.Connection, new: sqlite3.Connection, media: Path) -> None:
    """Copy the rows of all tables into the empty database `new`, but no other content. In the copy, attachments refer
    to the files in `media`. Raises sqlite3.Error, and ValueError for a row that vlmtui can't have written."""
    new.execute("PRAGMA foreign_keys = OFF")  # until all are there
    new.execute("BEGIN IMMEDIATE")
    for table in TABLES:
        marks = ", ".join("?" * len(table.columns))
        rows = old.execute(f"SELECT {table.names} FROM {table.name} NOT INDEXED ORDER BY rowid")
        insert = f"INSERT INTO {table.name} ({table.names}) VALUES ({marks})"
        new.executemany(insert, (_with_local_media(table, row, media) for row in rows))
    new.executemany("UPDATE clock SET last_ms = ?", old.execute("SELECT last_ms FROM clock"))
    if broken := new.execute("PRAGMA foreign_key_check").fetchone():
        raise ValueError(f"a row of {broken[0]} refers to a row of {broken[2]} that is not there")
    new.execute("COMMIT")


def _with_local_media(table: Table, row: Row, media: Path) -> Row:
    def local(attachment: Attachment) -> Attachment:
        try:
            return msgspec.structs.replace(attachment, path=str(place(media, attachment.sha256)))
        except VlmtuiError as error:
            raise ValueError(error.message) from error

    found: list[Value] = []
    for column, value in zip(table.columns, row, strict=True):
        match column.decode(value) if column.name in ("parts", "attachments") else None:
            case tuple(parts) if parts:
                value = column.encode(with_changed_media(parts, local))
            case dict(attachments) if attachments:
                value = column.encode({number: local(item) for number, item in attachments.items()})
        found.append(value)
    return tuple(found)


def storable(text: str) -> str:
    """Return `text` with lone surrogates, which SQLite cannot store, replaced by U+FFFD."""
    return _LONE.sub("\ufffd", text)


def to_json_text(value: object) -> str:
    """Return `value` as JSON that SQLite can store."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(msgspec.to_builtins(value, str_keys=True))).decode()


def from_json_text(text: str | bytes | None, wanted: type[T], *, otherwise: T) -> T:
    """Return the value in a JSON column, or `otherwise` if the column is NULL or damaged."""
    if text is None:
        return otherwise
    try:
        return decode_json(text, wanted)
    except ValueError as error:
        _LOG.warning("a stored %s cannot be read: %s", wanted, error)
        return otherwise


def _cleaned(value: object) -> object:
    match value:
        case str():
            return storable(value)
        case dict():
            return {_cleaned(key): _cleaned(item) for key, item in value.items()}
        case list() | tuple():
            return [_cleaned(item) for item in value]
        case _:
            return value
