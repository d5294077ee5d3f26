"""Conversations that were deleted long ago leave the disk with their media, and nothing else does."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from tests.unit.store.made import RECIPE, attachment, bulk, integrity, needed
from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.files import TEMPORARY_PREFIX
from vlmtui.media.content_store import remove_copies, store_bytes
from vlmtui.store.records import AnswerData, ConversationId, StoredDraft
from vlmtui.store.store import Store

DAY_S = 86_400.0
MONTH_S = 30 * DAY_S


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
def store(tmp_path: Path, clock: Clock) -> Store:
    return Store.open(tmp_path / "data", now=clock)


def there(*items: Attachment) -> list[bool]:
    return [Path(item.path).exists() for item in items]


def deleted_with(store: Store, *items: Attachment) -> ConversationId:
    conversation = store.new_conversation()
    store.add_turn(conversation, None, user_turn("?", list(items)))
    store.delete(conversation)
    return conversation


def test_a_conversation_deleted_long_ago_goes_with_its_media(store: Store, clock: Clock) -> None:
    cat, dog, cow, owl = (attachment(store.media, data) for data in (b"cat", b"dog", b"cow", b"owl"))
    old, new, kept = (store.new_conversation(title=title) for title in ("old", "new", "kept"))
    store.add_turn(old, None, user_turn("first?", [cat, dog]))
    store.save_draft(old, StoredDraft(text="[Image #1]", attachments={1: cow}))
    store.add_turn(kept, None, user_turn("second?", [dog]))
    store.delete(old)
    clock.now += 29 * DAY_S
    store.delete(new)
    assert store.purge_deleted(MONTH_S) == []
    clock.now += DAY_S + 1
    assert store.purge_deleted(MONTH_S) == [old]
    with pytest.raises(VlmtuiError):
        store.conversation(old)
    assert [item.id for item in store.deleted()] == [new]
    assert [item.conversation.id for item in store.conversations()] == [kept]
    assert store.conversations("first") == []
    assert there(cat, dog, cow, owl) == [False, True, False, True], "another needs the dog; nobody ever needed the owl"
    assert needed(store) == {dog.sha256}
    assert integrity(store.database.path) == "ok"


def test_a_restored_conversation_stays(store: Store, clock: Clock) -> None:
    conversation = store.new_conversation()
    store.delete(conversation)
    clock.now += 40 * DAY_S
    store.undelete(conversation)
    assert store.purge_deleted(MONTH_S) == []
    assert store.conversation(conversation).deleted_ms is None


def test_a_conversation_that_another_process_still_writes_stays(store: Store, clock: Clock, tmp_path: Path) -> None:
    other = Store.open(tmp_path / "data", now=clock)
    answered, drafted = store.new_conversation(), store.new_conversation()
    answer = other.begin_answer(other.add_turn(answered, None, user_turn("?")), RECIPE)
    for conversation in (answered, drafted):
        store.delete(conversation)
    clock.now += 40 * DAY_S
    other.write_answer(answer, "still coming", AnswerData(tokens=2))
    other.save_draft(drafted, StoredDraft(text="just typed"))
    assert store.purge_deleted(MONTH_S) == []
    other.close()
    assert store.mark_interrupted() == [answer]
    clock.now += MONTH_S + 1
    assert set(store.purge_deleted(MONTH_S)) == {answered, drafted}


@pytest.mark.parametrize("moment", ["before it is hidden", "while it is hidden"])
def test_a_file_that_is_attached_in_the_very_moment_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    cat = attachment(store.media, b"cat")
    replace = Path.replace

    def replace_and_attach(self: Path, target: Path) -> Path:
        if moment == "while it is hidden":
            found = replace(self, target)
        monkeypatch.setattr(Path, "replace", replace)
        assert store_bytes(b"cat", store.media, ".png", name="cat.png").path == Path(cat.path)
        return replace(self, target) if moment == "before it is hidden" else found

    monkeypatch.setattr(Path, "replace", replace_and_attach)
    remove_copies(store.media, cat.sha256)
    assert Path(cat.path).read_bytes() == b"cat"
    assert list(Path(cat.path).parent.iterdir()) == [Path(cat.path)]
    remove_copies(store.media, cat.sha256)
    assert list(Path(cat.path).parent.iterdir()) == []


def test_a_file_that_a_killed_erasure_had_hidden_goes_with_the_next(store: Store, clock: Clock) -> None:
    cat = attachment(store.media, b"cat")
    gone = deleted_with(store, cat)
    clock.now += 40 * DAY_S
    path = Path(cat.path)
    path.rename(path.with_name(f"{TEMPORARY_PREFIX}{path.name}"))
    assert store.purge_deleted(MONTH_S) == [gone]
    assert list(path.parent.iterdir()) == []


def test_a_long_conversation_is_erased(store: Store, clock: Clock) -> None:
    long = bulk(store, 2_000)
    store.delete(long)
    clock.now += 40 * DAY_S
    assert store.purge_deleted(MONTH_S) == [long]


def test_an_erasure_that_fails_leaves_the_conversation_for_the_next(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cat = attachment(store.media, b"cat")
    gone = deleted_with(store, cat)
    clock.now += 40 * DAY_S

    def full(self: Store, conversation: ConversationId) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "purge", full)
        with pytest.raises(VlmtuiError):
            store.purge_deleted(MONTH_S)
    assert there(cat) == [True] and [one.id for one in store.deleted()] == [gone]
    with monkeypatch.context() as patched:
        patched.setattr("vlmtui.store.store.remove_copies", lambda *_: (_ for _ in ()).throw(OSError("read-only")))
        with pytest.raises(OSError, match="read-only"):
            store.purge_deleted(MONTH_S)
    assert there(cat) == [True] and [one.id for one in store.deleted()] == [gone]
    assert store.purge_deleted(MONTH_S) == [gone] and there(cat) == [False]
