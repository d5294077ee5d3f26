"""Lets an engine that computes on the CPU come after everything that a person sees or types."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

NICENESS = 5
"""A third of the weight of what else wants the core, and all of the core where nothing does."""
_AUTOGROUP = Path("/proc/self/autogroup")


def lower_priority() -> None:
    """Lower the priority of this thread, of all processes that it starts from now on, and of the worker's session.

    Without a GPU the model, vLLM's engine core (which waits for the model in a loop around `sched_yield`), the app and
    the terminal share the cores. Linux shares a core out by session first (sched(7), "The autogroup feature"), so a
    process's own niceness alone says little there. On Linux 6.18 sessions that yield all the time could keep the
    others on their core waiting for ten seconds; with this none waited for a tenth of one.
    """
    os.nice(max(NICENESS - os.nice(0), 0))
    if os.getsid(0) == os.getppid():  # the guardian's session, which nobody else is in
        with suppress(OSError):  # an older kernel, one without the feature, or not Linux
            _AUTOGROUP.write_text(str(NICENESS))
