"""Rows that no vlmtui of today writes: one of them never makes the others unusable."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.unit.store.made import COMPLETE, RECIPE, opened
from vlmtui.cli import main
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.times import LAST_MS, local_time
from vlmtui.errors import VlmtuiError
from vlmtui.export.conversation import to_json_document, to_markdown
from vlmtui.session.conversation_list import ago
from vlmtui.store.document import document_of
from vlmtui.store.opening import FILE
from vlmtui.store.records import ConversationId
from vlmtui.store.store import Store
from vlmtui.store.tables import TABLES
from vlmtui.ui.compare.sides import local_date_time

DAY_MS = 86_400_000
ABSURD = [2**53, 2**63 - 1, -(2**63), LAST_MS + 1, LAST_MS, -1, 0]


def two(folder: Path) -> tuple[Path, ConversationId, ConversationId]:
    """A database with two conversations, an answer and a comparison in the first."""
    store = opened(folder)
    odd, sound = store.new_conversation(title="odd"), store.new_conversation(title="sound")
    asked = store.add_turn(odd, None, user_turn("?"))
    store.write_answer(store.begin_answer(asked, RECIPE), "yes", COMPLETE)
    store.add_comparison(asked, {"a": 1})
    store.close()
    return folder / FILE, odd, sound


@pytest.mark.parametrize("moment", ABSURD)
def test_every_time_can_be_shown(moment: int) -> None:
    assert local_time(moment).year in range(1970, 10_000)
    assert ago(moment) and local_date_time(moment)


@pytest.mark.parametrize("moment", ABSURD)
def test_absurd_times_make_nothing_unusable(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(tmp_path))
    path, odd, sound = two(tmp_path / "data")
    with closing(sqlite3.connect(path)) as database:
        for table, column in (
            ("conversations", "created_ms"), ("conversations", "updated_ms"), ("turns", "created_ms"),
            ("turns", "ended_ms"), ("comparisons", "created_ms"),
        ):  # fmt: skip
            database.execute(f"UPDATE {table} SET {column} = ? WHERE {column} IS NOT NULL AND rowid = 1", (moment,))
        database.commit()
    assert main(["conversations"]) == 0
    assert main(["conversations", "--json"]) == 0
    assert main(["export", odd]) == 0
    out = capsys.readouterr().out
    assert odd in out and sound in out
    store = opened(tmp_path / "data")
    asked, answer = store.path(odd)
    (kept,) = store.comparisons(asked.id)
    assert answer.text == "yes"
    assert local_date_time(kept.created_ms)
    store.close()


@pytest.mark.parametrize(("column", "value"), [("title", b"\xff\x00"), ("updated_ms", "soon"), ("created_ms", b"x")])
def test_a_value_of_another_type_is_refused(column: str, value: object, tmp_path: Path) -> None:
    path, odd, _ = two(tmp_path)
    with closing(sqlite3.connect(path)) as database, pytest.raises(sqlite3.IntegrityError, match="cannot store"):
        database.execute(f"UPDATE conversations SET {column} = ? WHERE id = ?", (value, odd))


@pytest.mark.parametrize("last", [2**53, LAST_MS, 2**62])
def test_a_clock_far_ahead_is_believed_no_more(last: int, tmp_path: Path) -> None:
    path, _, _ = two(tmp_path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE clock SET last_ms = ?", (last,))
        database.commit()
    store = opened(tmp_path)
    now_ms = time.time() * 1000
    first, second = store.new_conversation(), store.new_conversation()
    assert abs(store.conversation(first).created_ms - now_ms) < DAY_MS
    assert first < second
    store.close()


def test_a_link_to_a_disk_that_is_not_mounted_is_no_new_database(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to(tmp_path / "nowhere" / FILE)
    with pytest.raises(VlmtuiError, match="is a broken link"):
        Store.open(tmp_path)
    assert (tmp_path / FILE).is_symlink()


@pytest.mark.parametrize("value", ["[" * 200_000, "null", '{"a": 1}', "x", ""])
def test_a_damaged_column_costs_itself_only(value: str, tmp_path: Path) -> None:
    path, odd, sound = two(tmp_path)
    columns = [(table.name, column.name) for table in TABLES for column in table.columns if column.is_json]
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO drafts SELECT id, 'written', '{}', 1 FROM conversations")
        for table, column in columns:
            database.execute(f"UPDATE {table} SET {column} = ?", (value,))
        database.commit()
    store = Store.open(tmp_path)
    for conversation in (odd, sound):
        document = document_of(store, conversation)
        assert document.draft.text == "written" and document.draft.attachments == {}
        assert to_markdown(document).text and to_json_document(document).text
    assert len(document_of(store, odd).turns) == 2
    store.close()


def test_a_turn_whose_parent_is_not_there_is_exported(tmp_path: Path) -> None:
    path, odd, _ = two(tmp_path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE turns SET parent = 99 WHERE role = 'assistant'")
        database.commit()
    store = Store.open(tmp_path)
    assert len(document_of(store, odd).turns) == 2
    store.close()


@pytest.mark.parametrize("recipe", ["{", "[]", '"r"', "null"])
def test_answers_that_have_ended_are_found_beside_odd_ones(recipe: str, tmp_path: Path) -> None:
    store = opened(tmp_path)
    asked = store.add_turn(store.new_conversation(), None, user_turn("?"))
    for request_id in ("odd", "ended"):
        answer = store.begin_answer(asked, msgspec.structs.replace(RECIPE, request_id=request_id))
        store.write_answer(answer, "yes", COMPLETE)
    store.begin_answer(asked, msgspec.structs.replace(RECIPE, request_id="runs"))
    with store.database.writing():
        store.database.rows(
            "UPDATE turns SET recipe = ? WHERE recipe ->> '$.request_id' = 'odd' RETURNING id", (recipe,)
        )
    assert store.ended_among(["odd", "ended", "runs", "unknown", "'"]) == ["ended"]
    store.close()
