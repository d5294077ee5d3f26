"""What was deleted long ago is taken away for good, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.store.made import attachment, integrity
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.store import blobs
from vlmtui.store.purging import purge_deleted
from vlmtui.store.records import StoredDraft
from vlmtui.store.store import Store

DAY_S = 86_400.0


class Clock:
    """The store's; files of the disk have the machine's."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Callable[[], float]) -> Store:
    return Store.open(tmp_path / "data", now=clock).store


@pytest.fixture
def old_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stored file counts as one that was not touched for a day."""
    monkeypatch.setattr(blobs, "_DAY_S", -60.0)


def test_what_was_deleted_long_ago_is_gone_with_its_media(store: Store, clock: Clock, old_files: None) -> None:
    cat, dog, cow, owl = (attachment(store.media, data) for data in (b"cat", b"dog", b"cow", b"owl"))
    old, new, kept = (store.new_conversation(title=title) for title in ("old", "new", "kept"))
    store.add_turn(old, None, user_turn("first?", [cat, dog]))
    store.save_draft(old, StoredDraft(text="[Image #1]", attachments={1: cow}))
    store.add_turn(kept, None, user_turn("second?", [dog]))
    store.delete(old)
    clock.now += 29 * DAY_S
    store.delete(new)
    assert purge_deleted(store, 30 * DAY_S) == []
    clock.now += DAY_S + 1
    assert purge_deleted(store, 30 * DAY_S) == [old]
    with pytest.raises(VlmtuiError):
        store.conversation(old)
    assert [item.id for item in store.deleted()] == [new]
    assert [item.conversation.id for item in store.conversations()] == [kept]
    assert store.conversations("first") == []
    there = {Path(item.path).exists() and item.sha256 for item in (cat, dog, cow, owl)}
    assert there == {False, dog.sha256, owl.sha256}, "another needs it; nobody ever needed it"
    assert integrity(store.database.path) == "ok"
    assert purge_deleted(store, 30 * DAY_S) == []


def test_what_was_brought_back_stays(store: Store, clock: Clock) -> None:
    conversation = store.new_conversation()
    store.delete(conversation)
    clock.now += 40 * DAY_S
    store.undelete(conversation)
    assert purge_deleted(store, 30 * DAY_S) == []
    assert store.conversation(conversation).deleted_ms is None


def test_what_is_gone_on_with_elsewhere_stays(store: Store, clock: Clock) -> None:
    conversation = store.new_conversation()
    store.delete(conversation)
    clock.now += 20 * DAY_S
    store.add_turn(conversation, None, user_turn("still here"))
    clock.now += 20 * DAY_S
    assert purge_deleted(store, 30 * DAY_S) == []
    clock.now += 10 * DAY_S
    assert purge_deleted(store, 30 * DAY_S) == [conversation]


def test_a_file_that_was_attached_anew_stays(store: Store, clock: Clock) -> None:
    cat = attachment(store.media, b"cat")
    conversation = store.new_conversation()
    store.add_turn(conversation, None, user_turn("?", [cat]))
    store.delete(conversation)
    clock.now += 40 * DAY_S
    assert purge_deleted(store, 30 * DAY_S) == [conversation]
    assert Path(cat.path).exists(), "someone has staged it today, and may be about to send it"
