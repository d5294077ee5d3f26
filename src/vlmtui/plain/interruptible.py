"""What Ctrl+C stops: the running command, or only what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

Stop = Callable[[], Coroutine[Any, Any, object]]


class Interruptible:
    """Runs one command at a time, in the session's thread."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._stops: list[Stop] = []
        self._stopping: set[asyncio.Task[Any]] = set()
        self._was_cancelled = False

    async def run(self, work: Coroutine[Any, Any, object]) -> bool:
        """Run a command to its end; False if Ctrl+C cancelled it."""
        self._task, self._was_cancelled = asyncio.ensure_future(work), False
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        task, self._task = self._task, None
        if task.cancelled() and self._was_cancelled:
            return False
        task.result()
        return True

    @contextmanager
    def stopping(self, stop: Stop) -> Iterator[None]:
        """Let Ctrl+C call `stop` meanwhile, instead of cancelling the command."""
        self._stops.append(stop)
        try:
            yield
        finally:
            self._stops.remove(stop)

    def interrupt(self) -> None:
        """Handle Ctrl+C."""
        if self._stops:
            task: asyncio.Task[Any] = asyncio.ensure_future(self._stops[-1]())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
        elif self._task is not None:
            self._was_cancelled = True
            self._task.cancel()
