"""What changes in the database below SQLite, or by another program, is noticed; what the store writes never is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.store.made import RECIPE, attachment, exchange, opened
from vlmtui.domain.conversation import user_turn
from vlmtui.store.checksums import KEYS, broken_checksums
from vlmtui.store.opening import FILE
from vlmtui.store.records import ConversationId, Outcome, StoredDraft
from vlmtui.store.store import Store
from vlmtui.store.tables import TABLES

COLUMNS = [(table.name, column.name) for table in TABLES for column in table.columns]


def filled(folder: Path) -> tuple[Store, ConversationId]:
    """A store with a row in every table."""
    store = opened(folder)
    conversation = store.new_conversation(title="Cats", model="shapes")
    exchange(store, conversation, 1)
    picture = attachment(store.media, b"picture")
    asked = store.add_turn(conversation, store.conversation(conversation).leaf, user_turn("And this?", [picture]))
    store.add_comparison(asked, {"difference": "none"})
    store.save_draft(conversation, StoredDraft(text="not sent", attachments={1: picture}))
    return store, conversation


def broken(folder: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return list(broken_checksums(connection))


def change(folder: Path, *statements: str) -> None:
    """Write as a program does that knows of no checksums."""
    with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_every_table_has_checksums() -> None:
    assert list(KEYS) == [table.name for table in TABLES]


def test_what_the_store_writes_is_sound(tmp_path: Path) -> None:
    store, conversation = filled(tmp_path)
    second = store.new_conversation(title="To go")
    exchange(store, second, 1)
    answer = store.begin_answer(store.path(second)[0].id, RECIPE)
    store.append_answer(answer, "half of", 2)
    store.set_generation(answer, RECIPE)
    store.end_answer(answer, "half of it", Outcome(state="stopped"))
    store.activate(answer)
    assert broken(tmp_path) == []
    store.rename(conversation, "Dogs")
    store.pin(conversation)
    store.leave_out(store.path(conversation)[0].id, True)
    store.save_draft(conversation, StoredDraft())
    store.delete(second)
    store.undelete(second)
    store.purge(second)
    assert broken(tmp_path) == []
    store.close()
    again = opened(tmp_path)
    again.purge(conversation)
    again.close()
    assert broken(tmp_path) == []


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_another_value_in_any_column_is_noticed(table: str, column: str, tmp_path: Path) -> None:
    filled(tmp_path)[0].close()
    other = {"role": "'system'", "state": "'stopped'"}.get(
        column, f"CASE typeof({column}) WHEN 'text' THEN 'x' ELSE 9 END"
    )
    ignoring = "PRAGMA ignore_check_constraints = ON"
    change(tmp_path, ignoring, f"UPDATE {table} SET {column} = {other} WHERE rowid = (SELECT min(rowid) FROM {table})")
    [(where, what)] = broken(tmp_path)
    assert where.startswith(table) and what == "is not what was stored"


def test_the_same_bytes_as_another_type_are_noticed(tmp_path: Path) -> None:
    filled(tmp_path)[0].close()
    change(tmp_path, "UPDATE turns SET text = CAST(text AS BLOB) WHERE id = 1")
    assert broken(tmp_path) == [("turns 1", "is not what was stored")]


@pytest.mark.parametrize("table", KEYS)
def test_a_row_that_is_gone_is_missed(table: str, tmp_path: Path) -> None:
    filled(tmp_path)[0].close()
    change(tmp_path, "PRAGMA foreign_keys = OFF", f"DELETE FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table})")
    assert broken(tmp_path) == [("all rows", "some are missing, or have an earlier content")]


def test_an_earlier_content_with_its_own_checksum_is_noticed(tmp_path: Path) -> None:
    store, conversation = filled(tmp_path)
    store.rename(conversation, "Cats")
    ((earlier,),) = store.database.rows("SELECT checksum FROM conversations")
    store.rename(conversation, "Dogs")
    store.close()
    change(tmp_path, f"UPDATE conversations SET title = 'Cats', checksum = {earlier}")
    assert broken(tmp_path) == [("all rows", "some are missing, or have an earlier content")]


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE clock SET last_ms = last_ms + 1", "clock"),
        ("UPDATE clock SET rows_sum = rows_sum + 1", "clock"),
        ("UPDATE clock SET checksum = 1", "clock"),
        ("DELETE FROM clock", "clock"),
        ("UPDATE sqlite_sequence SET seq = 2000 WHERE name = 'turns'", "turns"),
        ("DELETE FROM sqlite_sequence WHERE name = 'conversations'", "conversations"),
    ],
)
def test_another_time_or_another_last_number_is_noticed(statement: str, where: str, tmp_path: Path) -> None:
    filled(tmp_path)[0].close()
    change(tmp_path, statement)
    assert [found for found, _ in broken(tmp_path)] == [where]


def test_changing_a_damaged_row_does_not_make_it_sound(tmp_path: Path) -> None:
    store, conversation = filled(tmp_path)
    store.close()
    change(tmp_path, "UPDATE conversations SET title = 'Bats'")
    store = opened(tmp_path)
    store.pin(conversation)
    exchange(store, conversation, 2)
    store.close()
    assert broken(tmp_path) == [(f"conversations {conversation}", "is not what was stored")]


@pytest.mark.parametrize("checksum", ["9223372036854775807", "-9223372036854775808", "'text'", "1.5", "x'00ff'"])
def test_a_row_with_an_odd_checksum_can_be_changed(checksum: str, tmp_path: Path) -> None:
    store, conversation = filled(tmp_path)
    store.close()
    change(tmp_path, f"UPDATE conversations SET checksum = {checksum}")
    store = opened(tmp_path)
    store.rename(conversation, "still there")
    assert store.conversation(conversation).title == "still there"
    store.close()
    assert f"conversations {conversation}" in {where for where, _ in broken(tmp_path)}


def test_a_row_whose_text_cannot_be_decoded_can_be_changed(tmp_path: Path) -> None:
    store, conversation = filled(tmp_path)
    store.close()
    change(tmp_path, "UPDATE conversations SET model = CAST(x'ff00fe' AS TEXT)")
    store = opened(tmp_path)
    store.rename(conversation, "still there")
    store.close()
    assert broken(tmp_path) == [(f"conversations {conversation}", "is not what was stored")]
