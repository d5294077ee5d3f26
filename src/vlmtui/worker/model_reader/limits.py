"""Limits of a process that runs what comes with a model: memory, processor time, written files, no network."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

DATA_BYTES = 6 * 2**30
"""Most memory that the process may allocate."""
CPU_S = 300
"""Most processor time, in seconds."""
FILE_BYTES = 64_000_000
"""Most bytes of a file that it writes."""
_NETWORK = frozenset({"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.bind"})


class OutOfTime(BaseException):
    """Raised in whatever runs when its time is over. No `except Exception` of that code stops it."""


def limit_process() -> None:
    """Limit this process for good. Network calls of Python code raise PermissionError from now on."""
    for kind, most in (
        (resource.RLIMIT_DATA, DATA_BYTES),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (wanted, hard))
    sys.addaudithook(_without_network)


def _without_network(event: str, arguments: tuple[object, ...]) -> None:
    if event in _NETWORK:
        raise PermissionError("A model is read without network.")


@contextmanager
def time_limit(seconds: float, *, of_processor: bool = False) -> Iterator[None]:
    """Raise OutOfTime in the body after so many seconds; `of_processor`: of this process's processor time, so that a
    busy machine makes nothing late, for what can't wait. Only in the main thread; not nested."""

    def end(signum: int, frame: FrameType | None) -> None:
        raise OutOfTime

    sent, timer = (signal.SIGPROF, signal.ITIMER_PROF) if of_processor else (signal.SIGALRM, signal.ITIMER_REAL)
    before = signal.signal(sent, end)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(sent, before)
