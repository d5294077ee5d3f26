"""Several processes at once, and processes that are killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.unit.store.made import RECIPE, exchange, integrity, opened
from vlmtui.domain.conversation import user_turn
from vlmtui.store.opening import FILE
from vlmtui.store.records import AnswerData, ConversationId
from vlmtui.store.store import Store

pytestmark = pytest.mark.process

SPAWN = multiprocessing.get_context("spawn")


def write_exchanges(folder: Path, conversation: ConversationId, count: int) -> None:
    store = Store.open(folder, busy_s=60)
    for number in range(count):
        exchange(store, conversation, number)
    store.close()


def write_until_killed(folder: Path, conversation: ConversationId, pipe: Connection) -> None:
    """Tell the number of every turn after it was committed."""
    store = Store.open(folder, busy_s=60)
    leaf = store.conversation(conversation).leaf
    while True:
        asked = store.add_turn(conversation, leaf, user_turn("a question " * 50))
        pipe.send((asked, "complete"))
        leaf = store.begin_answer(asked, RECIPE)
        pipe.send((leaf, "running"))
        store.write_answer(leaf, "an answer " * 50, AnswerData(tokens=100))


def open_and_close(folder: Path) -> None:
    Store.open(folder, busy_s=60).close()


@pytest.mark.parametrize("same", [True, False], ids=["one conversation", "two conversations"])
def test_two_processes_write_at_once(same: bool, tmp_path: Path) -> None:
    store = opened(tmp_path)
    first = store.new_conversation()
    conversations = [first, first if same else store.new_conversation()]
    writers = [SPAWN.Process(target=write_exchanges, args=(tmp_path, one, 100)) for one in conversations]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0, 0]
    turns = [turn for one in dict.fromkeys(conversations) for turn in store.tree(one)]
    assert len(turns) == 400
    assert len({turn.created_ms for turn in turns}) == 400
    assert all(turn.state == "complete" for turn in turns)
    assert store.mark_interrupted() == []
    store.close()
    assert integrity(tmp_path / FILE) == "ok"


def test_a_killed_writer_loses_nothing_it_had_committed(tmp_path: Path) -> None:
    store = opened(tmp_path)
    conversation = store.new_conversation()
    store.close()
    told: dict[int, str] = {}
    for round_ in range(20):
        ours, theirs = SPAWN.Pipe(duplex=False)
        writer = SPAWN.Process(target=write_until_killed, args=(tmp_path, conversation, theirs))
        writer.start()
        theirs.close()
        for _ in range(1 + round_ * 2):
            assert ours.poll(60)
            told.update([ours.recv()])
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join(60)
        while ours.poll():
            try:
                told.update([ours.recv()])
            except EOFError:
                break
        assert integrity(tmp_path / FILE) == "ok"
        store = opened(tmp_path)
        kept = {turn.id: turn for turn in store.tree(conversation)}
        assert told.keys() <= kept.keys()
        assert set(store.mark_interrupted()) == {turn.id for turn in kept.values() if turn.state == "running"}
        assert all(turn.state != "running" for turn in store.tree(conversation))
        assert len(store.path(conversation)) == store.conversation(conversation).length
        store.close()
    assert list((tmp_path / "sessions").iterdir()) == []


def test_several_processes_make_the_database_at_once(tmp_path: Path) -> None:
    openers = [SPAWN.Process(target=open_and_close, args=(tmp_path / "data",)) for _ in range(4)]
    for opener in openers:
        opener.start()
    for opener in openers:
        opener.join(60)
    assert [opener.exitcode for opener in openers] == [0] * 4
    opened(tmp_path / "data").close()
    assert not list((tmp_path / "data").glob("*damaged*"))
