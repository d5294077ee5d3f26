"""Keeps chat templates and forward passes apart: templates run under a memory limit of the whole process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class ForwardGate:
    """Templates wait for the forward pass that is running; the next pass waits for the templates.

    A template takes milliseconds, so an answer is held up between two of its tokens, unnoticed.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._computes = False
        self._templates = 0

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Hold the gate in the thread that computes."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def between_passes(self) -> None:
        """Let waiting templates through."""
        with self._changed:
            if not self._templates:
                return
        self._leave()
        self._enter()

    @asynccontextmanager
    async def template(self) -> AsyncIterator[None]:
        """Wait for the running forward pass, and hold up the next one."""
        with self._changed:
            self._templates += 1
        try:
            await asyncio.to_thread(self._wait_for_pass)
            yield
        finally:
            with self._changed:
                self._templates -= 1
                self._changed.notify_all()

    def _enter(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._templates)
            self._computes = True

    def _leave(self) -> None:
        with self._changed:
            self._computes = False
            self._changed.notify_all()

    def _wait_for_pass(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._computes)
