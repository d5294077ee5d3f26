"""Readers of conversations: documents, databases, rows that anything may have written."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from tests.fuzz.campaign import Reader
from vlmtui.domain.conversation import attachments_of
from vlmtui.domain.times import local_time
from vlmtui.errors import VlmtuiError
from vlmtui.export.comparison import difference_lines, export_html, export_markdown
from vlmtui.export.conversation import Place, to_html, to_json_document, to_markdown, to_openai
from vlmtui.inspection.replay import from_json
from vlmtui.session.lanes import recorded_specs
from vlmtui.store.document import add_document, document_of, read_document
from vlmtui.store.opening import FILE
from vlmtui.store.store import Store
from vlmtui.store.tables import TABLES

STORED = Path(__file__).parents[1] / "data" / "stored"
_ROW_VALUES = (None, "", "x", -1, 2**62, 0, 1, 253402300800000, b"\xff\xfe\x00", 1.5, "[" * 100_000, '{"a": 1}', "null")


def stored_readers() -> list[Reader]:
    return [
        Reader("conversation document", _documents, _read_conversation),
        Reader("comparison document", comparison_documents, _read_comparison),
        Reader("database file", _databases, _read_database),
        Reader("database rows", _row_texts, _read_rows),
    ]


def _documents(_: Path) -> Sequence[bytes]:
    return [(STORED / "conversation.json").read_bytes()]


def _read_conversation(folder: Path, data: bytes) -> None:
    document = read_document(data)
    store = Store.open(folder / "data")
    try:
        add_document(store, document, folder)
        _use(store)
    finally:
        store.close()


def comparison_documents(_: Path) -> Sequence[bytes]:
    return [(STORED / "comparison.json").read_bytes()]


def _read_comparison(_: Path, data: bytes) -> None:
    comparison = from_json(data)
    export_markdown(comparison)
    export_html(comparison, lambda item: item.content)
    difference_lines(comparison)
    asked = [side for side in comparison.sides if side.request is not None]
    wanted = {item.sha256 for side in asked if side.request for item in attachments_of(side.request)}
    if len(asked) == len(comparison.sides):
        recorded_specs(comparison, dict.fromkeys(wanted, "/x"))


@cache
def _database() -> bytes:
    """A database with a row in every table."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "data")
        add_document(store, read_document((STORED / "conversation.json").read_bytes()), STORED)
        store.close()
        return (Path(folder) / "data" / FILE).read_bytes()


def _databases(_: Path) -> Sequence[bytes]:
    return [_database()]


def _read_database(folder: Path, data: bytes) -> None:
    """Opened, used, and opened again, as the next start would."""
    (folder / "data").mkdir(mode=0o700)
    (folder / "data" / FILE).write_bytes(data)
    for _ in range(2):
        store = Store.open(folder / "data")
        try:
            _use(store)
        finally:
            store.close()


def _row_texts(folder: Path) -> Sequence[bytes]:
    """Every text that the columns hold, behind three bytes that say which column and row it is put into."""
    (folder / FILE).write_bytes(_database())
    with closing(sqlite3.connect(folder / FILE)) as database:
        found: set[str] = set()
        for table in TABLES:
            for row in database.execute(f"SELECT * FROM {table.name}"):
                found |= {value for value in row if isinstance(value, str)}
    return [b"\x01\x02\x03" + text.encode() for text in sorted(found)]


def _read_rows(folder: Path, data: bytes) -> None:
    """Another value in one column of one row; of a sound file, nobody looks at that when it is opened."""
    path = folder / "data" / FILE
    path.parent.mkdir(mode=0o700)
    path.write_bytes(_database())
    which, row, kind = (*data[:3], 0, 0, 0)[:3]
    columns = [(table.name, column.name) for table in TABLES for column in table.columns]
    name, column = columns[which % len(columns)]
    text = data[3:].decode(errors="surrogateescape").encode(errors="replace").decode()
    value = _ROW_VALUES[kind // 2 % len(_ROW_VALUES)] if kind % 2 else text
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("PRAGMA ignore_check_constraints = ON")
        try:
            wanted = f"(SELECT rowid FROM {name} LIMIT 1 OFFSET {row % 3})"
            database.execute(f"UPDATE {name} SET {column} = ? WHERE rowid = {wanted}", (value,))
        except sqlite3.Error:
            return
    store = Store.open(path.parent)
    try:
        _use(store)
    finally:
        store.close()


def _use(store: Store) -> None:
    """All that is done with what is stored. A conversation that cannot be read must not keep others from it."""
    listed = store.conversations(limit=1000)
    store.conversations("a", limit=1000)
    store.conversations("red")
    errors: list[VlmtuiError] = []
    for entry in listed:
        conversation = entry.conversation
        local_time(conversation.updated_ms).strftime("%Y-%m-%d %H:%M")
        try:
            _use_conversation(store, conversation.id)
        except VlmtuiError as error:
            errors.append(error)
    store.last()
    store.purge_deleted(0.0)
    new = store.new_conversation(title="new")
    assert store.conversation(new).title == "new"
    if errors:
        raise errors[0]


def _use_conversation(store: Store, conversation: object) -> None:
    found = next(one.conversation for one in store.conversations(limit=1000) if one.conversation.id == conversation)
    document = document_of(store, found.id)
    for turn in store.turns(found.id):
        store.siblings(turn.id)
        for comparison in store.comparisons(turn.id):
            local_time(comparison.created_ms).isoformat()
    to_markdown(document)
    to_html(document)
    json.loads(to_json_document(document, Place(inline=True)).text)
    read_document(to_json_document(document).text.encode())
    with suppress(VlmtuiError):  # its media are not here
        to_openai(document)
