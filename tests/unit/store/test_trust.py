"""Documents and backups from others bring rows and media, and nothing that acts."""

from __future__ import annotations

import base64
import hashlib
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.unit.store.made import COMPLETE, RECIPE, attachment, exchange, opened, search
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.export.conversation import Place, to_json_document
from vlmtui.paths import sample_image
from vlmtui.store.backup import back_up_daily, restore_archive, write_archive
from vlmtui.store.database import expected_schema, schema_of
from vlmtui.store.document import ImportResult, add_document, document_of, read_document
from vlmtui.store.errors import StoreError
from vlmtui.store.opening import FILE, verify_store
from vlmtui.store.records import TurnId
from vlmtui.store.store import Store

CODE = b"open('ran', 'w').write('ran')\n"
SWALLOW = (
    "CREATE TRIGGER e BEFORE INSERT ON turns WHEN new.role = 'user' AND new.text LIKE '%secret%'"
    " BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TRIGGER f BEFORE UPDATE OF text ON turns BEGIN SELECT RAISE(IGNORE); END",
)
"""Triggers by which messages and answers vanish."""


def import_media(folder: Path, content: bytes, suffix: str) -> tuple[Store, ImportResult]:
    """Import a document with this content as the file of its only attachment."""
    store = opened(folder)
    source = attachment(folder / "elsewhere", b"\x89PNG\r\n\x1a\n cat", name="holiday.png")
    conversation = store.new_conversation(title="Results")
    store.add_turn(conversation, None, user_turn("What is it?", [source]))
    text = to_json_document(document_of(store, conversation), Place(inline=True)).text
    store.purge(conversation)
    document = msgspec.json.decode(text.replace(source.sha256, hashlib.sha256(content).hexdigest()))
    document["media"][0] |= {"base64": base64.b64encode(content).decode(), "suffix": suffix}
    return store, add_document(store, read_document(msgspec.json.encode(document)), folder)


def test_a_document_brings_no_file_that_is_no_medium(tmp_path: Path) -> None:
    store, imported = import_media(tmp_path, CODE, ".py")
    assert imported.left_out == ("holiday.png",) and imported.missing == ()
    assert [path for path in store.media.rglob("*") if path.is_file()] == []
    [turn] = store.path(imported.conversation)
    assert turn.text == "What is it?" and not Path(turn.turn.attachments[0].path).exists()
    store.close()


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (b"GIF89a = open('ran', 'w')\n", ".gif"),
        (b"ID3 = open('ran', 'w')\n", ".mp3"),
        (b"%PDF-1.7", ".pdf"),
        (b"RIFF0000WAVEfmt ", ".wav"),
        (b"\0\0\0\x18ftypisom", ".mp4"),
    ],
)
def test_media_are_stored_with_the_suffix_of_their_content(tmp_path: Path, content: bytes, suffix: str) -> None:
    store, imported = import_media(tmp_path, content, ".py")
    [attached] = store.path(imported.conversation)[0].turn.attachments
    assert attached.path.endswith(f"{hashlib.sha256(content).hexdigest()}{suffix}")
    assert Path(attached.path).read_bytes() == content and not list(store.media.rglob("*.py"))
    store.close()


def test_an_imported_conversation_is_one_until_a_message_is_added(tmp_path: Path) -> None:
    store, imported = import_media(tmp_path, sample_image().read_bytes(), ".png")
    assert store.conversation(imported.conversation).imported
    asked = store.path(imported.conversation)[-1]
    store.write_answer(store.begin_answer(asked.id, RECIPE), "A cat.", COMPLETE)
    assert [one.conversation.imported for one in store.conversations()] == [True]
    exchange(store, imported.conversation, 1)
    assert not store.conversation(imported.conversation).imported
    store.close()


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """The data folder of somebody else."""
    store = opened(tmp_path / "theirs")
    conversation = store.new_conversation(title="theirs")
    store.add_turn(conversation, None, user_turn("What is this?", [attachment(store.media, b"\x89PNG\r\n\x1a\n cat")]))
    exchange(store, conversation, 1)
    store.close()
    return tmp_path / "theirs"


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            connection.execute(statement)


FOREIGN: dict[str, tuple[str, ...]] = {
    "trigger e, trigger f": SWALLOW,
    "view v": ("CREATE VIEW v AS SELECT * FROM turns",),
    "table t": ("CREATE TABLE t (x)",),
    "index i": ("CREATE INDEX i ON turns (text)",),
    "table s": ("CREATE VIRTUAL TABLE s USING fts5 (x)",),
}


