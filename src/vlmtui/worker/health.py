"""Detects a hung engine: a hang ends no process, so this module looks for signs of life."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

_QUIET_S = 2.0
"""Seconds without an event from the engine before its processes are checked."""
_MIN_CPU_SHARE = 0.02
"""Share of one core. An engine that uses less is not computing."""


def children_cpu_seconds() -> float:
    """Return the CPU seconds used by all descendants of this process. Blocks for some milliseconds."""
    total = 0.0
    with suppress(psutil.Error):
        for process in psutil.Process(os.getpid()).children(recursive=True):
            with suppress(psutil.Error):
                used = process.cpu_times()
                total += used.user + used.system
    return total


def own_cpu_seconds() -> float:
    """Return the CPU seconds used by the threads of this process, but for the first one, which serves."""
    with suppress(psutil.Error):
        threads = psutil.Process().threads()
        return sum(one.user_time + one.system_time for one in threads if one.id != os.getpid())
    return 0.0


class EngineHealth:
    """Checks two signs of life: the engine's event loop answers a ping; and while requests run, either events arrive
    or the engine's processes use CPU time. A long prefill is therefore no hang, but a stopped or deadlocked process is.
    """

    def __init__(
        self,
        ping: Callable[[Callable[[], None]], None],
        *,
        shortest_s: float,
        clock: Callable[[], float] = time.monotonic,
        cpu_seconds: Callable[[], float] = children_cpu_seconds,
    ) -> None:
        """`ping` has the engine's event loop call back. A silence below `shortest_s` counts as none. `cpu_seconds`
        (called in a thread) returns the CPU time that the engine's processes, or threads, have used."""
        self._ping = ping
        self._shortest_s = shortest_s
        self._clock = clock
        self._cpu_seconds = cpu_seconds
        self._pinged_at: float | None = None
        self._alive_at: float | None = None
        """When the processes last showed a sign of life; None while none is expected."""
        self._cpu: float | None = None
        self._checked_at = 0.0

    @property
    def silent_s(self) -> float:
        """Seconds without a sign of life; 0 if the engine is well."""
        now = self._clock()
        loop = 0.0 if self._pinged_at is None else now - self._pinged_at
        processes = 0.0 if self._alive_at is None else now - self._alive_at
        longest = max(loop, processes)
        return longest if longest > self._shortest_s else 0.0

    async def check(self, *, generating: bool, last_event_at: float) -> None:
        """Check both signs; call this every second or two. `last_event_at`: monotonic time of the last event."""
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
