"""Signals while a line is read. readline looks for one only before it waits for a key: one that arrives just then would
be handled at the next key, which may never come."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_HANDLED_WITHIN_S = 0.3
_RECENT_S = 1.0
"""How long before its notice a signal may have been handled."""


@contextmanager
def handled_signals(
    numbers: tuple[signal.Signals, ...], handle: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Let `handle` handle these signals meanwhile, in the main thread, where this is called. One that is not handled
    soon is sent to that thread again, which ends its waiting."""
    handled = dict.fromkeys(map(int, numbers), 0.0)
    main, leaving = threading.get_ident(), threading.Event()
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def take(number: int, frame: FrameType | None) -> None:
        handled[number] = time.monotonic()
        handle(number, frame)

    def watch() -> None:
        while noticed := reader.recv(1):
            number, since = noticed[0], time.monotonic() - _RECENT_S
            if number not in handled:
                continue
            if leaving.wait(_HANDLED_WITHIN_S):
                return
            if handled[number] < since:
                signal.pthread_kill(main, number)

    before = {number: signal.signal(number, take) for number in numbers}
    told_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, name="signals", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(told_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        leaving.set()
        writer.close()
        watcher.join()
        reader.close()
