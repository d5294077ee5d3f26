"""What was deleted long ago leaves the disk, a day later its media, and nothing else does."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from tests.unit.store.made import RECIPE, attachment, bulk, integrity, needed
from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.media.content_store import freed_marker, remove_copies, store_bytes
from vlmtui.store.purging import purge_deleted
from vlmtui.store.records import ConversationId, StoredDraft
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
    return Store.open(tmp_path / "data", now=clock).store


def age_markers(store: Store) -> None:
    """A day and an hour pass for the media that wait."""
    then = time.time() - DAY_S - 3600
    for marker in (store.media / ".freed").glob("*"):
        os.utime(marker, (then, then))


def there(*items: Attachment) -> list[bool]:
    return [Path(item.path).exists() for item in items]


def deleted_with(store: Store, *items: Attachment) -> ConversationId:
    conversation = store.new_conversation()
    store.add_turn(conversation, None, user_turn("?", list(items)))
    store.delete(conversation)
    return conversation


def purge_a_day_later(store: Store, clock: Clock) -> list[ConversationId]:
    """What is found due now goes a day later."""
    assert purge_deleted(store, MONTH_S) == []
    clock.now += DAY_S
    return purge_deleted(store, MONTH_S)


def test_what_was_deleted_long_ago_is_gone_with_its_media(store: Store, clock: Clock, tmp_path: Path) -> None:
    cat, dog, cow, owl = (attachment(store.media, data) for data in (b"cat", b"dog", b"cow", b"owl"))
    old, new, kept = (store.new_conversation(title=title) for title in ("old", "new", "kept"))
    store.add_turn(old, None, user_turn("first?", [cat, dog]))
    store.save_draft(old, StoredDraft(text="[Image #1]", attachments={1: cow}))
    store.add_turn(kept, None, user_turn("second?", [dog]))
    store.delete(old)
    clock.now += 29 * DAY_S
    store.delete(new)
    assert purge_deleted(store, MONTH_S) == []
    clock.now += DAY_S + 1
    assert purge_a_day_later(store, clock) == [old]
    assert (tmp_path / "data" / "due.json").read_bytes() == b"{}"
    with pytest.raises(VlmtuiError):
        store.conversation(old)
    assert [item.id for item in store.deleted()] == [new]
    assert [item.conversation.id for item in store.conversations()] == [kept]
    assert store.conversations("first") == []
    assert purge_deleted(store, MONTH_S) == []
    assert there(cat, dog, cow, owl) == [True] * 4, "someone may be attaching the same file just now"
    age_markers(store)
    assert purge_deleted(store, MONTH_S) == []
    assert there(cat, dog, cow, owl) == [False, True, False, True], "another needs the dog; nobody ever needed the owl"
    assert list((store.media / ".freed").iterdir()) == []
    assert integrity(store.database.path) == "ok"


def test_what_was_restored_stays(store: Store, clock: Clock) -> None:
    conversation = store.new_conversation()
    store.delete(conversation)
    clock.now += 40 * DAY_S
    store.undelete(conversation)
    assert purge_deleted(store, MONTH_S) == []
    assert store.conversation(conversation).deleted_ms is None


def test_what_another_process_still_writes_stays(store: Store, clock: Clock, tmp_path: Path) -> None:
    other = Store.open(tmp_path / "data", now=clock).store
    answered, drafted = store.new_conversation(), store.new_conversation()
    answer = other.begin_answer(other.add_turn(answered, None, user_turn("?")), RECIPE)
    for conversation in (answered, drafted):
        store.delete(conversation)
    clock.now += 40 * DAY_S
    other.append_answer(answer, "still coming", 2)
    other.save_draft(drafted, StoredDraft(text="just typed"))
    assert purge_deleted(store, MONTH_S) == []
    other.close()
    assert store.mark_interrupted() == [answer]
    clock.now += MONTH_S + 1
    assert set(purge_a_day_later(store, clock)) == {answered, drafted}


def test_a_file_that_is_attached_anew_stays(store: Store, clock: Clock) -> None:
    cat = attachment(store.media, b"cat")
    deleted_with(store, cat)
    clock.now += 40 * DAY_S
    assert purge_a_day_later(store, clock)
    age_markers(store)
    before = Path(cat.path).stat()
    store_bytes(b"cat", store.media, ".png", name="cat.png")
    purge_deleted(store, MONTH_S)
    assert there(cat) == [True]
    assert Path(cat.path).stat().st_mtime_ns == before.st_mtime_ns, "whoever reads it is not disturbed"
    store.add_turn(store.new_conversation(), None, user_turn("again", [cat]))
    age_markers(store)
    purge_deleted(store, MONTH_S)
    assert there(cat) == [True] and needed(store) == {cat.sha256}
    assert not freed_marker(store.media, cat.sha256).exists()


def test_a_file_that_is_attached_in_the_very_moment_gets_its_name_back(store: Store) -> None:
    cat = attachment(store.media, b"cat")

    def attach() -> bool:
        assert not Path(cat.path).exists(), "whoever looks now stores it anew"
        return True

    remove_copies(store.media, cat.sha256, unless=attach)
    assert Path(cat.path).read_bytes() == b"cat"
    remove_copies(store.media, cat.sha256, unless=lambda: False)
    assert list(Path(cat.path).parent.iterdir()) == []


def test_a_long_conversation_and_a_failing_one_do_not_keep_the_others(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, failing, short = bulk(store, 2_000), store.new_conversation(), store.new_conversation()
    for conversation in (long, failing, short):
        store.delete(conversation)
    clock.now += 40 * DAY_S
    purge = Store.purge

    def purge_or_fail(self: Store, conversation: ConversationId) -> None:
        if conversation == failing:
            self.database.rows("SELECT * FROM nowhere")
        purge(self, conversation)

    monkeypatch.setattr(Store, "purge", purge_or_fail)
    assert set(purge_a_day_later(store, clock)) == {long, short}
    assert [found.id for found in store.deleted()] == [failing]


def test_a_purge_that_is_rolled_back_removes_nothing(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cat = attachment(store.media, b"cat")
    gone = deleted_with(store, cat)
    clock.now += 40 * DAY_S

    def full(self: Store, conversation: ConversationId) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "purge", full)
        assert purge_a_day_later(store, clock) == []
    age_markers(store)
    assert purge_deleted(store, 60 * DAY_S) == []
    store.undelete(gone)
    assert there(cat) == [True]
