"""Finds, waits for and ends the processes of a worker, and never touches others."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.endpoint import HOME_SUFFIX, MARKER, RECORD_SUFFIX, Endpoint, socket_folder

if TYPE_CHECKING:
    from vlmtui.engine.local.host import Timeouts


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
    """Return True if the process runs. False for a zombie, and if its pid was reused."""
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _has_ended(process: psutil.Process, within_s: float) -> bool:
    try:
        process.wait(within_s)
    except psutil.TimeoutExpired:
        return not is_alive(process)
    return True


def worker_processes(endpoint: Endpoint) -> list[psutil.Process]:
    """Return all living processes of the worker: those whose working directory or environment variable marks them as
    the worker's (child processes inherit both), and all their descendants."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        if process.pid not in found and _is_marked(process, endpoint):
            found[process.pid] = process
            with suppress(psutil.Error):
                found.update({child.pid: child for child in process.children(recursive=True)})
    found.pop(os.getpid(), None)
    return [process for process in found.values() if is_alive(process)]


def live_worker_ids(runtime: Path) -> set[str]:
    """Return the ids of all workers of a runtime folder that have a living process, even if their files are gone."""
    found: set[str] = set()
    wanted = {(socket_folder(runtime), HOME_SUFFIX), (runtime, RECORD_SUFFIX)}
    for process in psutil.process_iter():
        ids = {mark.stem for mark in _marks(process) if (mark.parent, mark.suffix) in wanted}
        if ids and is_alive(process):
            found |= ids
    return found


async def end_worker(endpoint: Endpoint, timeouts: Timeouts, *, shutdown_sent: bool) -> None:
    """End the worker's processes (SIGTERM, then SIGKILL) and remove its files. `shutdown_sent`: the worker was told to
    stop, so first wait until it ends by itself. Raises VlmtuiError(INTERNAL) if a process survives SIGKILL."""
    leader = await asyncio.to_thread(_leader, endpoint)
    if leader is not None and not (shutdown_sent and await has_ended(leader, timeouts.shutdown_s)):
        _signal(leader, signal.SIGTERM)
        await has_ended(leader, timeouts.terminate_s)
    deadline = time.monotonic() + timeouts.kill_s
    while left := await asyncio.to_thread(worker_processes, endpoint):
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            pids = ", ".join(str(process.pid) for process in left)
            message = f"Can't end the worker's processes {pids}."
            raise VlmtuiError(ErrorKind.INTERNAL, message, hint="A driver may be stuck; see the kernel log.")
        for process in left:
            _signal(process, signal.SIGKILL)
        await asyncio.gather(*(has_ended(process, remaining_s) for process in left))
    endpoint.remove()


def _leader(endpoint: Endpoint) -> psutil.Process | None:
    """Return the guardian, which cleans up after the other processes on SIGTERM."""
    record = endpoint.read_record()
    with suppress(psutil.Error):
        leader = psutil.Process(record.pid) if record is not None else None
        return leader if leader is not None and _is_marked(leader, endpoint) else None
    return None


def _is_marked(process: psutil.Process, endpoint: Endpoint) -> bool:
    return not {endpoint.home, endpoint.record}.isdisjoint(_marks(process))


def _marks(process: psutil.Process) -> list[Path]:
    """Return the two paths that tell which worker a process of this user belongs to: its working directory, and the
    record's path in its environment. Return no path for other users' processes."""
    with suppress(psutil.Error, OSError):
        if process.uids().real == os.getuid():
            return [Path(process.cwd().removesuffix(" (deleted)")), Path(process.environ().get(MARKER, os.sep))]
    return []


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    """Send a signal. psutil first compares the start time, so that a reused pid gets none."""
    with suppress(psutil.Error):
        process.send_signal(number)
