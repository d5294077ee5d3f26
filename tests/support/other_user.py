"""Runs code as another user of this machine, in a child process that root starts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest

NOBODY = 65534
"""Uid and gid of the other user."""
_CANNOT = 77

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@contextmanager
def other_user(work: Callable[[BinaryIO], None]) -> Iterator[BinaryIO]:
    """Run `work` in a child process of that user, and yield its output. The child is killed at the end."""
    _require_that_root_can()
    reader, writer = os.pipe()
    child = _forked(lambda: work(os.fdopen(writer, "wb", buffering=0)))
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as said:
            yield said
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _require_that_root_can() -> None:
    """Skip the test if root may not change users, as in some containers."""
    child = _forked(lambda: None)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == _CANNOT:
        pytest.skip("root cannot become another user here")


def _forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    except OSError:
        os._exit(_CANNOT)
    try:
        work()
    finally:
        os._exit(0)
