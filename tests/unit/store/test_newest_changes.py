"""The newest changes, which stand in the log of an app that was killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.store.made import exchange, opened
from vlmtui.errors import VlmtuiError
from vlmtui.store import newest_changes
from vlmtui.store.newest_changes import mark_file, marked_ms
from vlmtui.store.opening import FILE, prepare_database
from vlmtui.store.repairing import repair_store
from vlmtui.store.store import Store
from vlmtui.store.verifying import StoreFaultKind, StoreReport, verify_store

_FRAME, _HEADER = 24 + 4096, 32
LOG = f"{FILE}-wal"


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Path]:
    """What an app that was killed leaves: its changes are in the log."""
    store = opened(tmp_path / "data")
    store.database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    conversation = store.new_conversation(title="kept")
    for number in range(8):
        exchange(store, conversation, number)
    shutil.copytree(tmp_path / "data", tmp_path / "killed", ignore=shutil.ignore_patterns("*-shm", "sessions"))
    store.close()
    (tmp_path / "killed").chmod(0o700)
    yield tmp_path / "killed"


def damage(folder: Path) -> None:
    """Flip a bit in the middle of the log."""
    log = folder / LOG
    content = bytearray(log.read_bytes())
    content[_HEADER + (len(content) // _FRAME // 2) * _FRAME + 200] ^= 1
    log.write_bytes(content)


def verified(folder: Path) -> StoreReport:
    return verify_store(folder, folder / "media", folder.parent)


def titles(store: Store) -> list[str]:
    return [entry.conversation.title for entry in store.conversations()]


def test_a_whole_log_is_taken(killed: Path) -> None:
    assert marked_ms(killed / FILE) > 0
    assert verified(killed).findings == ()
    found = Store.open(killed)
    assert found.recovered is None
    assert len(found.store.path(found.store.conversations()[0].conversation.id)) == 16
    found.store.close()


def test_damage_to_the_log_is_found_told_and_repaired(killed: Path) -> None:
    damage(killed)
    (finding,) = verified(killed).findings
    assert finding.kind is StoreFaultKind.DATABASE and "newest changes are missing" in finding.what
    repaired = repair_store(killed, [finding], busy_s=1.0)
    assert repaired.recovery is not None
    assert verified(killed).findings == ()
    found = Store.open(killed)
    assert found.recovered is None
    found.store.close()


def test_the_app_says_that_the_newest_changes_are_missing_and_says_it_once(killed: Path) -> None:
    damage(killed)
    found = Store.open(killed)
    assert found.recovered is not None and "newest changes are missing" in found.recovered.reason
    exchange(found.store, found.store.new_conversation(title="new"), 1)
    found.store.close()
    again = Store.open(killed)
    assert again.recovered is None and "new" in titles(again.store)
    again.store.close()


@pytest.mark.parametrize("content", [b"", b"x" * 17, b"12", b"\xff" * 17, b"0" * 100])
def test_an_unreadable_mark_says_nothing(killed: Path, content: bytes) -> None:
    mark_file(killed / FILE).write_bytes(content)
    assert marked_ms(killed / FILE) == 0
    assert verified(killed).findings == ()


def test_a_store_without_a_mark_is_sound(killed: Path) -> None:
    mark_file(killed / FILE).unlink()
    found = Store.open(killed)
    assert found.recovered is None
    found.store.close()


def test_a_log_that_cannot_be_flushed_is_not_trusted(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(5, "the disk fails")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(VlmtuiError):
        Store.open(killed)
    assert (killed / LOG).stat().st_size > _FRAME
    monkeypatch.undo()
    found = Store.open(killed)
    assert found.recovered is None and titles(found.store) == ["kept"]
    found.store.close()


def test_the_log_of_a_running_app_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    store.new_conversation(title="one")
    written: list[Path] = []
    monkeypatch.setattr(newest_changes, "write_again", written.append)
    prepare_database(tmp_path, busy_s=1.0, is_shared=lambda: True)
    assert written == []
    prepare_database(tmp_path, busy_s=1.0, is_shared=lambda: False)
    assert written == [tmp_path / LOG]
    store.close()
