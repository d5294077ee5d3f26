"""Writes to the terminal in a thread, so that a stalled connection blocks nothing. No Textual here."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

WAITING_MAX = 256 * 1024
"""Most bytes waiting for the terminal. Frames beyond that are dropped."""
_CONTROL_MAX = 32
"""Longest sequence in characters that counts as a mode switch of the terminal; those are never dropped."""
_FRAME_MARKS = ("\x1b[?2026h", "\x1b[?2026l")
"""Start and end of a frame."""


class Output:
    """Writes to a descriptor. `write` never waits and never fails.

    While the terminal accepts nothing, frames are dropped; once it has accepted everything pending, `on_caught_up` is
    called, in the thread, to redraw the screen.
    """

    def __init__(self, descriptor: int, *, encoding: str = "utf-8", on_caught_up: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._encoding = encoding
        self._on_caught_up = on_caught_up
        self._waiting: list[bytes] = []
        self._size = 0
        self._left_out = False
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="terminal-output", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Queue the text. Characters that the terminal's encoding lacks become question marks."""
        with self._changed:
            is_behind = self._left_out or self._size > WAITING_MAX
            if is_behind and (len(text) > _CONTROL_MAX or text in _FRAME_MARKS):
                self._left_out = True
                return
            data = text.encode(self._encoding, errors="replace")
            self._waiting.append(data)
            self._size += len(data)
            self._changed.notify()

    def close(self, timeout_s: float) -> bool:
        """Wait until everything is written; False after `timeout_s`. Nothing may be written later."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (data := self._take()) is not None:
            self._put(data)
            with self._changed:
                is_behind = self._left_out and not self._waiting
                self._left_out = self._left_out and not is_behind
            if is_behind:
                self._on_caught_up()

    def _take(self) -> bytes | None:
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            return data

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except OSError:  # the terminal has disappeared
                return
