"""Watch the engine: whether it hangs, its memory, and how its processes exited."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from vlmtui.errors import ErrorKind, VlmtuiError

_QUIET_S = 2.0
"""Seconds without an event from the engine before its processes are checked."""
_MIN_CPU_SHARE = 0.02
"""The share of one core below which an engine counts as idle."""


def children_cpu_seconds() -> float:
    """Return the CPU seconds that all descendants of this process have used. Blocks for a few milliseconds."""
    total = 0.0
    with suppress(psutil.Error):
        for process in psutil.Process(os.getpid()).children(recursive=True):
            with suppress(psutil.Error):
                used = process.cpu_times()
                total += used.user + used.system
    return total


def own_cpu_seconds() -> float:
    """Return the CPU seconds of this process's threads, without the main thread, which is the server's."""
    with suppress(psutil.Error):
        threads = psutil.Process().threads()
        return sum(one.user_time + one.system_time for one in threads if one.id != os.getpid())
    return 0.0


def limit_memory() -> None:
    """Let this process, and each that it starts, allocate no more than what is free now. An allocation beyond it raises
    an error, before the kernel ends any process. Linux only; not for GPUs, whose driver reserves more than that."""
    if not sys.platform.startswith("linux"):
        return
    free = psutil.virtual_memory().available
    with suppress(OSError, ValueError):  # `max`, or no cgroup of version 2
        free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = psutil.Process().memory_info().data + free + psutil.swap_memory().free
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


class EngineHealth:
    """Detects an engine that hangs: its event loop does not answer a ping, or a request runs while no event arrives and
    the engine's processes use no CPU time. A long prefill uses CPU time, and so does not count as a hang."""

    def __init__(
        self,
        ping: Callable[[Callable[[], None]], None],
        *,
        shortest_s: float,
        clock: Callable[[], float] = time.monotonic,
        cpu_seconds: Callable[[], float] = children_cpu_seconds,
    ) -> None:
        """`ping`: makes the engine's event loop call a function. `shortest_s`: a shorter silence counts as 0.
        `cpu_seconds`: returns the CPU time that the engine has used; called in a thread."""
        self._ping = ping
        self._shortest_s = shortest_s
        self._clock = clock
        self._cpu_seconds = cpu_seconds
        self._pinged_at: float | None = None
        self._alive_at: float | None = None
        """When the engine's processes last used CPU time; None while they have nothing to do."""
        self._cpu: float | None = None
        self._checked_at = 0.0

    @property
    def silent_s(self) -> float:
        """Seconds for which the engine has been hanging; 0 if it is not hanging."""
        now = self._clock()
        loop = 0.0 if self._pinged_at is None else now - self._pinged_at
        processes = 0.0 if self._alive_at is None else now - self._alive_at
        longest = max(loop, processes)
        return longest if longest > self._shortest_s else 0.0

    async def check(self, *, generating: bool, last_event_at: float) -> None:
        """Check the engine. Call this every second or two. `last_event_at`: `time.monotonic()` of the last event."""
        if self._pinged_at is None:
            self._pinged_at = self._clock()
            self._ping(self._ponged)
        now = self._clock()
        if not generating or now - last_event_at < _QUIET_S:
            self._alive_at = self._cpu = None
            return
        used = await asyncio.to_thread(self._cpu_seconds)
        if self._cpu is None or abs(used - self._cpu) >= _MIN_CPU_SHARE * (now - self._checked_at):
            self._alive_at = now
        self._cpu, self._checked_at = used, now

    def _ponged(self) -> None:
        self._pinged_at = None


_RECENT_S = 5.0
"""An out-of-memory kill of so many seconds ago counts as the cause of a process's end."""
_MACHINE = Path("/proc/vmstat")


class MemoryKills:
    """Tells whether the kernel's out-of-memory killer has just ended a process: of this cgroup (v2), or, if its count
    can't be read, of the machine. Linux only."""

    def __init__(self, counter: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`counter`: a file with a line `oom_kill N`."""
        self._counter = counter or _own_counter()
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def look(self) -> bool:
        """Read the count, and return whether it has risen in the last 5 seconds. Call this every second or two: the
        first call returns False, and so does one after a pause of more than 10 seconds."""
        now = self._clock()
        self._seen.append((now, self._count()))
        while len(self._seen) > 1 and self._seen[1][0] <= now - _RECENT_S:
            self._seen.popleft()
        then, before = self._seen[0]
        return self._seen[-1][1] > before and now - then <= 2 * _RECENT_S

    def _count(self) -> int:
        try:
            lines = self._counter.read_text().splitlines()
        except OSError:
            return 0
        found = (line.split() for line in lines if line.startswith("oom_kill "))
        return next((int(words[1]) for words in found if words[1:] and words[1].isdecimal()), 0)


def _own_counter() -> Path:
    with suppress(OSError):
        groups = [line.removeprefix("0::/") for line in Path("/proc/self/cgroup").read_text().splitlines()]
        group = next((group for group in groups if ":" not in group), "")
        counter = Path("/sys/fs/cgroup", group, "memory.events")
        if counter.exists():
            return counter
    return _MACHINE


memory_kills = MemoryKills()
"""Of this process's cgroup."""


class ProcessExits:
    """Remembers the processes of a loaded engine and reports how they exited."""

    def __init__(self) -> None:
        self._children: list[BaseProcess] = []

    def begin(self) -> None:
        """Remember the current child processes as the engine's. Call this when the engine is loaded."""
        self._children = multiprocessing.active_children()

    def add_exits(self, error: VlmtuiError) -> VlmtuiError:
        """Return the error; for ENGINE_DIED, with the exits of the engine's processes added to its message."""
        if error.kind is not ErrorKind.ENGINE_DIED:
            return error
        codes = [(child.name, child.exitcode) for child in self._children]
        exits = [f"{name} {describe_exit(code)}." for name, code in codes if code is not None]
        return VlmtuiError(error.kind, " ".join([error.message, *exits]), detail=error.detail, hint=error.hint)


def describe_exit(code: int) -> str:
    """Return `exited with status 1` or `was killed by signal 9 (SIGKILL)`, of a process that has just ended. A negative
    `code` is a signal."""
    if code >= 0:
        return f"exited with status {code}"
    try:
        name = f" ({signal.Signals(-code).name})"
    except ValueError:
        name = ""
    is_full = code == -signal.SIGKILL and memory_kills.look()
    why = ", probably by the kernel: its out-of-memory killer ended a process in these seconds" if is_full else ""
    return f"was killed by signal {-code}{name}{why}"


def memory_of(pid: int) -> tuple[int, int | None]:
    """Return the resident and GPU memory in bytes of a process and all its descendants. Blocks for a few milliseconds.

    GPU memory is None without NVIDIA's driver."""
    rss = 0
    pids: set[int] = set()
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.Error):
                rss += process.memory_info().rss
                pids.add(process.pid)
    return rss, _nvidia_bytes(pids)


def _nvidia_bytes(pids: set[int]) -> int | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    total = 0
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                if process.pid in pids:
                    total += process.usedGpuMemory or 0
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    return total
