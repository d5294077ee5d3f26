"""Finds and ends the processes of a worker. Other processes are never touched."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from vlmtui.engine.local.kernel_events import has_ended, is_alive
from vlmtui.engine.local.timeouts import Timeouts
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.endpoint import HOME_SUFFIX, MARKER, Endpoint


def worker_processes(endpoint: Endpoint) -> list[psutil.Process]:
    """Return every living process of the worker: those with its mark, and all their descendants.

    The marks are the worker's own working directory and an environment variable; both are inherited.
    """
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        if process.pid not in found and _is_marked(process, endpoint):
            found[process.pid] = process
            with suppress(psutil.Error):
                found.update({child.pid: child for child in process.children(recursive=True)})
    found.pop(os.getpid(), None)
    return [process for process in found.values() if is_alive(process)]


def live_worker_ids(runtime: Path) -> set[str]:
    """Return the ids of all workers of this runtime folder that have a living process, even if their files are gone."""
    found: set[str] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.uids().real != os.getuid() or not is_alive(process):
                continue
            home = Path(process.cwd().removesuffix(" (deleted)"))
            if home.parent == runtime and home.suffix == HOME_SUFFIX:
                found.add(home.stem)
    return found


async def end_worker(endpoint: Endpoint, timeouts: Timeouts, *, shutdown_sent: bool) -> None:
    """End the worker and remove its files. With `shutdown_sent`, first wait for it to stop; then SIGTERM, then SIGKILL.

    Returns when all its processes have ended. Raises VlmtuiError(INTERNAL) if one survives SIGKILL.
    """
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
    with suppress(psutil.Error, OSError):
        if process.uids().real != os.getuid():
            return False
        if process.cwd().removesuffix(" (deleted)") == str(endpoint.home):
            return True
        return process.environ().get(MARKER) == str(endpoint.socket)
    return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    """Send a signal. psutil compares the start time first, so a reused pid is left alone."""
    with suppress(psutil.Error):
        process.send_signal(number)
