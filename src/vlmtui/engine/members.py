"""Which processes belong to a worker, and ending them. Others' processes are never touched."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.endpoint import HOME_SUFFIX, MARKER, Endpoint

ASKED_GRACE_S = 10.0
"""How long a worker that was asked to end may take to do so by itself."""
TERM_GRACE_S = 8.0
KILL_GRACE_S = 10.0
_POLL_S = 0.02


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
    return [process for process in found.values() if _is_alive(process)]


def living_homes(runtime: Path) -> set[str]:
    """The ids of all workers of that runtime folder that have a living process, whatever has become of their files."""
    found: set[str] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.uids().real != os.getuid() or not _is_alive(process):
                continue
            home = Path(process.cwd().removesuffix(" (deleted)"))
            if home.parent == runtime and home.suffix == HOME_SUFFIX:
                found.add(home.stem)
    return found


async def end_members(endpoint: Endpoint, *, asked: bool) -> None:
    """End the worker: it was `asked` to end itself, else SIGTERM, at last SIGKILL; then remove its files.

    Returns when no process of it is left. Raises VlmtuiError(INTERNAL) when one outlives even SIGKILL.
    """
    leader = await asyncio.to_thread(_leader, endpoint)
    if leader is not None and not (asked and await _has_ended(leader, ASKED_GRACE_S)):
        _signal(leader, signal.SIGTERM)
        await _has_ended(leader, TERM_GRACE_S)
    deadline = time.monotonic() + KILL_GRACE_S
    while left := await asyncio.to_thread(members, endpoint):
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in left)
            message = f"The processes {pids} of the worker could not be ended."
            raise VlmtuiError(ErrorKind.INTERNAL, message, hint="A driver may be stuck; see the kernel's log.")
        for process in left:
            _signal(process, signal.SIGKILL)
        await asyncio.sleep(_POLL_S)
    endpoint.remove()


def _leader(endpoint: Endpoint) -> psutil.Process | None:
    """The process that cleans up after the others when it is told to end."""
    record = endpoint.read_record()
    with suppress(psutil.Error):
        leader = psutil.Process(record.pid) if record is not None else None
        return leader if leader is not None and _is_marked(leader, endpoint) else None
    return None


async def _has_ended(process: psutil.Process, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while (alive := _is_alive(process)) and time.monotonic() < deadline:  # noqa: ASYNC110 - no event for it
        await asyncio.sleep(_POLL_S)
    return not alive


def _is_marked(process: psutil.Process, endpoint: Endpoint) -> bool:
    with suppress(psutil.Error, OSError):
        if process.uids().real != os.getuid():
            return False
        if process.cwd().removesuffix(" (deleted)") == str(endpoint.home):
            return True
        return process.environ().get(MARKER) == str(endpoint.socket)
    return False


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    """psutil looks at the start time first, so a pid that was given to another process meanwhile is left alone."""
    with suppress(psutil.Error):
        process.send_signal(number)
