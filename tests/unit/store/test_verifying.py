"""What is wrong with a store is found, and a repair leaves a database without findings."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.store.made import attachment, exchange, opened
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.store.opening import FILE, repair_database
from vlmtui.store.records import StoredDraft
from vlmtui.store.repairing import REBUILT, repair_store
from vlmtui.store.store import Store
from vlmtui.store.verifying import StoreFaultKind, StoreReport, verify_store

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
    return verify_store(folder, folder / "media", folder.parent)


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


DATABASE, ROW, VALUE = StoreFaultKind.DATABASE, StoreFaultKind.ROW, StoreFaultKind.VALUE
DAMAGES: dict[str, tuple[Damage, StoreFaultKind]] = {
    "an empty file": (lambda folder: (folder / FILE).write_bytes(b""), DATABASE),
    "another file": (lambda folder: (folder / FILE).write_bytes(b"no database" * 999), DATABASE),
    "a file cut in half": (lambda folder: (folder / FILE).write_bytes((folder / FILE).read_bytes()[:40960]), DATABASE),
    "pages of zeros": (in_the_middle, DATABASE),
    "another application's header": (sql("PRAGMA application_id = 1"), DATABASE),
    "a dropped table": (sql("DROP TABLE comparisons"), DATABASE),
    "a dropped index": (sql("DROP INDEX turns_parent"), DATABASE),
    "a damaged name in the schema": (
        lambda folder: (folder / FILE).write_bytes(
            (folder / FILE).read_bytes().replace(b"CREATE TABLE comparisons", b"CREATE \x94ABLE comparisons")
        ),
        DATABASE,
    ),
    "a dropped trigger": (sql("DROP TRIGGER turns_search_insert"), DATABASE),
    "an error while it was used": (lambda folder: (folder / f"{FILE}.suspect").touch(), DATABASE),
    "a turn of no conversation": (sql("UPDATE turns SET conversation = 'gone' WHERE id = 3"), ROW),
    "a turn below a turn that is not there": (sql("UPDATE turns SET parent = 9999 WHERE id = 4"), ROW),
    "a turn below one of another conversation": (sql("UPDATE turns SET parent = 1 WHERE id = 14"), ROW),
    "a wrong depth": (sql("UPDATE turns SET depth = 77 WHERE id = 5"), ROW),
    "a shown branch that is not there": (sql("UPDATE turns SET active_child = 9999 WHERE id = 5"), ROW),
    "an end that is not there": (sql("UPDATE conversations SET leaf = 9999 WHERE number = 2"), ROW),
    "a year 287396": (sql("UPDATE conversations SET updated_ms = 9007199254740991 WHERE number = 1"), ROW),
    "a role that is none": (without_checks("UPDATE turns SET role = 'tool' WHERE id = 2"), DATABASE),
    "a text where a time belongs": (sql("UPDATE turns SET created_ms = 'noon' WHERE id = 2"), ROW),
    "a picture that nothing notes": (sql("DELETE FROM media_references"), ROW),
    "another answer": (sql("UPDATE turns SET parts = NULL, text = 'no' WHERE id = 4"), StoreFaultKind.CHECKSUM),
    "another title in index and table": (
        sql("UPDATE conversations SET title = 'number 9' WHERE number = 2"),
        StoreFaultKind.CHECKSUM,
    ),
    "a conversation that nobody deleted is gone": (
        sql(
            "DELETE FROM turns WHERE conversation = (SELECT id FROM conversations WHERE number = 2)",
            "DELETE FROM conversations WHERE number = 2",
        ),
        StoreFaultKind.CHECKSUM,
    ),
    "a clock that was set": (sql("UPDATE clock SET last_ms = last_ms + 8"), StoreFaultKind.CHECKSUM),
    "a number that was given out is forgotten": (
        sql("UPDATE sqlite_sequence SET seq = 3 WHERE name = 'turns'"),
        StoreFaultKind.CHECKSUM,
    ),
    "statistics cut off": (sql("UPDATE turns SET statistics = '{\"usage\":' WHERE id = 2"), VALUE),
    "a draft's attachments garbled": (sql("UPDATE drafts SET attachments = '[1, 2'"), VALUE),
    "an index that lost a text": (
        sql("INSERT INTO turns_search (turns_search, rowid, text) SELECT 'delete', id, text FROM turns WHERE id = 1"),
        StoreFaultKind.SEARCH,
    ),
    "an index that lost its structure": (sql("DELETE FROM titles_search_data WHERE id > 1"), StoreFaultKind.SEARCH),
    "an index of another format": (sql("UPDATE turns_search_config SET v = 0"), StoreFaultKind.SEARCH),
    "an index that lost everything": (sql("DELETE FROM turns_search_data WHERE id > 10"), StoreFaultKind.SEARCH),
    "a folder for everyone": (lambda folder: folder.chmod(0o755), StoreFaultKind.MODE),
    "a database for everyone": (lambda folder: (folder / FILE).chmod(0o644), StoreFaultKind.MODE),
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


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_a_repair_leaves_no_finding(folder: Path, name: str) -> None:
    damage, kind = DAMAGES[name]
    damage(folder)
    assert kind in {finding.kind for finding in verified(folder).findings}
    done = repair_store(folder, verified(folder).findings, busy_s=1.0)
    is_beyond_rebuilding = name in ("an index that lost its structure", "an index of another format")
    assert (done.recovery is not None) == (kind in REBUILT or is_beyond_rebuilding), "only what is wrong is replaced"
    assert done.recovery is None or done.recovery.set_aside.exists()
    in_database = {finding for finding in verified(folder).findings if finding.kind is not StoreFaultKind.MISSING_MEDIA}
    assert in_database == set()
    opened(folder).close()


def test_an_index_that_refuses_every_message_is_replaced_at_the_next_start(folder: Path) -> None:
    sql("UPDATE turns_search_config SET v = 0")(folder)
    store = opened(folder)
    with pytest.raises(VlmtuiError, match="is damaged"):
        exchange(store, store.new_conversation(title="not searchable"), 1)
    store.close()
    again = Store.open(folder)
    assert again.recovered is not None and again.recovered.turns == 42
    exchange(again.store, again.store.new_conversation(title="searchable"), 1)
    again.store.close()


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda folder: stored(folder).unlink(), StoreFaultKind.MISSING_MEDIA),
        (lambda folder: stored(folder).write_bytes(b"rotten"), StoreFaultKind.DAMAGED_MEDIA),
        (lambda folder: stored(folder).with_name("notes.txt").write_bytes(b"hello"), StoreFaultKind.STRAY_FILE),
    ],
)
def test_what_is_wrong_with_the_stored_files_is_found(folder: Path, damage: Damage, kind: StoreFaultKind) -> None:
    damage(folder)
    [finding] = verified(folder).findings
    assert finding.kind is kind


def test_many_findings_of_one_kind_are_counted(folder: Path) -> None:
    sql("UPDATE turns SET depth = 77")(folder)
    findings = verified(folder).findings
    assert len(findings) == 21
    assert findings[-1].what == "22 more of this kind"


def test_wrong_modes_are_mended_without_touching_the_database(folder: Path) -> None:
    before = (folder / FILE).read_bytes()
    (folder / FILE).chmod(0o644)
    done = repair_store(folder, verified(folder).findings, busy_s=1.0)
    assert (done.recovery, done.indexes, done.closed) == (None, (), (FILE,))
    assert (folder / FILE).read_bytes() == before
    assert verified(folder).findings == ()


def test_a_database_of_another_version_is_told_and_not_repaired(folder: Path) -> None:
    sql("PRAGMA user_version = 99")(folder)
    before = (folder / FILE).read_bytes()
    [finding] = verified(folder).findings
    assert "another version" in finding.what
    with pytest.raises(VlmtuiError, match="another version"):
        repair_database(folder, busy_s=1.0)
    assert (folder / FILE).read_bytes() == before


def test_a_broken_link_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to(tmp_path / "gone")
    [finding] = verify_store(tmp_path, tmp_path / "media", tmp_path).findings
    assert finding.what == "is a broken link"


def test_nothing_stored_yet(tmp_path: Path) -> None:
    report = verify_store(tmp_path / "none", tmp_path / "none" / "media", tmp_path)
    assert (report.findings, report.turns) == ((), 0)
