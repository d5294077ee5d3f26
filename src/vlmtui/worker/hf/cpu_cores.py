"""Keeps this process off the cores on which an engine computes. Linux only; elsewhere nothing is bound."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")
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
    """Return the cores to which threads of a process, by default this one, are bound, one each. Raises OSError."""
    if not _IS_LINUX:
        return set()
    found: set[int] = set()
    for task in tasks.iterdir():
        with suppress(OSError):
            cores = os.sched_getaffinity(int(task.name))
            found |= cores if len(cores) == 1 else set()
    return found
