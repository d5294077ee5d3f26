"""The cores that a process leaves to the engine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from vlmtui.worker.hf.cpu_cores import BESIDE, Cores, bound_cores, run_beside

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores, and Linux"
)


def tasks() -> list[int]:
    return [int(task.name) for task in Path("/proc/self/task").iterdir()]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {task: os.sched_getaffinity(task) for task in tasks()}
    yield
    for task in tasks():
        with suppress(ProcessLookupError):  # a thread that has just ended
            os.sched_setaffinity(task, before.get(task, before[os.getpid()]))


def in_a_new_thread() -> set[int]:
    found: list[set[int]] = []
    thread = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)))
    thread.start()
    thread.join()
    return found[0]


def test_all_threads_leave_the_cores_and_new_ones_do_not_go_there() -> None:
    waits = threading.Event()
    thread = threading.Thread(target=waits.wait)
    thread.start()
    every = os.sched_getaffinity(0)
    taken = {min(every)}
    assert Cores().leave(taken) == every - taken
    assert {frozenset(os.sched_getaffinity(task)) for task in tasks()} == {frozenset(every - taken)}
    assert in_a_new_thread() == every - taken
    waits.set()
    thread.join()


def test_a_thread_uses_all_cores_for_a_while() -> None:
    every = os.sched_getaffinity(0)
    cores = Cores()
    left = cores.leave({min(every)})
    with cores.whole():
        assert os.sched_getaffinity(0) == in_a_new_thread() == every
    assert os.sched_getaffinity(0) == left


@pytest.mark.parametrize("is_any_taken", [False, True])
def test_nothing_is_left_where_no_core_would_remain_or_none_is_taken(is_any_taken: bool) -> None:
    every = os.sched_getaffinity(0)
    assert Cores().leave(every if is_any_taken else set()) == every
    assert os.sched_getaffinity(0) == every


def test_cores_to_which_a_thread_is_bound() -> None:
    core = max(os.sched_getaffinity(0))
    assert core not in bound_cores()
    waits, stands = threading.Event(), threading.Event()

    def stay() -> None:
        os.sched_setaffinity(0, {core})
        stands.set()
        waits.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    stands.wait()
    assert core in bound_cores()
    waits.set()
    thread.join()


def test_threads_that_do_not_compute_run_beside_those_that_do() -> None:
    every = os.sched_getaffinity(0)
    model, other = {max(every)}, {min(every)}
    os.sched_setaffinity(0, model)
    waits = threading.Event()
    thread = threading.Thread(target=waits.wait)
    thread.start()
    assert thread.native_id is not None
    assert os.sched_getaffinity(thread.native_id) == model
    run_beside(other)
    assert os.sched_getaffinity(0) == model
    assert os.sched_getaffinity(thread.native_id) == other
    assert Path(f"/proc/self/task/{thread.native_id}/comm").read_text().strip() == BESIDE
    assert bound_cores() == model  # the cores that another engine leaves alone
    waits.set()
    thread.join()
