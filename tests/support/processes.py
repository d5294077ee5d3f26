"""Waits for processes to end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import psutil


def living(pids: Iterable[int]) -> list[int]:
    """Return the processes that run, without zombies."""
    return [pid for pid in pids if _lives(pid)]


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until_none_lives(pids: Iterable[int]) -> None:
    """Wait until all have ended; the kernel notifies only parents. Raises TimeoutError."""
    wanted = list(pids)
    async with asyncio.timeout(60):
        while living(wanted):
            await asyncio.sleep(0.02)
