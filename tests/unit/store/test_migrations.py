"""Every older schema comes up to the newest, with a backup; a newer one is left alone."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.store.made import exchange, integrity, opened
from vlmtui.errors import VlmtuiError
from vlmtui.store import migrations
from vlmtui.store.checksums import broken_checksums
from vlmtui.store.migrations import expected_schema, known_steps, latest, schema_of, version_of
from vlmtui.store.opening import FILE
from vlmtui.store.records import Recovery
from vlmtui.store.store import Store
from vlmtui.store.tables import TABLES

SCHEMAS = Path(__file__).parent / "schemas"


def old_database(folder: Path, version: int) -> Path:
    path = folder / FILE
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((SCHEMAS / f"v{version}.sql").read_text())
        connection.execute("PRAGMA journal_mode = WAL")
    return path


def test_versions_have_no_gaps_and_every_older_one_a_fixture() -> None:
    assert list(known_steps()) == list(range(1, latest() + 1))
    assert {path.name for path in SCHEMAS.iterdir()} == {f"v{version}.sql" for version in range(1, latest())}


def test_the_list_of_columns_is_that_of_the_schema(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for table in TABLES:
        schema = {row[1]: row[2] for row in store.database.rows(f"PRAGMA table_info({table.name})")}
        assert {column.name: column.sql_type for column in table.columns} | {"checksum": "INTEGER"} == schema
    store.close()


@pytest.mark.parametrize("version", range(1, latest()))
def test_a_published_step_is_never_edited(version: int, tmp_path: Path) -> None:
    with closing(sqlite3.connect(old_database(tmp_path, version))) as connection:
        assert schema_of(connection) == expected_schema(version)


@pytest.mark.parametrize("version", range(1, latest()))
def test_every_older_schema_comes_up(version: int, tmp_path: Path) -> None:
    path = old_database(tmp_path, version)
    store = opened(tmp_path)
    (listed,) = store.conversations("dog")
    assert (listed.conversation.title, listed.conversation.pinned) == ("Cats", True)
    assert [turn.text for turn in store.path(listed.conversation.id)] == ["Is it a cat?", "It is a dog."]
    assert store.draft(listed.conversation.id).text == "not sent"
    assert store.mark_interrupted() == [3]
    exchange(store, listed.conversation.id, 1)
    store.close()
    assert integrity(path) == "ok"
    with closing(sqlite3.connect(path)) as connection:
        assert list(broken_checksums(connection)) == []

    backup = path.with_name(f"{FILE}.v{version}.bak")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    with closing(sqlite3.connect(backup)) as connection:
        assert version_of(connection) == version
        assert connection.execute("SELECT count(*) FROM turns").fetchone() == (3,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    backup.unlink()
    opened(tmp_path).close()
    assert not backup.exists()


def test_an_older_answer_of_a_raw_prompt_is_marked_and_its_sampling_is_not_known(tmp_path: Path) -> None:
    old_database(tmp_path, 3)
    store = opened(tmp_path)
    (listed,) = store.conversations("dog")
    asked, answer = store.turns(listed.conversation.id, generations=False)
    assert (asked.mode, answer.mode, answer.used) == ("chat", "raw", None)
    store.close()


def test_a_step_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old_database(tmp_path, 1)
    broken = {**known_steps(), 2: known_steps()[2] + "INSERT INTO nowhere VALUES (1);\n"}
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "known_steps", lambda: broken)
        with pytest.raises(VlmtuiError):
            Store.open(tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        assert version_of(connection) == 1
        assert schema_of(connection) == expected_schema(1)
    opened(tmp_path).close()


def test_a_newer_database_is_left_alone(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = tmp_path / FILE
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {latest() + 1}")
    before = path.read_bytes()
    with pytest.raises(VlmtuiError, match="newer vlmtui"):
        Store.open(tmp_path)
    assert path.read_bytes() == before
    assert not [found.name for found in tmp_path.iterdir() if "damaged" in found.name or "bak" in found.name]


def test_a_newer_vlmtui_beside_us_stops_our_writes(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute(f"PRAGMA user_version = {latest() + 1}")
    with pytest.raises(VlmtuiError, match="newer vlmtui"):
        store.new_conversation()
    store.close()


def test_an_older_database_that_is_damaged_is_salvaged(tmp_path: Path) -> None:
    path = old_database(tmp_path, 1)
    with path.open("r+b") as file:
        file.write(b"\0" * 100)
    found = Store.open(tmp_path)
    assert isinstance(found.recovered, Recovery)
    assert (found.recovered.conversations, found.recovered.turns) == (1, 3)
    assert [hit.turn for hit in found.store.search("dog")] == [2]
    found.store.close()
