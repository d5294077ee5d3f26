"""Keeps this process off the cores on which an engine computes. Linux only; elsewhere nothing is bound."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")
BESIDE = "beside-model"
"""The name of threads that were moved away from a model's cores. 15 letters at most."""
_ZEROMQ = "ZMQbg"
_IS_LINUX = sys.platform.startswith("linux")


class Cores:
    """Where the threads of this process run.

    Without a GPU, vLLM binds the threads of its model to all cores but one. They cannot move away from another thread
    on their core, and each step waits for the slowest of them; the scheduler does not know that. A process that
    prepares the next prompts meanwhile belongs on the core that is left.
    """

    def __init__(self) -> None:
        self._all = os.sched_getaffinity(0) if _IS_LINUX else set()

    def leave(self, taken: set[int]) -> set[int]:
        """Move all threads, and those that they start from now on, away from these cores. Return where they run now:
        where they were if no core would be left."""
        left = self._all - taken
        if taken and left:
            for task in _TASKS.iterdir():
                with suppress(OSError):  # it has ended
                    os.sched_setaffinity(int(task.name), left)
        return left or self._all

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Let this thread, and those that it starts, use all cores for a while."""
        if not _IS_LINUX:
            yield
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._all)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


CORES = Cores()


def bound_cores(tasks: Path = _TASKS) -> set[int]:
    """Return the cores to which threads that compute in a process, by default this one, are bound, one each. Raises
    OSError."""
    if not _IS_LINUX:
        return set()
    found: set[int] = set()
    for task in tasks.iterdir():
        with suppress(OSError):
            cores = os.sched_getaffinity(int(task.name))
            found |= cores if len(cores) == 1 and not _name(task).startswith((BESIDE, _ZEROMQ)) else set()
    return found


def run_beside(cores: set[int]) -> None:
    """Move this process's threads that do not compute to these cores: Python's own but the main one, and ZeroMQ's."""
    if not _IS_LINUX:
        return
    python = {str(thread.native_id) for thread in threading.enumerate() if thread is not threading.main_thread()}
    for task in _TASKS.iterdir():
        with suppress(OSError):  # it has ended
            if task.name in python:
                (task / "comm").write_text(BESIDE)
            if task.name in python or _name(task).startswith(_ZEROMQ):
                os.sched_setaffinity(int(task.name), cores)


def _name(task: Path) -> str:
    return (task / "comm").read_text()
