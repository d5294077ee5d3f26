"""JSON values in columns. A value that cannot be decoded costs the column, never the row."""

from __future__ import annotations

import logging
import re
from typing import TypeVar

import msgspec

from vlmtui.reading import decode_json

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_LONE = re.compile("[\ud800-\udfff]")


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
