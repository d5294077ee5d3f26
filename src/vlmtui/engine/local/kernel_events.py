"""Waits for kernel events without polling: a readable descriptor, the end of a process, a free lock."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import private_dir


async def readable(descriptor: int, within_s: float) -> bool:
    """Wait until the descriptor is readable or at its end. Return False on timeout."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        async with asyncio.timeout(within_s):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
    return True


async def has_ended(process: psutil.Process, within_s: float) -> bool:
    """Wait for a process to end; it need not be a child. Return False on timeout."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    except (AttributeError, OSError):  # not Linux, or older than 5.3: psutil waits, in a thread
        return await asyncio.to_thread(_has_ended, process, within_s)
    try:
        return not is_alive(process) or await readable(descriptor, within_s)
    finally:
        os.close(descriptor)


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs. False for a zombie, and if its pid has been reused."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Hold the lock file, waiting for it if necessary. The kernel releases it when the holder dies.

    Raises VlmtuiError if the file cannot be opened.
    """
    file = _open(path)
    if not _try_lock(file):
        await _lock_in_thread(file)
    try:
        yield
    finally:
        os.close(file)


@asynccontextmanager
async def locked_if_free(path: Path) -> AsyncIterator[bool]:
    """Hold the lock file if it is free; yields whether it is held. Raises VlmtuiError if it cannot be opened."""
    file = _open(path)
    try:
        yield _try_lock(file)
    finally:
        os.close(file)


def _has_ended(process: psutil.Process, within_s: float) -> bool:
    try:
        process.wait(within_s)
    except psutil.TimeoutExpired:
        return not is_alive(process)
    return True


def _open(path: Path) -> int:
    private_dir(path.parent)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise VlmtuiError(ErrorKind.INTERNAL, f"Can't use the lock file {path}.", detail=str(error)) from error


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _lock_in_thread(file: int) -> None:
    """Wait for the lock in a daemon thread, because flock cannot be interrupted. If the wait is cancelled, the thread
    closes the file, and so releases the lock, as soon as it gets it."""
    loop = asyncio.get_running_loop()
    is_held: asyncio.Future[None] = loop.create_future()

    def hand_over() -> None:
        if is_held.done():
            os.close(file)
        else:
            is_held.set_result(None)

    def wait() -> None:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            loop.call_soon_threadsafe(hand_over)
        except RuntimeError:  # the loop is closed
            os.close(file)

    threading.Thread(target=wait, name="lock", daemon=True).start()
    try:
        await is_held
    except asyncio.CancelledError:
        if not is_held.cancelled():
            os.close(file)
        raise
