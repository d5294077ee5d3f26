"""How the engine's processes ended: by which signal or with which status, and whether the kernel was out of memory."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterable
from multiprocessing.process import BaseProcess
from pathlib import Path

from vlmtui.errors import ErrorKind, VlmtuiError

_COUNTERS = (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events"))
"""Files with a line `oom_kill N`: of the machine, and of this process's group (cgroup 2)."""


class ProcessEnds:
    """Remembers the engine's processes once it is loaded, and tells of their ends."""

    def __init__(self, counters: Iterable[Path] = _COUNTERS) -> None:
        self._counters = tuple(counters)
        self._children: list[BaseProcess] = []
        self._kills = 0

    def begin(self) -> None:
        """The engine is loaded: its processes are the children that this one has now."""
        self._children = multiprocessing.active_children()
        self._kills = self._count_kills()

    def explained(self, error: VlmtuiError) -> VlmtuiError:
        """The error; of an engine that died with how its processes ended, as far as that is known."""
        if error.kind is not ErrorKind.ENGINE_DIED:
            return error
        ends = [f"{child.name} {end_of(child.exitcode)}." for child in self._children if child.exitcode is not None]
        if ends and self._count_kills() > self._kills:
            ends.append("The kernel's out-of-memory killer ended a process at that time.")
        return VlmtuiError(error.kind, " ".join([error.message, *ends]), detail=error.detail, hint=error.hint)

    def _count_kills(self) -> int:
        """How many processes the kernel has ended for want of memory."""
        return sum(_counter(path) for path in self._counters)


def end_of(code: int) -> str:
    """`exited with status 1`, `was killed by signal 9 (SIGKILL)`, of an exit code as multiprocessing has it."""
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
