"""A damaged database stays as it is until a backup takes its place; damage of indexes alone loses nothing."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.store.made import RECIPE, attachment, exchange, integrity, opened, search
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.store.backup import back_up_daily, restore_newest
from vlmtui.store.errors import StoreError
from vlmtui.store.opening import FILE
from vlmtui.store.store import Store

Damage = Callable[[bytes], bytes]
BACKED_UP, SINCE = 40, 6
"""Turns that the backup has, and turns since it was made."""
PAGE = 4096


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a backup, and turns since then."""
    folder = tmp_path_factory.mktemp("sound") / "data"
    store = opened(folder)
    conversation = store.new_conversation(title="exchanges")
    for number in range((BACKED_UP + SINCE) // 2):
        if number == BACKED_UP // 2:
            assert back_up_daily(folder) is not None
        exchange(store, conversation, number)
    store.close()
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "data")


def spoil(folder: Path, damage: Damage) -> bytes:
    path = folder / FILE
    path.write_bytes(damage(path.read_bytes()))
    return path.read_bytes()


def root_page(folder: Path, name: str) -> int:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        return int(connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()[0])


def over(page: int, content: bytes = b"\xff" * PAGE) -> Damage:
    """Write over a page, counted from 1."""
    return lambda data: data[: (page - 1) * PAGE] + content + data[page * PAGE :]


