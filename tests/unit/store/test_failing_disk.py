"""A disk that is full, tears unflushed writes, or loses a page: nothing acknowledged is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from tests.unit.store.made import opened
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.store.backup import back_up_daily
from vlmtui.store.database import StoreError
from vlmtui.store.opening import FILE
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
