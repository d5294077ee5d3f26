"""Limits for chat templates: programs that come with a model, and that could run or grow for ever.

They run in threads of the process that serves everybody. Jinja's sandbox keeps them from the machine, but not from its
time and memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import resource
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import psutil

from vlmtui.errors import VlmtuiError, bad_input

TEMPLATE_S = 10.0
"""A template takes milliseconds."""
TEMPLATE_BYTES = 2**31
"""So much may be taken while a template runs, by whatever runs beside it, too."""
_TEMPLATE_FILE = "<template>"
"""What Jinja calls the code that it makes of a template."""
_HINT = "Ask with a raw prompt instead, or with another chat template."
_T = TypeVar("_T")


class _TemplateStopped(RuntimeError):
    """Raised in the midst of a template."""


class _Heap:
    """The limit of this process's memory, which all templates that run at a time share."""

    def __init__(self) -> None:
        self._before = resource.RLIM_INFINITY
        self._users = 0

    @contextmanager
    def limited(self, more: int) -> Iterator[None]:
        """Let the process grow by so much at most; what asks for more gets a MemoryError. Linux only."""
        if not sys.platform.startswith("linux"):
            yield
            return
        if self._users == 0:
            self._before, hard = resource.getrlimit(resource.RLIMIT_DATA)
            limit = psutil.Process().memory_info().data + more
            known = [one for one in (limit, self._before, hard) if one != resource.RLIM_INFINITY]
            resource.setrlimit(resource.RLIMIT_DATA, (min(known), hard))
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                resource.setrlimit(resource.RLIMIT_DATA, (self._before, resource.getrlimit(resource.RLIMIT_DATA)[1]))


_heap = _Heap()
"""Used in one event loop, that of the engine."""


async def within_limits(
    rendering: Awaitable[_T],
    *,
    seconds: float = TEMPLATE_S,
    more: int = TEMPLATE_BYTES,
    wrapped_in: tuple[type[Exception], ...] = (),
) -> _T:
    """What a template makes, which runs in another thread. Raises VlmtuiError(BAD_INPUT) where it takes too long, and
    stops it; and where it takes too much memory. `wrapped_in`: errors that may stand for what a template has raised."""
    of_memory: tuple[type[Exception], ...] = (MemoryError, *wrapped_in)
    with _heap.limited(more):
        try:
            async with asyncio.timeout(seconds):
                return await rendering
        except TimeoutError as error:
            stop_templates()
            raise bad_input(f"The chat template did not end within {seconds:g} s.", hint=_HINT) from error
        except of_memory as error:
            if not _is_of_memory(error):
                raise
            raise _too_big() from error


def stop_templates() -> int:
    """Raise an exception in every thread that runs a template; how many there are. Others are left alone."""
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


def _is_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _too_big() -> VlmtuiError:
    return bad_input("The chat template takes more memory than it may.", hint=_HINT)
