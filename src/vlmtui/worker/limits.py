"""The worker's timeouts and limits."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts in seconds, and how many ended answers are held."""

    lonely_s: float = 60.0
    """A worker to which no client ever connects stops after this."""
    failed_load_s: float = 10.0
    """How long a worker stays after a failed load, so that a client can still learn why."""
    shutdown_s: float = 2.0
    """For the engine to end its processes; the guardian then kills the rest."""
    flush_s: float = 1.0
    """For a client to read the last messages."""
    shortest_silence_s: float = 4.0
    """A shorter silence of the engine is not reported."""
    metrics_every_s: float = 2.0
    """Between two samples of the engine's metrics."""
    unseen_metrics_every_s: float = 10.0
    """The same while nobody follows them: a sample takes as much time as some items of a batch."""
    ended_answers: int = 32
    """Most finished answers held until a client fetches them; the oldest is dropped first."""
