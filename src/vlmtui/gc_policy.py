"""When Python's garbage collector runs: not during the start, and never over the objects that the start made."""

from __future__ import annotations

import gc

_THRESHOLDS = (2_000, 10, 40)
"""Ten times as rare as Python's own for the oldest generation, whose turn is felt in a terminal: some 20 ms."""


def defer_collection() -> None:
    """Nearly all that a start makes stays: looking through it only delays the first paint."""
    gc.disable()


def resume_collection() -> None:
    """Collect again, where the start had it wait; what the start made stays, and is not looked through any more."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        gc.enable()
