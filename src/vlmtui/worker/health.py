"""Whether the engine still lives: a hang ends no process, so signs of life are looked for."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

_QUIET_S = 2.0
"""Processes are looked at only when the engine has given no event for so long."""
_LEAST_SHARE = 0.02
"""Of one core: an engine that uses less than that does not compute."""


def children_cpu_seconds() -> float:
    """Processor time of all that this process has started. Blocking, some milliseconds."""
    total = 0.0
    with suppress(psutil.Error):
        for process in psutil.Process(os.getpid()).children(recursive=True):
            with suppress(psutil.Error):
                used = process.cpu_times()
                total += used.user + used.system
    return total


class EngineHealth:
    """Looks for two signs of life. The engine's event loop answers when it is asked to. And while requests are being
    answered, events come, or the engine's processes use the processor: a long prefill is no hang, a process that is
    stopped or waits for a lock for ever is.
    """

    def __init__(
        self,
        ask: Callable[[Callable[[], None]], None],
        *,
        shortest_s: float,
        clock: Callable[[], float] = time.monotonic,
        cpu_seconds: Callable[[], float] = children_cpu_seconds,
    ) -> None:
        """`ask` has the engine's event loop call back; a silence below `shortest_s` is not told; `cpu_seconds` (called
        in a thread) is the processor time that the engine's processes have used."""
        self._ask = ask
        self._shortest_s = shortest_s
        self._clock = clock
        self._cpu_seconds = cpu_seconds
        self._asked_at: float | None = None
        self._alive_at: float | None = None
        """When the processes last showed that they live; None while nothing is asked of them."""
        self._cpu: float | None = None
        self._looked_at = 0.0

    @property
    def silent_s(self) -> float:
        """For how long there has been no sign of life; 0 where all is well."""
        now = self._clock()
        loop = 0.0 if self._asked_at is None else now - self._asked_at
        processes = 0.0 if self._alive_at is None else now - self._alive_at
        longest = max(loop, processes)
        return longest if longest > self._shortest_s else 0.0

    async def look(self, *, generating: bool, heard_at: float) -> None:
        """Look for both signs, to be called every second or two. `heard_at`: when the engine last gave an event."""
        if self._asked_at is None:
            self._asked_at = self._clock()
            self._ask(self._answered)
        now = self._clock()
        if not generating or now - heard_at < _QUIET_S:
            self._alive_at = self._cpu = None
            return
        used = await asyncio.to_thread(self._cpu_seconds)
        if self._cpu is None or abs(used - self._cpu) >= _LEAST_SHARE * (now - self._looked_at):
            self._alive_at = now
        self._cpu, self._looked_at = used, now

    def _answered(self) -> None:
        self._asked_at = None
