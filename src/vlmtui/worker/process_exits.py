"""How the engine's processes exited: signal or status, and whether the kernel's out-of-memory killer was active."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterable
from multiprocessing.process import BaseProcess
from pathlib import Path

from vlmtui.errors import ErrorKind, VlmtuiError

_COUNTERS = (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events"))
"""Files with a line `oom_kill N`: for the machine, and for this process's cgroup (v2)."""


class ProcessExits:
    """Remembers the processes of a loaded engine and reports how they exited."""

    def __init__(self, counters: Iterable[Path] = _COUNTERS) -> None:
        self._counters = tuple(counters)
        self._children: list[BaseProcess] = []
        self._kills = 0

    def begin(self) -> None:
        """Remember this process's current children as the engine's. Call it when the engine is loaded."""
        self._children = multiprocessing.active_children()
        self._kills = self._count_kills()

    def add_exits(self, error: VlmtuiError) -> VlmtuiError:
        """Return the error. ENGINE_DIED gets the known exits of the engine's processes added to its message."""
        if error.kind is not ErrorKind.ENGINE_DIED:
            return error
        codes = [(child.name, child.exitcode) for child in self._children]
        exits = [f"{name} {describe_exit(code)}." for name, code in codes if code is not None]
        if exits and self._count_kills() > self._kills:
            exits.append("The kernel's out-of-memory killer ended a process at that time.")
        return VlmtuiError(error.kind, " ".join([error.message, *exits]), detail=error.detail, hint=error.hint)

    def _count_kills(self) -> int:
        """Return how many processes the kernel's out-of-memory killer has ended."""
        return sum(_counter(path) for path in self._counters)


def describe_exit(code: int) -> str:
    """Return `exited with status 1` or `was killed by signal 9 (SIGKILL)` for an exit code of multiprocessing's."""
    if code >= 0:
        return f"exited with status {code}"
    try:
        name = f" ({signal.Signals(-code).name})"
    except ValueError:
        name = ""
    return f"was killed by signal {-code}{name}"


def _counter(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    found = (line.split() for line in lines if line.startswith("oom_kill "))
    return next((int(words[1]) for words in found if words[1:] and words[1].isdecimal()), 0)