@pytest.mark.parametrize("parts", FOREIGN)
def test_a_schema_with_foreign_parts_is_not_restored_and_not_opened(theirs: Path, tmp_path: Path, parts: str) -> None:
    change(theirs / FILE, *FOREIGN[parts])
    mine = tmp_path / "mine"
    with pytest.raises(VlmtuiError, match="Can't restore") as told:
        restore_archive(theirs / FILE, mine, mine / "media")
    assert parts in told.value.detail
    assert not (mine / FILE).exists()
    before = (theirs / FILE).read_bytes()
    with pytest.raises(StoreError) as refused:
        Store.open(theirs)
    assert parts in refused.value.detail
    assert (theirs / FILE).read_bytes() == before
    [finding] = verify_store(theirs, theirs / "media").findings
    assert parts in finding.what


def test_a_part_of_the_schema_that_was_changed_is_not_restored(theirs: Path, tmp_path: Path) -> None:
    body = "SELECT RAISE(IGNORE); END"
    change(theirs / FILE, "DROP TRIGGER turns_search_insert")
    change(theirs / FILE, f"CREATE TRIGGER turns_search_insert BEFORE INSERT ON turns BEGIN {body}")
    with pytest.raises(VlmtuiError, match="Can't restore"):
        restore_archive(theirs / FILE, tmp_path / "mine", tmp_path / "mine" / "media")


def test_rows_are_restored_into_a_new_database(theirs: Path, tmp_path: Path) -> None:
    write_archive(theirs, theirs / "media", tmp_path / "backup.tar")
    mine = tmp_path / "mine"
    restored = restore_archive(tmp_path / "backup.tar", mine, mine / "media")
    assert (restored.media, restored.left_out) == (1, ())
    with closing(sqlite3.connect(mine / FILE)) as connection:
        assert schema_of(connection) == expected_schema()
    store = opened(mine)
    [listed] = store.conversations()
    asked, *others = store.path(listed.conversation.id)
    assert [turn.role for turn in others] == ["user", "assistant"] and len(search(store, "answer")) == 1
    [cat] = asked.turn.attachments
    assert Path(cat.path).is_relative_to(mine) and Path(cat.path).is_file()
    added = store.add_turn(listed.conversation.id, others[-1].id, user_turn("my secret"))
    assert added > others[-1].id and store.turn(added).text == "my secret"
    store.close()


def test_engines_in_a_backup_count_as_imported_unless_it_is_daily(theirs: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    write_archive(theirs, theirs / "media", tmp_path / "backup.tar")
    restore_archive(tmp_path / "backup.tar", mine, mine / "media")
    assert made(mine) == {True}
    own = back_up_daily(theirs)
    assert own is not None
    restore_archive(own, theirs, theirs / "media")
    assert made(theirs) == {False}


def made(folder: Path) -> set[bool]:
    """Return whether the records of the answers are imported."""
    store = opened(folder)
    turns = [turn for listed in store.conversations() for turn in store.tree(listed.conversation.id)]
    store.close()
    return {turn.generation.imported for turn in turns if turn.generation is not None}


def row(statement: str) -> Callable[[Path], None]:
    return lambda folder: change(folder / FILE, statement)


@pytest.mark.parametrize(
    "spoil",
    [
        row("UPDATE turns SET parent = 99 WHERE id = 2"),
        row("""UPDATE turns SET parts = replace(parts, '"sha256":"', '"sha256":"../') WHERE id = 1"""),
    ],
)
def test_a_row_that_no_vlmtui_writes_is_not_restored(
    theirs: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(theirs)
    with pytest.raises(VlmtuiError, match="Can't restore"):
        restore_archive(theirs / FILE, tmp_path / "mine", tmp_path / "mine" / "media")
    assert not (tmp_path / "mine" / FILE).exists()


def test_a_row_that_names_another_file_of_the_disk_reads_none(theirs: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    with closing(sqlite3.connect(theirs / FILE, isolation_level=None)) as connection:
        [parts] = connection.execute("SELECT parts FROM turns WHERE id = 1").fetchone()
        path = msgspec.json.decode(parts)[0]["attachment"]["path"]
        connection.execute("UPDATE turns SET parts = ?", (parts.replace(path, str(tmp_path / "secret.png")),))
    restore_archive(theirs / FILE, tmp_path / "mine", tmp_path / "mine" / "media")
    store = opened(tmp_path / "mine")
    [attached] = store.turn(TurnId(1)).turn.attachments
    assert Path(attached.path).is_relative_to(tmp_path / "mine")
    store.close()


def test_a_backup_brings_no_file_that_is_no_medium(theirs: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(CODE).hexdigest()
    (tmp_path / "code").write_bytes(CODE)
    with tarfile.open(tmp_path / "backup.tar", "w") as archive:
        archive.add(theirs / FILE, FILE)
        archive.add(tmp_path / "code", f"media/{digest[:2]}/{digest}.py")
    mine = tmp_path / "mine"
    restored = restore_archive(tmp_path / "backup.tar", mine, mine / "media")
    assert (restored.media, restored.left_out) == (0, (f"{digest}.py",))
    assert not list(mine.rglob("*.py"))
