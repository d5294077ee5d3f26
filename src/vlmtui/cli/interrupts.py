"""Turns Ctrl+C, SIGTERM and SIGHUP into a cancellation, so that everything can clean up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_interruptible(work: Callable[[], Coroutine[None, None, int]]) -> int:
    """Run `work`, a command's coroutine function. Return its exit code, or 128 + n if signal n ended it.

    The first signal cancels it and waits for its cleanup; further signals during the cleanup are ignored.
    """
    return asyncio.run(_run(work))


async def _run(work: Callable[[], Coroutine[None, None, int]]) -> int:
    loop = asyncio.get_running_loop()
    task = loop.create_task(work())
    received: list[signal.Signals] = []

    def interrupt(number: signal.Signals) -> None:
        if not received:
            received.append(number)
            task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return 128 + received[0]
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
