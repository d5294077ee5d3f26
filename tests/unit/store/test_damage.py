"""A damaged database is set aside, and what can be read is kept."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.store.made import RECIPE, attachment, bulk, exchange, integrity, needed, opened
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.store import salvage
from vlmtui.store.opening import FILE
from vlmtui.store.records import Recovery, StoredDraft
from vlmtui.store.store import OpenResult, Store

TURNS = 400


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database of three conversations."""
    folder = tmp_path_factory.mktemp("sound")
    store = opened(folder)
    bulk(store, TURNS)
    conversation = store.new_conversation(title="exchanges")
    for number in range(20):
        exchange(store, conversation, number)
    store.save_draft(conversation, StoredDraft(text="not sent"))
    store.new_conversation(title="empty")
    store.close()
    return (folder / FILE).read_bytes()


def open_damaged(folder: Path, data: bytes) -> OpenResult:
    path = folder / FILE
    path.write_bytes(data)
    found = Store.open(folder)
    if found.recovered is not None:
        assert found.recovered.set_aside.exists()
        assert found.recovered.set_aside.parent == folder
        assert str(found.recovered.set_aside) in found.recovered.summary
        assert integrity(path) == "ok"
    return found


def works(store: Store) -> None:
    """Everything can be read, and the store takes more."""
    for listed in store.conversations():
        branch = store.path(listed.conversation.id)
        assert len(branch) == listed.conversation.length
        assert {turn.id for turn in branch} <= {turn.id for turn in store.tree(listed.conversation.id)}
        exchange(store, listed.conversation.id, 99)
    conversation = store.new_conversation(title="new")
    exchange(store, conversation, 1)
    assert store.conversations()[0].conversation.id == conversation
    store.close()


def works_or_is_mended(store: Store) -> None:
    """The quick check does not see everything; what is met later is mended at the next start."""
    try:
        works(store)
    except VlmtuiError as error:
        assert "damaged" in error.message
        store.close()
        found = Store.open(store.database.path.parent)
        assert found.recovered is not None and found.recovered.turns >= TURNS // 2
        works(found.store)


@pytest.mark.parametrize("data", [b"", b"no database at all " * 1000, b"\0" * 8192], ids=["emptied", "other", "zeros"])
def test_nothing_can_be_read(data: bytes, tmp_path: Path) -> None:
    found = open_damaged(tmp_path, data)
    assert isinstance(found.recovered, Recovery)
    assert (found.recovered.conversations, found.recovered.turns) == (0, 0)
    assert found.recovered.set_aside.read_bytes() == data
    works(found.store)
    opened(tmp_path).close()


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9, 0.99])
def test_truncated(part: float, sound: bytes, tmp_path: Path) -> None:
    found = open_damaged(tmp_path, sound[: int(len(sound) * part)])
    assert isinstance(found.recovered, Recovery)
    assert found.recovered.turns >= (TURNS + 40) * (part - 0.3)
    if found.recovered.turns_lost is not None:
        assert found.recovered.turns + found.recovered.turns_lost >= TURNS + 40
    works(found.store)


