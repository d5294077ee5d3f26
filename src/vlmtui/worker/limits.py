"""How long a worker waits, and how much it holds."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds."""

    lonely_s: float = 60.0
    """A worker that nobody ever connects to ends after this."""
    failed_load_s: float = 10.0
    """For a client to come and be told why the load failed."""
    shutdown_s: float = 2.0
    """For the engine to end its processes; the guardian ends what is left."""
    flush_s: float = 1.0
    """For a client to take the last messages."""
    shortest_silence_s: float = 4.0
    """An engine that is silent for a shorter time is not said to be."""
    ended_answers: int = 32
    """Most ended answers that are held until a client fetches them; the oldest is dropped first."""
