"""Time and memory limits for chat templates: programs that come with a model and could run or grow without bound.

They run in threads of the server process. Jinja's sandbox keeps them away from files and code, but does not limit time
or memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import resource
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

from vlmtui.errors import VlmtuiError, bad_input

TEMPLATE_S = 10.0
"""Seconds; a normal template takes milliseconds."""
TEMPLATE_BYTES = 2**31
"""How much the whole process may grow while a template runs."""
_TEMPLATE_FILE = "<template>"
"""The file name that Jinja gives to compiled templates."""
_HINT = "Use a raw prompt or another chat template."
_T = TypeVar("_T")


class _TemplateStopped(RuntimeError):
    """Raised inside a running template to stop it."""


class _Heap:
    """The memory limit of this process, shared by all templates that run at the same time."""

    def __init__(self) -> None:
        self._before = resource.RLIM_INFINITY
        self._users = 0

    @contextmanager
    def limited(self, more: int) -> Iterator[None]:
        """Let the process grow by at most `more` bytes; beyond that allocations raise MemoryError. Linux only."""
        if not sys.platform.startswith("linux"):
            yield
            return
        if self._users == 0:
            self._before, hard = resource.getrlimit(resource.RLIMIT_DATA)
            limit = _data_bytes() + more
            known = [one for one in (limit, self._before, hard) if one != resource.RLIM_INFINITY]
            resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                resource.setrlimit(resource.RLIMIT_DATA, (self._before, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _data_bytes() -> int:
    """Return what counts against RLIMIT_DATA now; proc_pid_statm(5)."""
    return int(Path("/proc/self/statm").read_bytes().split()[5]) * resource.getpagesize()


_heap = _Heap()
"""Use only in the engine's event loop."""


async def within_limits(
    rendering: Awaitable[_T],
    *,
    seconds: float = TEMPLATE_S,
    more: int = TEMPLATE_BYTES,
    wrapped_in: tuple[type[Exception], ...] = (),
) -> _T:
    """Await a template that runs in another thread. Raises VlmtuiError(BAD_INPUT) if it exceeds the time (and stops it)
    or the memory. `wrapped_in`: exception types that may wrap the template's own."""
    memory_errors: tuple[type[Exception], ...] = (MemoryError, *wrapped_in)
    with _heap.limited(more):
        try:
            async with asyncio.timeout(seconds):
                return await rendering
        except TimeoutError as error:
            stop_templates()
            raise bad_input(f"The chat template did not finish within {seconds:g} s.", hint=_HINT) from error
        except memory_errors as error:
            if not _is_memory_error(error):
                raise
            raise _too_big() from error


def stop_templates() -> int:
    """Raise an exception in every thread that runs a template. Return how many there are."""
    running = [thread for thread, frame in sys._current_frames().items() if _is_template(frame)]
    for thread in running:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_TemplateStopped))
    return len(running)


def _is_template(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _TEMPLATE_FILE:
            return True
        frame = frame.f_back
    return False


def _is_memory_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _too_big() -> VlmtuiError:
    return bad_input("The chat template exceeds its memory limit.", hint=_HINT)
