"""Some histories over a failing disk. That the campaign finds what is there to be found."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.campaign import HistoryResult, run_history, table
from tests.faults.disk import Fault
from tests.faults.vfs import is_supported
from vlmtui.store import database, newest_changes, opening, verifying
from vlmtui.store.store import Store

pytestmark = pytest.mark.skipif(not is_supported(), reason="this Python has its SQLite built in")

_FAULTS = len(Fault)


def played(fault: Fault, histories: int) -> list[HistoryResult]:
    first = list(Fault).index(fault)
    return [run_history(number) for number in range(first, first + histories * _FAULTS, _FAULTS)]


@pytest.mark.parametrize("fault", Fault)
def test_nothing_acknowledged_is_lost(fault: Fault) -> None:
    results = played(fault, 6)
    assert [one.lost for one in results if one.lost] == []
    assert sum(one.acknowledged for one in results) > 0 and sum(one.struck for one in results) > 0
    assert fault in table(results, 1.0)


def test_a_history_is_the_same_every_time() -> None:
    assert run_history(1) == run_history(1)


def set_up_with(*pragmas: str) -> Callable[[sqlite3.Connection], None]:
    real = database.set_up

    def set_up(connection: sqlite3.Connection) -> None:
        real(connection)
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    return set_up


def finds_a_loss(fault: Fault, most: int = 60) -> bool:
    first = list(Fault).index(fault)
    return any(run_history(number).lost for number in range(first, first + most * _FAULTS, _FAULTS))


@pytest.mark.parametrize("pragma", ["synchronous = OFF", "synchronous = NORMAL"])
@pytest.mark.parametrize("fault", [Fault.POWER, Fault.TORN])
def test_a_store_that_does_not_flush_is_found_out(fault: Fault, pragma: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "set_up", set_up_with(pragma))
    assert finds_a_loss(fault)


def test_a_store_without_a_journal_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "set_up", set_up_with("journal_mode = MEMORY"))
    assert finds_a_loss(Fault.KILL)


def test_a_call_that_stores_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "rename", lambda *_: None)
    assert finds_a_loss(Fault.KILL)


_LOSS = (365, 4)
"""A history and its seed: the fsync of a change failed, the store was opened again, and then the power failed."""


def test_a_refused_change_is_written_again_before_it_comes_to_be(tmp_path: Path) -> None:
    assert run_history(*_LOSS, tmp_path, fault=Fault.FSYNC).lost == []


def test_a_log_that_is_trusted_after_a_failed_fsync_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "flush_log_again", lambda _: None)
    assert run_history(*_LOSS, tmp_path, fault=Fault.FSYNC).lost


def test_without_the_mark_damage_to_the_log_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_changes.NewestMark, "write", lambda *_: None)
    results = [run_history(number, fault=Fault.LOG) for number in range(20)]
    assert any(one.is_changed and not one.is_noticed for one in results)


def test_a_check_that_looks_at_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nothing = verifying.StoreReport(findings=(), conversations=0, turns=0, media=0, unused_media=0)
    monkeypatch.setattr("tests.faults.campaign.verify_store", lambda *_: nothing)
    results = played(Fault.BITS, 80)
    assert any(one.is_changed and not one.is_noticed for one in results)
