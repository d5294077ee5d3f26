"""The faults of a store are found, and nothing is changed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.store.made import attachment, exchange, opened
from vlmtui.domain.conversation import user_turn
from vlmtui.store.backup import restore_newest
from vlmtui.store.opening import FILE, FaultKind, StoreReport, verify_store
from vlmtui.store.records import StoredDraft

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of five conversations, three pictures and a draft."""
    data = tmp_path_factory.mktemp("sound") / "data"
    store = opened(data)
    for number in range(4):
        conversation = store.new_conversation(title=f"number {number}")
        for turn in range(5):
            exchange(store, conversation, turn)
    last = store.new_conversation(title="with pictures")
    for content in (b"first", b"second"):
        leaf = store.conversation(last).leaf
        store.add_turn(last, leaf, user_turn("What is this?", [attachment(store.media, content)]))
    draft = attachment(store.media, b"third")
    store.save_draft(last, StoredDraft(text="not sent", attachments={1: draft}))
    store.close()
    return data


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(sound, tmp_path / "data")


def verified(folder: Path) -> StoreReport:
    return verify_store(folder, folder / "media")


def sql(*statements: str) -> Damage:
    def damage(folder: Path) -> None:
        with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            for statement in statements:
                connection.execute(statement)

    return damage


def without_checks(*statements: str) -> Damage:
    """Statements that the table's own rules would refuse."""
    return sql("PRAGMA ignore_check_constraints = ON", *statements)


def written_over(at: int, data: bytes) -> Damage:
    def damage(folder: Path) -> None:
        with (folder / FILE).open("r+b") as file:
            file.seek(at)
            file.write(data)

    return damage


def in_the_middle(folder: Path) -> None:
    """Some pages of zeros, with the pages of many turns among them."""
    size = (folder / FILE).stat().st_size // 4096 * 4096
    written_over(size // 2, bytes(3 * 4096))(folder)


def stored(folder: Path) -> Path:
    """The first stored file."""
    return sorted((folder / "media").glob("[0-9a-f][0-9a-f]/*"))[0]


DATABASE: FaultKind = "database"
DAMAGES: dict[str, tuple[Damage, FaultKind]] = {
    "an empty file": (lambda folder: (folder / FILE).write_bytes(b""), DATABASE),
    "another file": (lambda folder: (folder / FILE).write_bytes(b"no database" * 999), DATABASE),
    "a file cut in half": (lambda folder: (folder / FILE).write_bytes((folder / FILE).read_bytes()[:40960]), DATABASE),
    "pages of zeros": (in_the_middle, DATABASE),
    "another application's header": (sql("PRAGMA application_id = 1"), DATABASE),
    "another version": (sql("PRAGMA user_version = 99"), DATABASE),
    "a dropped table": (sql("DROP TABLE comparisons"), DATABASE),
    "a dropped index": (sql("DROP INDEX turns_parent"), DATABASE),
    "a foreign trigger": (sql("CREATE TRIGGER e AFTER INSERT ON turns BEGIN SELECT 1; END"), DATABASE),
    "a damaged name in the schema": (
        lambda folder: (folder / FILE).write_bytes(
            (folder / FILE).read_bytes().replace(b"CREATE TABLE comparisons", b"CREATE \x94ABLE comparisons")
        ),
        DATABASE,
    ),
    "a role that is none": (without_checks("UPDATE turns SET role = 'tool' WHERE id = 2"), DATABASE),
    "an index that lost a text": (
        sql("INSERT INTO turns_search (turns_search, rowid, text) SELECT 'delete', id, text FROM turns WHERE id = 1"),
        DATABASE,
    ),
    "an index that lost its structure": (sql("DELETE FROM titles_search_data WHERE id > 1"), DATABASE),
    "an index of another format": (sql("UPDATE turns_search_config SET v = 0"), DATABASE),
}


def test_a_sound_store_has_no_finding_and_is_not_changed(folder: Path) -> None:
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    report = verified(folder)
    assert report.findings == ()
    assert (report.conversations, report.turns, report.media, report.unused_media) == (5, 42, 3, 0)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_a_store_that_is_open_has_no_finding(folder: Path) -> None:
    store = opened(folder)
    exchange(store, store.new_conversation(title="still in the log"), 1)
    report = verified(folder)
    assert (report.findings, report.conversations) == ((), 6)
    store.close()


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found(folder: Path, name: str) -> None:
    damage, kind = DAMAGES[name]
    damage(folder)
    assert kind in {finding.kind for finding in verified(folder).findings}


@pytest.mark.parametrize("name", [name for name in DAMAGES if name.startswith("an index")])
def test_a_damaged_index_is_rebuilt_without_a_backup(folder: Path, name: str) -> None:
    DAMAGES[name][0](folder)
    assert "No message is lost" in restore_newest(folder, folder / "media")
    report = verified(folder)
    assert (report.findings, report.turns) == ((), 42)


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda folder: stored(folder).unlink(), "missing media"),
        (lambda folder: stored(folder).write_bytes(b"rotten"), "damaged media"),
        (lambda folder: stored(folder).with_name("notes.txt").write_bytes(b"hello"), "stray file"),
    ],
)
def test_faults_of_stored_files_are_found(folder: Path, damage: Damage, kind: FaultKind) -> None:
    damage(folder)
    [finding] = verified(folder).findings
    assert finding.kind == kind


def test_a_broken_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to(tmp_path / "gone")
    [finding] = verify_store(tmp_path, tmp_path / "media").findings
    assert "is a broken link" in finding.what


def test_nothing_stored_yet(tmp_path: Path) -> None:
    report = verify_store(tmp_path / "none", tmp_path / "none" / "media")
    assert (report.findings, report.turns) == ((), 0)
