"""How long workers are waited for."""

from __future__ import annotations

import msgspec


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """All in seconds."""

    answer_s: float = 5.0
    """For the answer to a ping or a status request."""
    attach_s: float = 10.0
    """For the greeting of a worker that runs already."""
    start_s: float = 60.0
    """From the start of a process to its greeting; the model is loaded after that."""
    look_s: float = 5.0
    """For the greeting of a worker that is only looked at (`vlmtui ps`), or is to be stopped."""
    shutdown_s: float = 10.0
    """For a worker to end by itself after it was asked to."""
    terminate_s: float = 8.0
    """From SIGTERM to SIGKILL."""
    kill_s: float = 10.0
    """For the kernel to end what was sent SIGKILL."""
