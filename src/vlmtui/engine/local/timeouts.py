"""Timeouts for local workers."""

from __future__ import annotations

import msgspec


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """All in seconds."""

    answer_s: float = 5.0
    """For the answer to a ping or a status request."""
    attach_s: float = 10.0
    """For the greeting of a running worker."""
    start_s: float = 60.0
    """From the start of a process to its greeting; the model loads after that."""
    inspect_s: float = 5.0
    """For the greeting of a worker that is only inspected (`vlmtui ps`) or about to be stopped."""
    shutdown_s: float = 10.0
    """For a worker to stop after a Shutdown message."""
    terminate_s: float = 8.0
    """From SIGTERM to SIGKILL."""
    kill_s: float = 10.0
    """For the kernel to end processes after SIGKILL."""
