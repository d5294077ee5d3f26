"""A purge on request removes what was listed, and nothing that a draft, an answer or another app needs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.unit.store.made import RECIPE, attachment, exchange, integrity, opened
from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.media.content_store import freed_marker, remove_copies
from vlmtui.store import purge_on_request as purging
from vlmtui.store.purge_on_request import PurgePlan, PurgeResult, PurgeWish, plan_purge, purge_on_request
from vlmtui.store.records import ConversationId, StoredDraft
from vlmtui.store.store import Store

DAY_S = 86_400.0
TRASH = PurgeWish(deleted=True)
UNUSED = PurgeWish(unreferenced=True)
OLD = PurgeWish(older_than_s=90 * DAY_S)


class Clock:
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


def with_picture(store: Store, picture: Attachment, title: str) -> ConversationId:
    conversation = store.new_conversation(title=title)
    store.add_turn(conversation, None, user_turn("What is this?", [picture]))
    return conversation


def ids(plan: PurgePlan) -> list[ConversationId]:
    return [one.id for one in plan.conversations]


def done(store: Store, wish: PurgeWish) -> PurgeResult:
    return purge_on_request(store, plan_purge(store, wish), wish)


def aged(item: Attachment) -> Attachment:
    """A file of two days ago."""
    then = time.time() - 2 * DAY_S
    os.utime(item.path, (then, then))
    return item


def test_deleted_conversations_go_with_what_only_they_use(store: Store, tmp_path: Path) -> None:
    cat, dog = (attachment(store.media, data * 5000) for data in (b"cat", b"dog"))
    gone = with_picture(store, cat, "secret words")
    store.add_turn(gone, store.conversation(gone).leaf, user_turn("confidential " * 9000, [dog]))
    stays = with_picture(store, dog, "stays")
    store.delete(gone)
    before = sum(file.stat().st_size for file in tmp_path.glob("data/conversations.db*"))
    plan = plan_purge(store, TRASH)
    assert (ids(plan), [str(file) for file in plan.files], plan.bytes) == ([gone], [cat.path], 15_000)
    assert Path(cat.path).exists(), "a plan changes nothing"
    result = purge_on_request(store, plan, TRASH)
    assert (result.conversations, result.files) == ((gone,), 1)
    after = sum(file.stat().st_size for file in tmp_path.glob("data/conversations.db*"))
    assert result.bytes > 15_000 and after < before
    assert b"confidential" not in store.database.path.read_bytes(), "the text is gone from the file, too"
    assert not Path(cat.path).exists() and Path(dog.path).exists()
    assert [one.conversation.id for one in store.conversations()] == [stays]
    assert plan_purge(store, TRASH).conversations == ()
    store.close()
    assert integrity(store.database.path) == "ok"


def test_unused_files_go_once_they_are_a_day_old(store: Store) -> None:
    used, drafted, old, new = (attachment(store.media, data) for data in (b"used", b"drafted", b"old", b"new"))
    conversation = with_picture(store, used, "one")
    store.save_draft(conversation, StoredDraft(text="[Image #1]", attachments={1: drafted}))
    for item in (used, drafted, old):
        aged(item)
    assert [str(file) for file in plan_purge(store, UNUSED).files] == [old.path]
    assert plan_purge(store, TRASH).files == ()
    assert done(store, UNUSED).files == 1
    assert [Path(item.path).exists() for item in (used, drafted, old, new)] == [True, True, False, True]


def test_age_narrows_the_other_choices_and_alone_selects_all_that_is_old(store: Store, clock: Clock) -> None:
    old, pinned, drafted, trash = (store.new_conversation(title=title) for title in ("old", "pin", "draft", "trash"))
    store.pin(pinned)
    store.save_draft(drafted, StoredDraft(text="not sent"))
    store.delete(trash)
    clock.now += 91 * DAY_S
    new, deleted_now = store.new_conversation(title="new"), store.new_conversation(title="deleted now")
    store.delete(deleted_now)
    assert ids(plan_purge(store, OLD)) == [old, trash]
    assert ids(plan_purge(store, PurgeWish(deleted=True, older_than_s=90 * DAY_S))) == [trash]
    assert ids(plan_purge(store, TRASH)) == [trash, deleted_now]
    assert ids(plan_purge(store, UNUSED)) == []
    assert set(done(store, OLD).conversations) == {old, trash}
    assert {one.conversation.id for one in store.conversations()} == {pinned, drafted, new}


def test_what_is_used_after_it_was_deleted_stays(store: Store) -> None:
    answered, drafted = store.new_conversation(), store.new_conversation()
    store.begin_answer(store.add_turn(answered, None, user_turn("?")), RECIPE)
    for conversation in (answered, drafted):
        store.delete(conversation)
    store.save_draft(drafted, StoredDraft(text="typed after all"))
    assert ids(plan_purge(store, TRASH)) == []


def test_nothing_goes_while_another_has_the_store_open(store: Store, tmp_path: Path) -> None:
    conversation = store.new_conversation()
    store.delete(conversation)
    other = opened(tmp_path / "data")
    with pytest.raises(VlmtuiError, match="Another vlmtui"):
        done(store, TRASH)
    assert [one.id for one in store.deleted()] == [conversation]
    other.close()
    assert done(store, TRASH).conversations == (conversation,)


def test_what_was_restored_or_came_after_the_list_stays(store: Store) -> None:
    restored, later = store.new_conversation(), store.new_conversation()
    store.delete(restored)
    plan = plan_purge(store, TRASH)
    store.undelete(restored)
    store.delete(later)
    assert purge_on_request(store, plan, TRASH).conversations == ()
    assert store.conversation(restored).deleted_ms is None and store.conversation(later)


def test_a_file_that_is_stored_again_in_the_very_moment_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cat = aged(attachment(store.media, b"cat"))

    def used_meanwhile(*arguments: object, unless: object) -> None:
        marker = freed_marker(store.media, cat.sha256)
        os.utime(marker, (time.time() + 1, time.time() + 1))
        remove_copies(*arguments, unless=unless)  # type: ignore[arg-type]

    monkeypatch.setattr(purging, "remove_copies", used_meanwhile)
    assert done(store, UNUSED).files == 0
    assert Path(cat.path).read_bytes() == b"cat"


def test_a_purge_that_was_killed_before_the_files_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cat = aged(attachment(store.media, b"cat"))
    store.delete(with_picture(store, cat, "goes"))

    def killed(*_: object) -> list[int]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(purging, "_remove_files", killed)
        with pytest.raises(KeyboardInterrupt):
            done(store, TRASH)
    assert freed_marker(store.media, cat.sha256).exists(), "the app removes it a day later"
    exchange(store, store.new_conversation(title="still usable"), 1)
    assert Path(cat.path).exists()
