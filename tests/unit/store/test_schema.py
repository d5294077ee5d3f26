"""The schema has one version; a database of another one is refused and stays as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.store.made import opened
from vlmtui.errors import VlmtuiError
from vlmtui.store.database import VERSION
from vlmtui.store.opening import FILE
from vlmtui.store.records import AnswerData
from vlmtui.store.store import Store
from vlmtui.store.tables import TABLES, TURNS


def test_the_tables_have_the_columns_of_the_schema(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for table in TABLES:
        schema = {row[1]: row[2] for row in store.database.rows(f"PRAGMA table_info({table.name})")}
        assert {column.name for column in table.columns} == set(schema)
        assert {schema[column.name] for column in table.columns if column.is_json} <= {"TEXT"}
    store.close()


def test_all_data_of_an_answer_are_columns() -> None:
    assert set(AnswerData.__struct_fields__) <= {column.field for column in TURNS.columns}


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_database_of_another_version_is_named_and_stays_as_it_is(tmp_path: Path, version: int) -> None:
    opened(tmp_path).close()
    path = tmp_path / FILE
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(VlmtuiError, match="another version") as caught:
        Store.open(tmp_path)
    assert str(path) in caught.value.message and str(version) in caught.value.detail
    assert path.read_bytes() == before
    assert {found.name for found in tmp_path.iterdir() if "damaged" in found.name or "bak" in found.name} == set()
