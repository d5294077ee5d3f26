"""A disk that is full, tears unflushed writes, or loses a page: nothing acknowledged is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import pytest

from tests.support.other_user import other_user
from tests.unit.store.made import opened
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.store.backup import back_up_daily, restore_archive, restore_newest, write_archive
from vlmtui.store.errors import StoreError
from vlmtui.store.opening import FILE, verify_store
from vlmtui.store.records import ConversationId
from vlmtui.store.store import Store

LOG = f"{FILE}-wal"
SECTOR, PAGE = 512, 4096


def say(store: Store, conversation: ConversationId, number: int) -> None:
    """Add a message that takes several pages."""
    leaf = store.conversation(conversation).leaf
    store.add_turn(conversation, leaf, user_turn(f"number {number} {'and more ' * 900}"))


def said(store: Store) -> list[str]:
    branch = store.path(store.conversations()[0].conversation.id)
    return [turn.text.split()[1] for turn in branch]


def after_power_failure(files: dict[str, bytes], folder: Path) -> list[str]:
    """Return what the next start finds of these files."""
    folder.mkdir(mode=0o700)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    store = opened(folder)
    found = said(store)
    store.close()
    shutil.rmtree(folder)
    return found


def test_a_full_disk_is_reported_and_acknowledged_rows_stay(tmp_path: Path) -> None:
    store = opened(tmp_path)
    conversation = store.new_conversation()
    say(store, conversation, 0)
    pages = store.database.row("PRAGMA page_count")
    assert pages is not None
    store.database.rows(f"PRAGMA max_page_count = {pages[0] + 12}")
    acknowledged = 1
    with pytest.raises(VlmtuiError, match="full") as told:
        for number in range(1, 100):
            say(store, conversation, number)
            acknowledged += 1
    assert told.value.kind is ErrorKind.DISK_FULL and acknowledged > 1
    assert said(store) == [str(number) for number in range(acknowledged)]
    store.database.rows("PRAGMA max_page_count = 100000")
    say(store, conversation, acknowledged)
    store.close()
    store = opened(tmp_path)
    assert len(said(store)) == acknowledged + 1
    store.close()


def test_torn_writes_lose_only_unacknowledged_rows(tmp_path: Path) -> None:
    """The machine loses power while a message is written: of the log's end any sectors are missing."""
    store = opened(tmp_path / "data")
    conversation = store.new_conversation()
    store.database.rows("PRAGMA wal_autocheckpoint = 0")
    store.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    chance = Random(0)
    for number in range(8):
        flushed = (tmp_path / "data" / LOG).stat().st_size
        say(store, conversation, number)
        whole = (tmp_path / "data" / LOG).read_bytes()
        database = (tmp_path / "data" / FILE).read_bytes()
        for _ in range(4):
            torn = bytearray(whole)
            for at in range(flushed, len(whole), SECTOR):
                if chance.random() < 0.3:
                    torn[at : at + SECTOR] = bytes(len(torn[at : at + SECTOR]))
            found = after_power_failure({FILE: database, LOG: bytes(torn)}, tmp_path / "after")
            assert found[:number] == [str(earlier) for earlier in range(number)]
        assert len(after_power_failure({FILE: database, LOG: whole}, tmp_path / "after")) == number + 1
    store.close()


def test_a_page_torn_while_the_log_is_copied_into_the_database_is_written_again(tmp_path: Path) -> None:
    store = opened(tmp_path / "data")
    conversation = store.new_conversation()
    for number in range(4):
        say(store, conversation, number)
    log = (tmp_path / "data" / LOG).read_bytes()
    store.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    database = (tmp_path / "data" / FILE).read_bytes()
    store.close()
    logged = {int.from_bytes(log[at : at + 4], "big") for at in range(32, len(log) - PAGE, 24 + PAGE)}
    assert len(logged) > 4
    for page in logged:
        torn = database[: (page - 1) * PAGE + SECTOR] + bytes(PAGE - SECTOR) + database[page * PAGE :]
        assert after_power_failure({FILE: torn, LOG: log}, tmp_path / "after") == ["0", "1", "2", "3"]


