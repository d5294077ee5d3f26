"""Signals in plain mode: each is handled once, also one that readline would not look at before the next key."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

from vlmtui.plain.signals import handled_signals


def test_a_signal_is_handled_once() -> None:
    found: list[int] = []
    handler = signal.getsignal(signal.SIGTERM)
    with handled_signals((signal.SIGTERM,), lambda number, frame: found.append(number)):
        signal.raise_signal(signal.SIGTERM)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            time.sleep(0.05)
    assert found == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is handler
    assert not [thread for thread in threading.enumerate() if thread.name == "signals"]


def test_one_that_is_not_looked_at_is_sent_again() -> None:
    """The byte is what Python writes when a signal arrives; that nothing handles it is the race of readline."""
    handled = threading.Event()

    def take(number: int, frame: FrameType | None) -> None:
        assert number == signal.SIGTERM
        handled.set()

    with handled_signals((signal.SIGTERM,), take):
        notice = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(notice)
        os.write(notice, bytes([signal.SIGTERM]))
        assert handled.wait(10)
