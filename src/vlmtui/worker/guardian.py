"""The guardian: a small supervisor process, so that the worker leaves no process and no temporary file behind.

It starts the server (the process with the engine), waits for its end, and then terminates and reaps all its
descendants: as a subreaper it inherits every process whose parent dies. Their temporary files are in the worker's
private folder, which the guardian removes. If the guardian itself is killed, the kernel kills the server by
parent-death signal, and the server's children too (`site/sitecustomize.py`).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from vlmtui.files import open_to_append
from vlmtui.processes import python_command
from vlmtui.protocol.endpoint import END_MARK, HOME_SUFFIX, RECORD_SUFFIX
from vlmtui.worker.health import describe_exit, memory_kills

PARENT_DEATH = "VLMTUI_PARENT_DEATH"
"""The environment variable that makes the engine's processes die with their parent."""
PRIVATE_UMASK = 0o077
"""Makes the engine's files and sockets accessible only to this user."""
STOP_GRACE_S = 3.5
"""Seconds from SIGTERM to SIGKILL for the server."""
TIDY_GRACE_S = 1.5
"""Seconds for multiprocessing's resource tracker, which frees shared memory after all other processes have ended."""
_KILL_GRACE_S = 10.0
_RECHECK_S = 0.2
_LOOK_S = 2.0
"""Seconds between two looks at the out-of-memory killer's count."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m vlmtui.worker", description="Hosts one model for vlmtui.")
    arguments.add_argument("--socket", required=True, type=Path, help="the Unix socket to listen on")
    arguments.add_argument("--spec", required=True, type=Path, help="JSON file with the LoadSpec, beside the record")
    arguments.add_argument("--log", required=True, type=Path, help="the log file for stdout and stderr")
    arguments.add_argument("--ready", type=int, help="a file descriptor that gets one byte once the socket listens")
    arguments.add_argument("--keep-alive", default="300", help="seconds to stay after the last client leaves, or none")
    return arguments


def main(argv: Sequence[str], *, server: str = "vlmtui.worker.serve") -> int:
    """Run the module `server` until it exits. Return its exit status, or 128 + the signal that ended it."""
    args = parser().parse_args(argv)
    os.umask(PRIVATE_UMASK)
    home = args.socket.with_suffix(HOME_SUFFIX)
    if os.getsid(0) != os.getpid():
        with suppress(OSError):
            os.setsid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _log_to(args.log)
    environment = {**os.environ, PARENT_DEATH: "1", "PYTHONUNBUFFERED": "1"}
    if home.is_dir():
        environment["TMPDIR"] = str(home)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = os.posix_spawn(
        sys.executable,
        python_command(sys.executable, "-m", server, *argv, "--guardian", str(os.getpid())),
        environment,
        setsigmask=[],
        setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
    )
    if args.ready is not None:
        os.close(args.ready)
    code, asked = _wait(child)
    how = describe_exit(code) if asked is None else f"was told to end by signal {asked} ({signal.Signals(asked).name})"
    with suppress(OSError):  # a full disk
        print(f"{END_MARK}{how}.", flush=True)
    _end_descendants()
    for file in (args.socket, args.spec.with_suffix(RECORD_SUFFIX), args.spec):
        file.unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    return code if code >= 0 else 128 - code


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent ends. `parent`: the expected parent's pid."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _wait(child: int) -> tuple[int, int | None]:
    """Wait for the child. Return its exit status, or minus the signal that killed it, and the signal that this process
    got before: after SIGTERM, SIGINT or SIGHUP it sends the child SIGTERM, and SIGKILL after STOP_GRACE_S."""
    asked: int | None = None
    deadline: float | None = None
    while True:
        code = _reap(child)
        if code is not None:
            return code, asked
        memory_kills.look()
        left_s = _LOOK_S if deadline is None else max(0.0, deadline - time.monotonic())
        info = signal.sigtimedwait(_SIGNALS, left_s)
        if info is None and deadline is not None:
            os.kill(child, signal.SIGKILL)
            deadline = None
        elif info is not None and info.si_signo != signal.SIGCHLD and asked is None:
            asked = info.si_signo
            os.kill(child, signal.SIGTERM)
            deadline = time.monotonic() + STOP_GRACE_S


def _reap(child: int | None = None) -> int | None:
    """Reap every process that has ended. Return the exit status of `child`, or minus its signal, if it is among
    them."""
    found: int | None = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = os.waitstatus_to_exitcode(status)
    return found


def _end_descendants() -> None:
    """Terminate and reap all remaining descendants. multiprocessing's resource tracker gets time to exit by itself."""
    me = psutil.Process()
    kill_at = time.monotonic() + TIDY_GRACE_S
    give_up_at = kill_at + _KILL_GRACE_S
    terminated: set[int] = set()
    while time.monotonic() < give_up_at:
        _reap()
        left = me.children(recursive=True)
        if not left:
            return
        for process in left:
            with suppress(psutil.Error):
                if time.monotonic() > kill_at or not _is_tracker(process):
                    process.kill()
                elif process.pid not in terminated:
                    terminated.add(process.pid)
                    process.terminate()
        # SIGCHLD reports each exit, but not the end of the grace period, nor a process that started after `children`.
        signal.sigtimedwait([signal.SIGCHLD], _RECHECK_S)


def _is_tracker(process: psutil.Process) -> bool:
    """Return True for multiprocessing's resource tracker, which exits by itself after it has freed shared memory."""
    return any("resource_tracker" in argument for argument in process.cmdline())


def _prctl(option: int, value: int) -> None:
    """Call Linux's prctl; do nothing on other systems, which lack it."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _log_to(path: Path) -> None:
    file = open_to_append(path)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