def test_an_unreadable_page_is_reported_with_the_backup(tmp_path: Path) -> None:
    store = opened(tmp_path)
    conversation = store.new_conversation()
    for number in range(40):
        say(store, conversation, number)
    backup = back_up_daily(tmp_path)
    store.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    store.database.rows("PRAGMA cache_size = 1")
    with (tmp_path / FILE).open("r+b") as file:
        file.truncate(file.seek(0, 2) // 2 // PAGE * PAGE)
    with pytest.raises(VlmtuiError, match=r"damaged|Can't use"):
        said(store)
        say(store, conversation, 40)
    store.close()
    with pytest.raises(StoreError) as told:
        Store.open(tmp_path)
    damage = told.value.damage
    assert damage is not None
    assert damage.backup == backup and damage.lacking in (0, None)


def look(folder: Path, target: Path) -> dict[str, Any]:
    """What can be done with a store that is read-only: as its owner, or, since root may write everything, as another
    user."""

    def work(out: BinaryIO) -> None:
        try:
            store = Store.open(folder)
            found: dict[str, Any] = {"notice": store.notice, "said": said(store)}
            found["search"] = len(store.conversations("number 1"))
            try:
                store.new_conversation()
            except VlmtuiError as error:
                found["refused"] = str(error)
            store.close()
            found["verified"] = [one.what for one in verify_store(folder, folder / "media").findings]
            write_archive(folder, folder / "media", target)
        except (VlmtuiError, OSError) as error:
            found = {"error": repr(error)}
        out.write(json.dumps(found).encode())
        out.close()

    if os.getuid() == 0:
        with other_user(work) as told:
            return dict(json.load(told))
    file = target.with_suffix(".json")
    work(file.open("wb", buffering=0))
    return dict(json.loads(file.read_text()))


@pytest.mark.parametrize("left", ["closed", "killed", "log alone", "in use"])
def test_a_read_only_store_is_read_searched_checked_and_backed_up(short_path: Path, left: str) -> None:
    data, folder, elsewhere = short_path / "data", short_path / "read-only", short_path / "elsewhere"
    store = opened(data)
    conversation = store.new_conversation(title="a title")
    say(store, conversation, 0)
    store.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    say(store, conversation, 1)
    if left == "closed":
        store.close()
    shutil.copytree(data, folder, ignore=shutil.ignore_patterns("*-shm" if left == "log alone" else ""))
    assert (folder / LOG).exists() == (left != "closed"), "the second message is in the log alone"
    reader = opened(folder) if left == "in use" else None
    for path in (short_path, folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    short_path.chmod(0o755)
    elsewhere.mkdir(exist_ok=True)
    elsewhere.chmod(0o777)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix == ".db"}
    found = look(folder, elsewhere / "backup.tar")
    assert "is read-only. Make its disk and folder writable" in found.pop("notice", str(found))
    assert "is read-only." in found.pop("refused")
    assert found == {"said": ["0", "1"], "search": 1, "verified": []}
    assert before == {name: (folder / name).read_bytes() for name in before}
    folder.chmod(0o755)
    restore_archive(elsewhere / "backup.tar", short_path / "fresh", short_path / "fresh" / "media")
    restored = opened(short_path / "fresh")
    assert said(restored) == ["0", "1"]
    for one in (restored, reader, store):
        if one is not None:
            one.close()


def test_a_store_that_becomes_writable_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path).close()
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda path, mode: False)
        store = Store.open(tmp_path)
        with pytest.raises(VlmtuiError, match="Can't save: the conversation database"):
            store.new_conversation()
        stale = [store.is_stale]
    stale.append(store.is_stale)
    assert stale == [False, True], "so that the app opens it again, and saves"
    store.close()


def test_a_restore_into_a_read_only_folder_blames_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path).close()
    write_archive(tmp_path, tmp_path / "media", tmp_path / "good.tar")

    def refuse(*_: object) -> str:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    for restore in (
        lambda: restore_archive(tmp_path / "good.tar", tmp_path, tmp_path / "media"),
        lambda: restore_newest(tmp_path, tmp_path / "media"),
    ):
        with pytest.raises(VlmtuiError, match=r"Can't write the database in .*: Read-only file system"):
            restore()