def test_an_absurd_number_of_a_turn_costs_no_time(
    sound: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(salvage, "_PROBED_MAX", 1_000)
    path = tmp_path / FILE
    path.write_bytes(sound)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for turn, number in ((TURNS, 2**38), (TURNS - 1, 2**40)):
            connection.execute(f"UPDATE turns SET id = {number} WHERE id = {turn}")
        connection.execute(f"UPDATE sqlite_sequence SET seq = {2**39} WHERE name = 'turns'")
    path.with_name(f"{FILE}.suspect").touch()
    found = open_damaged(tmp_path, path.read_bytes())
    assert found.recovered is not None and found.recovered.turns > TURNS // 2
    assert found.recovered.turns_lost is None, "nobody knows"
    works(found.store)


def test_the_header_alone_costs_nothing(sound: bytes, tmp_path: Path) -> None:
    found = open_damaged(tmp_path, bytes(100) + sound[100:])
    assert isinstance(found.recovered, Recovery)
    assert (found.recovered.conversations, found.recovered.turns) == (3, TURNS + 40)
    assert found.store.draft(found.store.conversations("exchanges")[0].conversation.id).text == "not sent"
    works(found.store)


def test_the_first_page_alone_costs_nothing(sound: bytes, tmp_path: Path) -> None:
    found = open_damaged(tmp_path, random.Random(0).randbytes(4096) + sound[4096:])
    assert isinstance(found.recovered, Recovery)
    assert (found.recovered.conversations, found.recovered.turns) == (3, TURNS + 40)
    works(found.store)


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bits(seed: int, sound: bytes, tmp_path: Path) -> None:
    """Wherever they are, the store opens and works; what is lost stays near them."""
    chance = random.Random(seed)
    data = bytearray(sound)
    for _ in range(chance.choice([1, 5, 20])):
        at = chance.randrange(len(data)) if chance.random() < 0.7 else chance.randrange(4096)
        data[at] ^= 1 << chance.randrange(8)
    try:
        found = open_damaged(tmp_path, bytes(data))
    except VlmtuiError as error:
        assert "another version" in error.message
        return
    if found.recovered is not None:
        assert found.recovered.turns >= TURNS // 2
    works_or_is_mended(found.store)


def test_a_shown_turn_that_lost_its_conversation_is_exported_all_the_same(tmp_path: Path) -> None:
    store = opened(tmp_path)
    conversation = store.new_conversation(title="Cats")
    asked = store.add_turn(conversation, None, user_turn("Is it a cat?"))
    store.add_turn(conversation, asked, user_turn("Sure?"))
    store.database.rows("PRAGMA foreign_keys = OFF")
    store.database.rows("UPDATE turns SET conversation = 'x' WHERE id = ?", (asked,))
    assert [turn.text for turn in store.tree(conversation)] == ["Is it a cat?", "Sure?"]
    store.close()


@pytest.mark.parametrize("page", [1, 2, 3, 17, 18, 19, 20, 21, 22, 23, 24, 25, 30, 40, 50])
def test_a_lost_page_costs_its_own_rows(page: int, sound: bytes, tmp_path: Path) -> None:
    data = sound[: page * 4096] + b"\xff" * 4096 + sound[(page + 1) * 4096 :]
    found = open_damaged(tmp_path, data)
    if found.recovered is not None:
        assert found.recovered.turns >= TURNS // 2
    works_or_is_mended(found.store)


def test_damage_that_shows_while_in_use_is_mended_at_the_next_start(tmp_path: Path) -> None:
    store = opened(tmp_path)
    conversation = store.new_conversation()
    cat = attachment(store.media, b"cat")
    asked = store.add_turn(conversation, None, user_turn("Is it a cat?", [cat]))
    store.begin_answer(asked, RECIPE)
    store.database.rows("UPDATE turns_search_data SET block = x'ffffffffffffffffffffffff'")
    store.database.rows("DELETE FROM media_references")
    with pytest.raises(VlmtuiError, match="damaged") as raised:
        for _ in range(3):
            store.search("cat")
            store.add_turn(conversation, asked, user_turn("more"))
    assert "Restart" in raised.value.hint
    store.close()
    found = Store.open(tmp_path)
    assert found.recovered is not None and found.recovered.turns_lost == 0
    assert [hit.turn for hit in found.store.search("cat")] == [asked]
    assert needed(found.store) == {cat.sha256}
    works(found.store)


def test_a_second_damage_does_not_overwrite_the_first(sound: bytes, tmp_path: Path) -> None:
    for _ in range(3):
        found = open_damaged(tmp_path, bytes(100) + sound[100:])
        found.store.close()
    assert len(list(tmp_path.glob("conversations.damaged-*.db"))) == 3
