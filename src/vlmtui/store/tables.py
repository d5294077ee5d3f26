"""The columns of each table. A field of a struct in `records` is a column of the same name. Reading, writing, export,
import and restoring all use these definitions, and a test compares them with the schema."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import msgspec.inspect

from vlmtui.domain.conversation import Part
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
    """In the database, and in a document's JSON."""
    field: str
    """In the struct."""
    type: Any
    """Of the field."""
    default: Any
    """Of the field: what a damaged value is read as."""
    kind: Literal["integer", "boolean", "text", "json"]
    is_nullable: bool
    least: int
    most: int
    """The bounds of an integer."""

    @property
    def sql_type(self) -> str:
        return "INTEGER" if self.kind in ("integer", "boolean") else "TEXT"

    def decode(self, value: Value) -> object:
        """Convert a stored value to the field's value."""
        match self.kind:
            case "json":
                return from_json_text(None if value is None else str(value), self.type, otherwise=self.default)
            case "boolean":
                return bool(value)
            case "integer":
                return value if value is None else self._bounded(value)
            case "text":
                return value if value is None or isinstance(value, str) else str(value)

    def accepts(self, value: object) -> bool:
        """Whether a stored value has the column's type."""
        if value is None:
            return self.is_nullable
        return isinstance(value, int if self.kind in ("integer", "boolean") else str)

    def problem(self, value: Value) -> str | None:
        """Return why a stored JSON value cannot be decoded; None if it can be, or is no JSON."""
        if self.kind != "json" or not isinstance(value, str):
            return None
        try:
            decode_json(value, self.type)
        except ValueError as error:
            return str(error)
        return None

    def _bounded(self, value: Value) -> int:
        """Clamp a stored integer, so that one odd row does not make the others unusable."""
        return min(max(value, self.least), self.most) if isinstance(value, int) else max(0, self.least)

    def encode(self, value: object) -> Value:
        """Convert a field's value to the stored value."""
        if value is None:
            return None
        match self.kind:
            case "json":
                return to_json_text(value)
            case "text":
                return storable(str(value))
            case "integer" | "boolean":
                assert isinstance(value, int)
                return int(value)


def _column(name: str, field: str, kind: Any, default: Any = None) -> Column:
    info = msgspec.inspect.type_info(kind)
    found = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    types = [one for one in found if not isinstance(one, msgspec.inspect.NoneType)]
    least, most = -(2**63), 2**63 - 1
    match types[0] if len(types) == 1 else None:
        case msgspec.inspect.BoolType():
            stored: Literal["integer", "boolean", "text", "json"] = "boolean"
        case msgspec.inspect.IntType(ge=ge, le=le):
            stored = "integer"
            least, most = least if ge is None else ge, most if le is None else le
        case msgspec.inspect.StrType() | msgspec.inspect.LiteralType():
            stored = "text"
        case _:
            stored = "json"
    return Column(name, field, kind, default, stored, len(types) < len(found), least, most)


def _default(field: msgspec.structs.FieldInfo) -> object:
    """None where the field has to be given."""
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
    """

    def __init__(
        self,
        name: str,
        struct: type[msgspec.Struct],
        *,
        own: Mapping[str, Any] | None = None,
        computed: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self._struct, self._own, self._computed = struct, own or {}, computed

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        of_struct = (
            _column(one.encode_name, one.name, one.type, _default(one))
            for one in msgspec.structs.fields(self._struct)
            if one.name not in self._computed
        )
        return (*of_struct, *(_column(name, name, kind) for name, kind in self._own.items()))

    @cached_property
    def names(self) -> str:
        """The column names for an SQL statement."""
        return ", ".join(column.name for column in self.columns)

    def select(self, alias: str, *, without: str = "") -> str:
        """Return the columns for a SELECT; NULL instead of the column `without`."""
        return ", ".join("NULL" if column.name == without else f"{alias}.{column.name}" for column in self.columns)

    def decode(self, row: Row) -> Fields:
        """Return the fields of a row read with `select`; extra values in the row are ignored."""
        return {column.field: column.decode(value) for column, value in zip(self.columns, row, strict=False)}

    def encode(self, fields: Mapping[str, object]) -> dict[str, Value]:
        """Return the column values of the given fields."""
        return {column.name: column.encode(fields[column.field]) for column in self.columns if column.field in fields}


CONVERSATIONS = Table(
    "conversations", ConversationRecord, own={"number": int, "active_root": int | None}, computed=("length",)
)
TURNS = Table(
    "turns",
    StoredTurn,
    own={"writer": str | None, "text": str, "parts": tuple[Part, ...] | None},
    computed=("parts", "position", "siblings"),
)
DRAFTS = Table("drafts", StoredDraft, own={"conversation": str, "saved_ms": Milliseconds})
COMPARISONS = Table("comparisons", StoredComparison)
MEDIA_REFERENCES = Table(
    "media_references", msgspec.Struct, own={"sha256": str, "turn": int | None, "draft": str | None}
)
TABLES = (CONVERSATIONS, TURNS, DRAFTS, COMPARISONS, MEDIA_REFERENCES)
"""In insertion order: referenced tables first."""


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
    """Return the column's value, or `otherwise` if it is empty or damaged."""
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
