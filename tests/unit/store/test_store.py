"""Conversations as trees: adding, switching, listing, searching, windows."""

from __future__ import annotations

import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import examples
from tests.unit.store.made import (
    COMPLETE,
    RECIPE,
    STATISTICS,
    attachment,
    bulk,
    exchange,
    integrity,
    needed,
    opened,
    search,
)
from vlmtui.domain.conversation import Media, Text, Turn, assistant_turn, system_turn, user_turn
from vlmtui.domain.generation import Failure
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.resume import load_conversation
from vlmtui.store.errors import StoreError
from vlmtui.store.opening import FILE
from vlmtui.store.records import AnswerData, ConversationId, StoredDraft, TurnId
from vlmtui.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = opened(tmp_path / "data")
    yield store
    store.close()


def texts(store: Store, conversation: ConversationId) -> list[str]:
    return [turn.text for turn in store.path(conversation)]


def test_files_are_private(store: Store) -> None:
    store.new_conversation()
    folder = store.database.path.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.glob("conversations.db*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_loose_database_is_made_private(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / FILE).chmod(0o644)
    opened(tmp_path).close()
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_all_messages_are_there_after_reopening(tmp_path: Path) -> None:
    store = opened(tmp_path)
    cat, dog = (attachment(tmp_path / "media", data) for data in (b"cat", b"dog"))
    conversation = store.new_conversation(title="Cats", model="shapes")
    system = store.add_turn(conversation, None, system_turn("Be brief."))
    parts = (Text("Is "), Media(cat), Text(" or "), Media(dog), Text(" a cat?\ud800\0"))
    asked = store.add_turn(conversation, system, Turn("user", parts))
    answer = store.begin_answer(asked, RECIPE)
    store.write_answer(answer, "The", AnswerData(tokens=1))
    assert store.turn(answer).state == "running"
    store.write_answer(answer, "The first.", COMPLETE)
    store.close()

    store = opened(tmp_path)
    first, second, third = store.path(conversation)
    assert first.turn == system_turn("Be brief.")
    assert second.parts == (*parts[:4], Text(" a cat?\ufffd\0"))
    assert third.turn == assistant_turn("The first.")
    assert (third.state, third.statistics, third.generation, third.tokens) == ("complete", STATISTICS, RECIPE, 3)
    assert [turn.depth for turn in (first, second, third)] == [0, 1, 2]
    assert first.created_ms < second.created_ms < third.created_ms < (third.ended_ms or 0)
    found = store.conversation(conversation)
    assert (found.title, found.model, found.length, found.leaf) == ("Cats", "shapes", 3, answer)
    store.close()


def test_failure_is_kept(store: Store) -> None:
    conversation = store.new_conversation()
    answer = store.begin_answer(store.add_turn(conversation, None, user_turn("?")), RECIPE)
    failure = Failure(kind=ErrorKind.OUT_OF_MEMORY, message="No memory.", hint="Buy some.")
    store.write_answer(answer, "Half an", AnswerData(state="failed", failure=failure))
    assert (store.turn(answer).failure, store.turn(answer).text) == (failure, "Half an")
    with pytest.raises(VlmtuiError, match="already ended"):
        store.write_answer(answer, "more", AnswerData(tokens=2))


def test_branches_and_switching(store: Store) -> None:
    conversation = store.new_conversation()
    asked = store.add_turn(conversation, None, user_turn("q1"))
    first = store.add_turn(conversation, asked, assistant_turn("a1"))
    below = store.add_turn(conversation, first, user_turn("q2"))
    store.add_turn(conversation, below, assistant_turn("a2"))
    second = store.add_turn(conversation, asked, assistant_turn("a1 again"))
    assert texts(store, conversation) == ["q1", "a1 again"]
    assert store.siblings(first) == [first, second]
    assert [(turn.position, turn.siblings) for turn in store.path(conversation)] == [(1, 1), (2, 2)]
    store.activate(first)
    assert texts(store, conversation) == ["q1", "a1", "q2", "a2"]
    edited = store.add_turn(conversation, None, user_turn("q1 edited"))
    assert texts(store, conversation) == ["q1 edited"]
    assert store.siblings(edited) == [asked, edited]
    store.activate(second)
    assert texts(store, conversation) == ["q1", "a1 again"]
    store.activate(asked)
    assert texts(store, conversation) == ["q1", "a1 again"]
    store.activate(below)
    assert texts(store, conversation) == ["q1", "a1", "q2", "a2"]
    aside = store.add_turn(conversation, asked, assistant_turn("unseen"))
    store.activate(below)
    assert texts(store, conversation) == ["q1", "a1", "q2", "a2"]
    assert [turn.text for turn in store.tree(conversation)][-1] == "unseen"
    assert store.turn(aside).position == 3
    assert integrity(store.database.path) == "ok"


def test_a_parent_of_another_conversation_is_refused(store: Store) -> None:
    mine = store.add_turn(store.new_conversation(), None, user_turn("mine"))
    other = store.new_conversation()
    for parent in (mine, TurnId(999)):
        with pytest.raises(VlmtuiError, match="no turn"):
            store.add_turn(other, parent, user_turn("?"))
    with pytest.raises(VlmtuiError, match="no conversation"):
        store.add_turn(ConversationId("nowhere"), None, user_turn("?"))
    with pytest.raises(VlmtuiError, match="no conversation"):
        store.rename(ConversationId("nowhere"), "?")
    assert store.path(other) == []


def test_list_order_pins_and_deleting(store: Store) -> None:
    a, b, c = (store.new_conversation(title=title) for title in "abc")
    store.pin(a)
    store.add_turn(b, None, user_turn("newest"))

    def shown() -> list[ConversationId]:
        return [item.conversation.id for item in store.conversations()]

    assert shown() == [a, b, c]
    assert [item.conversation.id for item in store.conversations(limit=1, offset=1)] == [b]
    store.delete(b)
    assert (shown(), [item.id for item in store.deleted()]) == ([a, c], [b])
    store.undelete(b)
    assert shown() == [a, b, c]
    store.delete(b)
    store.add_turn(b, store.conversation(b).leaf, user_turn("from a terminal that had it open"))
    assert (shown(), store.deleted()) == ([a, b, c], [])
    store.purge(b)
    assert shown() == [a, c]
    with pytest.raises(VlmtuiError):
        store.conversation(b)
    assert integrity(store.database.path) == "ok"


def test_a_long_conversation_is_purged_as_well(store: Store) -> None:
    conversation = bulk(store, 2_000)
    store.purge(conversation)
    assert store.conversations() == []
    assert integrity(store.database.path) == "ok"


def test_ids_sort_by_time_even_when_the_clock_runs_back(tmp_path: Path) -> None:
    times = iter([1_000.0, 2_000.0, 500.0, 500.0, 3_000.0])
    store = Store.open(tmp_path, now=lambda: next(times))
    made = [store.new_conversation() for _ in range(5)]
    assert made == sorted(made)
    assert [item.conversation.id for item in store.conversations()] == made[::-1]
    assert len({len(conversation) for conversation in made}) == 1
    store.close()


def test_an_id_that_is_taken_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(tmp_path, now=lambda: 1_000.0)
    draws = iter([7, 7, 7, 8])
    monkeypatch.setattr(secrets, "randbits", lambda bits: next(draws))
    with store.together():
        made = [store.new_conversation(title=title) for title in ("first", "second")]
    assert [store.conversation(conversation).title for conversation in made] == ["first", "second"]
    assert list(draws) == []
    store.close()


def test_drafts(store: Store) -> None:
    conversation = store.new_conversation()
    cat = attachment(store.media, b"cat")
    assert store.draft(conversation) == StoredDraft()
    draft = StoredDraft(text="look: [Image #3]", attachments={3: cat})
    store.save_draft(conversation, draft)
    assert store.draft(conversation) == draft
    assert needed(store) == {cat.sha256}
    store.save_draft(conversation, StoredDraft())
    assert store.draft(conversation) == StoredDraft()
    assert needed(store) == set()


def test_turns_and_comparisons_refer_to_their_media(store: Store) -> None:
    cat, dog, _cow = (attachment(store.media, data) for data in (b"cat", b"dog", b"cow"))
    conversation = store.new_conversation()
    turn = store.add_turn(conversation, None, user_turn("?", [cat]))
    run = {"answers": ["a", "b"]}
    store.add_comparison(turn, run, [dog])
    assert [item.document for item in store.comparisons(turn)] == [run]
    store.delete(conversation)
    assert needed(store) == {cat.sha256, dog.sha256}
    store.purge(conversation)
    assert needed(store) == set()


def test_a_running_answer_is_read_while_the_store_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    asked = store.add_turn(conversation := store.new_conversation(), None, user_turn("?"))
    store.write_answer(store.begin_answer(asked, RECIPE), "so far", AnswerData(tokens=2))

    def full() -> None:
        raise StoreError(ErrorKind.BAD_INPUT, "The disk is full.")

    monkeypatch.setattr(store, "mark_interrupted", full)
    (exchange,) = load_conversation(store, conversation=conversation).branch.all
    assert exchange.answer.text == "so far"
    store.close()


def test_answers_of_the_living_are_left_alone(tmp_path: Path) -> None:
    one, two = opened(tmp_path), opened(tmp_path)
    asked = one.add_turn(one.new_conversation(), None, user_turn("?"))
    answer = one.begin_answer(asked, RECIPE)
    one.write_answer(answer, "so far", AnswerData(tokens=2))
    assert two.mark_interrupted() == one.mark_interrupted() == []
    one.close()
    assert two.mark_interrupted() == [answer]
    found = two.turn(answer)
    assert (found.state, found.text, found.tokens) == ("interrupted", "so far", 2)
    assert search(two, "so far") == [answer]
    two.close()


def test_search(store: Store) -> None:
    conversation = store.new_conversation(title="Übersicht der Katzen")
    other = store.new_conversation(title="other")
    asked = store.add_turn(conversation, None, user_turn("Where is the café <b>bold</b>?"))
    answer = store.begin_answer(asked, RECIPE)
    store.write_answer(answer, "zebra", AnswerData(tokens=1))
    assert search(store, "zebra") == []
    store.write_answer(answer, "The CAFE is in the north, says the zebra.", COMPLETE)
    exchange(store, other, 1)
    assert search(store, "cafe") == [answer, asked]
    snippet = store.conversations("zeb")[0].snippet
    assert snippet is not None and [snippet.text[start:end] for start, end in snippet.marks] == ["zebra"]
    (listed,) = store.conversations("cafe")
    assert (listed.conversation.id, listed.turn) == (conversation, answer)
    (listed,) = store.conversations("ubersicht kat")
    assert (listed.turn, listed.snippet) == (None, None)
    store.rename(conversation, "renamed")
    assert store.conversations("ubersicht") == []
    store.delete(conversation)
    assert store.conversations("cafe") == store.conversations("renamed") == []
    assert integrity(store.database.path) == "ok"


OPERATORS = ['"', "a AND", "NOT", "OR", "NEAR(", "a*", "^a", "title:x", "{a b}", "a + b", "(((", "-a", "*", '"*']
HOSTILE = [
    *OPERATORS,
    "'; DROP TABLE turns",
    "\0",
    "a\0b",
    "\ud800",
    "a" * 5000,
    "a " * 5000,
    "%_",
    "你好",
    "🙂",
    "\ue000a",
]


@pytest.mark.parametrize("query", HOSTILE)
def test_a_hostile_query_is_only_words(store: Store, query: str) -> None:
    store.add_turn(store.new_conversation(title="a"), None, user_turn("a b \ue000 \ue001 NOT"))
    store.conversations(query)


def test_any_query_is_only_words(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.add_turn(store.new_conversation(title="a"), None, user_turn("a"))

    @settings(max_examples=examples(300), deadline=None)
    @given(st.text(st.characters(exclude_categories=()), max_size=20))
    def check(query: str) -> None:
        store.conversations(query)

    check()
    store.close()


def test_a_window_touches_only_the_window(store: Store) -> None:
    """Counted in steps of SQLite's machine, which do not depend on the computer."""

    def steps(conversation: ConversationId) -> int:
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        store.database.connection.set_progress_handler(step, 1)
        window = store.turns(conversation)
        store.database.connection.set_progress_handler(None, 1)
        assert len(window) == 50
        return count

    small, large = bulk(store, 100, images=25), bulk(store, 2_000, images=500)
    assert steps(large) == pytest.approx(steps(small), rel=0.02)
    assert len({turn.turn.attachments[0].sha256 for turn in store.path(large) if turn.turn.attachments}) == 500


def test_the_last_turns_and_those_above_are_the_whole(store: Store) -> None:
    conversation = bulk(store, 123)
    found = store.turns(conversation)
    whole = [*store.above(found[0].id), *found]
    assert [turn.id for turn in whole] == [turn.id for turn in store.path(conversation)]
    assert [turn.depth for turn in whole] == list(range(123))
    assert store.turns(conversation, limit=0) == []


def test_a_full_disk_is_reported_and_leaves_the_store_usable(store: Store) -> None:
    conversation = store.new_conversation()
    asked = store.add_turn(conversation, None, user_turn("kept"))
    connection = store.database.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(VlmtuiError, match="is full") as raised:
        store.add_turn(conversation, asked, user_turn("lost " * 20_000))
    assert raised.value.hint
    assert texts(store, conversation) == ["kept"]
    connection.execute("PRAGMA max_page_count = 1000000")
    store.add_turn(conversation, asked, user_turn("again " * 20_000))
    assert len(store.path(conversation)) == 2
    assert integrity(store.database.path) == "ok"


def test_a_lasting_lock_is_reported(tmp_path: Path) -> None:
    one, two = opened(tmp_path), opened(tmp_path, busy_s=0.1)
    with one.database.writing(), pytest.raises(VlmtuiError, match="locked"):
        two.new_conversation()
    two.new_conversation()
    assert len(one.conversations()) == 1
    one.close()
    two.close()


def test_a_database_that_was_moved_away_takes_no_writes(store: Store) -> None:
    store.database.path.rename(store.database.path.with_suffix(".moved"))
    with pytest.raises(VlmtuiError, match="moved or replaced"):
        store.new_conversation()