DAMAGES: dict[str, Damage] = {
    "emptied": lambda _: b"",
    "zeros": lambda data: bytes(len(data)),
    "another file": lambda _: b"no database at all " * 1000,
    "zeroed header": lambda data: bytes(100) + data[100:],
    "random first page": over(1, random.Random(0).randbytes(PAGE)),
    "truncated": lambda data: data[: len(data) // 2],
    "a schema with another name": lambda data: data.replace(b"CREATE TABLE drafts", b"CREATE TABLE \x94rafts"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_names_the_backup_and_changes_nothing_until_it_is_restored(folder: Path, name: str) -> None:
    data = spoil(folder, DAMAGES[name])
    with pytest.raises(StoreError) as told:
        Store.open(folder)
    damage = told.value.damage
    assert damage is not None
    assert (folder / FILE).read_bytes() == data
    assert str(folder / FILE) in told.value.message and "`vlmtui store restore`" in told.value.hint
    assert damage.backup is not None and damage.lacking in (SINCE, None)
    done = restore_newest(folder, folder / "media")
    [aside] = folder.glob("conversations.replaced-*.db")
    assert aside.read_bytes() == data and str(aside) in done
    store = opened(folder)
    conversation = store.conversations()[0].conversation
    assert conversation.length == BACKED_UP
    exchange(store, conversation.id, 99)
    assert len(search(store, "99")) == 2
    store.close()
    assert integrity(folder / FILE) == "ok"


def test_the_turns_that_the_backup_lacks_are_counted(folder: Path) -> None:
    spoil(folder, over(root_page(folder, "turns_parent")))
    with pytest.raises(StoreError, match="damaged") as told:
        Store.open(folder)
    damage = told.value.damage
    assert damage is not None
    assert damage.lacking == SINCE and f"lacks at most {SINCE} turns" in told.value.hint


def test_a_torn_page_is_reported(folder: Path) -> None:
    root = (root_page(folder, "turns") - 1) * PAGE
    data = (folder / FILE).read_bytes()
    cell = root + int.from_bytes(data[root + 12 : root + 14], "big")
    leaf = int.from_bytes(data[cell : cell + 4], "big")
    spoil(folder, over(leaf, data[(leaf - 1) * PAGE :][:512] + bytes(PAGE - 512)))
    with pytest.raises(StoreError) as told:
        Store.open(folder)
    damage = told.value.damage
    assert damage is not None
    assert damage.lacking == SINCE


def test_a_backup_that_is_damaged_is_passed_over(folder: Path) -> None:
    [good] = (folder / "backups").iterdir()
    newer = good.with_name("conversations-9999-01-01.db")
    newer.write_bytes(good.read_bytes()[: 3 * PAGE])
    spoil(folder, DAMAGES["zeroed header"])
    with pytest.raises(StoreError) as told:
        Store.open(folder)
    damage = told.value.damage
    assert damage is not None
    assert damage.backup == good


def test_without_a_backup_it_goes_on_with_an_empty_database(folder: Path) -> None:
    shutil.rmtree(folder / "backups")
    data = spoil(folder, DAMAGES["truncated"])
    with pytest.raises(StoreError, match="no good backup"):
        Store.open(folder)
    restore_newest(folder, folder / "media")
    store = opened(folder)
    assert store.conversations() == []
    store.close()
    assert next(folder.glob("conversations.replaced-*.db")).read_bytes() == data


def test_a_sound_database_is_not_replaced(folder: Path) -> None:
    before = (folder / FILE).read_bytes()
    with pytest.raises(VlmtuiError, match="not damaged"):
        restore_newest(folder, folder / "media")
    assert (folder / FILE).read_bytes() == before


@pytest.mark.parametrize("name", ["turns_search_data", "titles_search_data", "turns_search_idx"])
def test_a_search_index_that_is_damaged_is_rebuilt(folder: Path, name: str) -> None:
    spoil(folder, over(root_page(folder, name), random.Random(1).randbytes(PAGE)))
    store = Store.open(folder)
    assert "No message is lost" in store.notice and next(folder.glob("*.replaced-*")).name in store.notice
    assert store.conversations()[0].conversation.length == BACKED_UP + SINCE
    assert len(search(store, "picture")) == BACKED_UP + SINCE
    store.close()
    assert integrity(folder / FILE) == "ok"


def test_a_search_index_that_fails_in_use_is_rebuilt_at_the_next_opening(tmp_path: Path) -> None:
    store = opened(tmp_path)
    conversation = store.new_conversation()
    cat = attachment(store.media, b"cat")
    asked = store.add_turn(conversation, None, user_turn("Is it a cat?", [cat]))
    store.begin_answer(asked, RECIPE)
    store.database.rows("UPDATE turns_search_data SET block = x'ffffffffffffffffffffffff'")
    with pytest.raises(VlmtuiError, match="damaged"):
        for _ in range(3):
            search(store, "cat")
            store.add_turn(conversation, asked, user_turn("more"))
    assert store.is_stale
    store.close()
    again = Store.open(tmp_path, thorough=True)
    assert "No message is lost" in again.notice
    assert search(again, "cat") == [asked]
    again.close()


def test_row_ids_of_the_damaged_database_are_not_reused(folder: Path) -> None:
    """An app that has it open would write to rows of others."""
    store = opened(folder)
    last = store.conversations()[0].conversation.leaf
    store.close()
    spoil(folder, over(root_page(folder, "turns_parent")))
    restore_newest(folder, folder / "media")
    store = opened(folder)
    assert last is not None and store.add_turn(store.new_conversation(), None, user_turn("new")) > last
    store.close()


@pytest.mark.parametrize("seed", range(20))
def test_with_flipped_bits_it_opens_or_reports_damage(folder: Path, seed: int) -> None:
    chance = random.Random(seed)

    def flip(data: bytes) -> bytes:
        flipped = bytearray(data)
        for _ in range(chance.choice([1, 5, 20])):
            at = chance.randrange(len(data)) if chance.random() < 0.7 else chance.randrange(PAGE)
            flipped[at] ^= 1 << chance.randrange(8)
        return bytes(flipped)

    data = spoil(folder, flip)
    try:
        store = Store.open(folder)
    except StoreError:
        assert (folder / FILE).read_bytes() == data
    except VlmtuiError as error:
        assert "another version" in error.message
    else:
        store.conversations()
        store.close()
