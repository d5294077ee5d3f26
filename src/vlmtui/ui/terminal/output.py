"""Writes to the terminal without ever waiting for it. No Textual here."""

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

    What the terminal does not accept at once waits for it, in a thread. While it accepts nothing, frames are dropped;
    once it has accepted everything pending, `on_caught_up` is called, in the thread, to redraw the screen.
    """

    def __init__(self, descriptor: int, *, encoding: str = "utf-8", on_caught_up: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._direct = _open_without_waiting(descriptor)
        self._encoding = encoding
        self._on_caught_up = on_caught_up
        self._waiting: list[bytes] = []
        self._size = 0
        self._is_writing = False
        """Whether the thread writes."""
        self._left_out = False
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        """Runs since the terminal was slow for the first time."""

    @property
    def is_behind(self) -> bool:
        """Whether the terminal has not accepted everything yet. `on_caught_up` is called when it has."""
        with self._changed:
            if self._is_writing or self._waiting:
                self._left_out = True
                return True
            return False

    def write(self, text: str) -> bool:
        """Write the text, or queue it. Characters that the terminal's encoding lacks become question marks. False if it
        was dropped."""
        with self._changed:
            is_behind = self._size > WAITING_MAX or (self._left_out and self._is_slow)
            if is_behind and (len(text) > _CONTROL_MAX or text in _FRAME_MARKS):
                self._left_out = True
                return False
            data = text.encode(self._encoding, errors="replace")
            if not self._is_slow:
                data = self._write_now(data)
            if data:
                self._waiting.append(data)
                self._size += len(data)
                self._wake_thread()
            return True

    def close(self, timeout_s: float) -> bool:
        """Wait until everything is written; False after `timeout_s`. Nothing may be written later."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None
        return True

    @property
    def _is_slow(self) -> bool:
        return self._is_writing or bool(self._waiting)

    def _write_now(self, data: bytes) -> bytes:
        """Write what the terminal accepts at once; return the rest."""
        if self._direct is None:
            return data
        try:
            return data[os.write(self._direct, data) :]
        except BlockingIOError:
            return data
        except OSError:  # the terminal has disappeared
            return b""

    def _wake_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="terminal-output", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while (data := self._take()) is not None:
            self._put(data)
            with self._changed:
                self._is_writing = False
                is_caught_up = self._left_out and not self._waiting
                self._left_out = self._left_out and not is_caught_up
            if is_caught_up:
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
            self._is_writing = True
            return data

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except OSError:  # the terminal has disappeared
                return


def _open_without_waiting(descriptor: int) -> int | None:
    """Open the descriptor's terminal once more, so that writing does not wait: the descriptor itself may be shared with
    other programs. None where that is impossible."""
    try:
        return os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None
