"""Gives an engine that computes on the CPU a lower priority than the app and the terminal."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

NICENESS = 5
"""About a third of the normal scheduling weight; an otherwise idle core is still used fully."""
AUTOGROUP = Path("/proc/self/autogroup")


def lower_priority() -> None:
    """Lower the priority of this thread, of the processes that it starts from now on, and of the worker's session.

    Without a GPU, the model, vLLM's engine core (which waits for the model in a `sched_yield` loop), the app and the
    terminal share the cores. Linux first divides a core between sessions (sched(7), "The autogroup feature"), so the
    niceness of a process alone has little effect. On Linux 6.18, sessions that yielded constantly could starve others
    on the same core for ten seconds; with this setting none waited longer than a tenth of a second.
    """
    os.nice(max(NICENESS - os.nice(0), 0))
    if os.getsid(0) == os.getppid():  # the guardian's own session
        with suppress(OSError):  # no autogroup support, or not Linux
            AUTOGROUP.write_text(str(NICENESS))
