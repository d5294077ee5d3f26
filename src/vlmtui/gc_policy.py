"""When Python's garbage collector runs: not during startup, and never over objects created during startup."""

from __future__ import annotations

import gc

_THRESHOLDS = (2_000, 10, 40)
"""Collects the oldest generation ten times less often than the default, as that takes a noticeable 20 ms."""


def defer_collection() -> None:
    """Turn collection off during startup: nearly all objects survive, and scanning them delays the first paint."""
    gc.disable()


def resume_collection() -> None:
    """Turn collection back on if `defer_collection` turned it off; objects that exist now are never scanned again."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        gc.enable()
