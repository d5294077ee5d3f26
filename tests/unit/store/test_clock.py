"""A clock that is set back or forward, and the hour that comes twice: order, times and drafts stay as they were."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.store.made import exchange
from vlmtui.cli.conversations import _iso
from vlmtui.domain.times import LAST_MS, local_time
from vlmtui.export.conversation import to_json_document
from vlmtui.session.conversation_list import ago
from vlmtui.store.document import document_of, read_document
from vlmtui.store.store import Store

NOW = datetime(2026, 10, 24, 12, 0, tzinfo=UTC).timestamp()
DAY_S = 86_400.0
YEAR_S = 366 * DAY_S


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("jump_s", [-20 * YEAR_S, -3600.0, -0.001, 3600.0, 20 * YEAR_S, 7900 * YEAR_S])
def test_messages_after_a_clock_jump_stay_in_order(jump_s: float, tmp_path: Path) -> None:
    clock = Clock()
    store = Store.open(tmp_path, now=clock)
    first, second = store.new_conversation(title="first"), store.new_conversation(title="second")
    exchange(store, first, 1)
    clock.now += jump_s
    exchange(store, first, 2)
    clock.now = NOW + 10
    exchange(store, first, 3)
    exchange(store, second, 4)
    assert [turn.text.split()[1] for turn in store.path(first)] == ["1", "1", "2", "2", "3", "3"]
    assert store.last() == second
    newest = [entry.conversation.id for entry in store.conversations()]
    assert sorted(newest) == sorted([first, second]) and len(set(newest)) == 2
    for turn in (*store.path(first), *store.path(second)):
        assert 0 <= turn.created_ms <= LAST_MS and local_time(turn.created_ms)
    assert len(read_document(to_json_document(document_of(store, first)).text.encode()).turns) == 6
    store.close()
    again = Store.open(tmp_path, now=clock)
    assert again.last() == second
    again.close()


def test_a_clock_that_ran_ahead_is_caught_up_with(tmp_path: Path) -> None:
    """All that is made later would else have its times for ever."""
    clock = Clock()
    store = Store.open(tmp_path, now=clock)
    clock.now = NOW + 20 * YEAR_S
    store.new_conversation(title="far ahead")
    clock.now = NOW
    made = store.new_conversation(title="now")
    assert abs(store.conversation(made).created_ms - NOW * 1000) < 86_400_000
    store.close()


def test_a_clock_set_back_purges_nothing_early(tmp_path: Path) -> None:
    clock = Clock()
    store = Store.open(tmp_path, now=clock)
    conversation = store.new_conversation(title="deleted")
    store.delete(conversation)
    clock.now = NOW - YEAR_S
    assert store.purge_deleted(30 * DAY_S) == []
    clock.now = NOW + 31 * DAY_S
    assert store.purge_deleted(30 * DAY_S) == [conversation]
    store.close()


def test_the_hour_that_comes_twice_and_the_one_that_never_comes(berlin: None) -> None:
    once, twice = (int(datetime(2026, 10, 25, hour, 30, tzinfo=UTC).timestamp() * 1000) for hour in (0, 1))
    assert _iso(once) == "2026-10-25T02:30:00+02:00" and _iso(twice) == "2026-10-25T02:30:00+01:00"
    before, after = (int(datetime(2026, 3, 29, 0, 59, tzinfo=UTC).timestamp() * 1000) + add for add in (0, 120_000))
    assert _iso(before) == "2026-03-29T01:59:00+01:00" and _iso(after) == "2026-03-29T03:01:00+02:00"


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ((3, 29, 1, 59), (3, 29, 3, 1), "2 min ago"),
        ((3, 28, 23, 30), (3, 29, 3, 30), "3 h ago"),
        ((3, 28, 12, 0), (3, 29, 12, 0), "yesterday"),
        ((3, 28, 0, 30), (3, 29, 23, 30), "yesterday"),
        ((3, 27, 23, 59), (3, 29, 12, 0), "Friday"),
        ((10, 25, 0, 0), (10, 25, 23, 59), "24 h ago"),
        ((10, 24, 12, 0), (10, 25, 12, 0), "yesterday"),
        ((10, 24, 0, 5), (10, 25, 23, 55), "yesterday"),
    ],
)
def test_labels_around_the_nights_that_are_shorter_and_longer(
    then: tuple[int, int, int, int], now: tuple[int, int, int, int], told: str, berlin: None
) -> None:
    assert ago(int(datetime(2026, *then).timestamp() * 1000), datetime(2026, *now).timestamp()) == told


def test_the_second_of_two_hours_is_an_hour_later(berlin: None) -> None:
    first, second = (datetime(2026, 10, 25, 2, 30, fold=fold).timestamp() for fold in (0, 1))
    assert ago(int(first * 1000), second) == "1 h ago"


@pytest.mark.parametrize(
    ("ahead_s", "told"),
    [(30, "just now"), (1800, "just now"), (7200, "24 Oct"), (86_400, "25 Oct"), (YEAR_S, "25 Oct 2027")],
)
def test_a_future_time_is_shown_as_a_date(ahead_s: float, told: str, berlin: None) -> None:
    """The clock was set back since. Such a time was once shown as just now, until the clock caught up."""
    assert ago(int((NOW + ahead_s) * 1000), NOW) == told
