"""Which processes belong to a worker, and ending them. Others' processes are never touched."""

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


def members(endpoint: Endpoint) -> list[psutil.Process]:
    """Every living process of the worker: those that carry its mark, and all that descend from them.

    The marks are the worker's own working directory and a variable in the environment; both are inherited.
    """
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        if process.pid not in found and _is_marked(process, endpoint):
            found[process.pid] = process
            with suppress(psutil.Error):
                found.update({child.pid: child for child in process.children(recursive=True)})
    found.pop(os.getpid(), None)
    return [process for process in found.values() if is_alive(process)]


def living_homes(runtime: Path) -> set[str]:
    """Return the ids of all workers of that runtime folder that have a living process, with or without files."""
    found: set[str] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.uids().real != os.getuid() or not is_alive(process):
                continue
            home = Path(process.cwd().removesuffix(" (deleted)"))
            if home.parent == runtime and home.suffix == HOME_SUFFIX:
                found.add(home.stem)
    return found


async def end_members(endpoint: Endpoint, timeouts: Timeouts, *, asked: bool) -> None:
    """End the worker: it was `asked` to end itself, else SIGTERM, at last SIGKILL; then remove its files.

    Returns when no process of it is left. Raises VlmtuiError(INTERNAL) when one outlives even SIGKILL.
    """
    leader = await asyncio.to_thread(_leader, endpoint)
    if leader is not None and not (asked and await has_ended(leader, timeouts.shutdown_s)):
        _signal(leader, signal.SIGTERM)
        await has_ended(leader, timeouts.terminate_s)
    deadline = time.monotonic() + timeouts.kill_s
    while left := await asyncio.to_thread(members, endpoint):
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            pids = ", ".join(str(process.pid) for process in left)
            message = f"The processes {pids} of the worker could not be ended."
            raise VlmtuiError(ErrorKind.INTERNAL, message, hint="A driver may be stuck; see the kernel's log.")
        for process in left:
            _signal(process, signal.SIGKILL)
        await asyncio.gather(*(has_ended(process, remaining_s) for process in left))
    endpoint.remove()


def _leader(endpoint: Endpoint) -> psutil.Process | None:
    """The process that cleans up after the others when it is told to end."""
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
    """psutil looks at the start time first, so a pid that was given to another process meanwhile is left alone."""
    with suppress(psutil.Error):
        process.send_signal(number)
