"""A small process that holds the worker's process group together, so that nothing of it is ever left behind.

It starts the server (the process that hosts the engine), waits for it, and then ends and reaps all that descends from
it: as a subreaper it inherits every process whose parent dies. The temporary files of all of them lie in the worker's
home, a private folder that the guardian removes. Should the guardian itself be killed, the kernel kills
the server (parent-death signal), and the server's own children the same way (`site/sitecustomize.py`).
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
from vlmtui.protocol.endpoint import HOME_SUFFIX

PARENT_DEATH = "VLMTUI_PARENT_DEATH"
"""Environment variable that tells the engine's processes to die with their parent."""
PRIVATE_UMASK = 0o077
"""Whatever the engine makes, sockets and temporary files included, is its user's alone."""
STOP_GRACE_S = 3.5
"""From SIGTERM to SIGKILL for the server."""
TIDY_GRACE_S = 1.5
"""For multiprocessing's resource tracker, which frees shared memory once all others are gone."""
_KILL_GRACE_S = 10.0
_LOOK_AGAIN_S = 0.2
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def parser() -> argparse.ArgumentParser:
    """The arguments that guardian and server share."""
    arguments = argparse.ArgumentParser(prog="python -m vlmtui.worker", description="Hosts one model for vlmtui.")
    arguments.add_argument("--socket", required=True, type=Path, help="the Unix socket to listen on")
    arguments.add_argument("--spec", required=True, type=Path, help="JSON file with the LoadSpec")
    arguments.add_argument("--log", required=True, type=Path, help="the log that stdout and stderr go to")
    arguments.add_argument("--ready", type=int, help="a descriptor to write one byte to, once the socket listens")
    arguments.add_argument("--keep-alive", default="300", help="seconds to stay once the last client has gone, or none")
    return arguments


def main(argv: Sequence[str], *, server: str = "vlmtui.worker.serve") -> int:
    """Run the server module until it ends; its exit status, or 128 + the signal that ended it."""
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
        [sys.executable, "-m", server, *argv, "--guardian", str(os.getpid())],
        environment,
        setsigmask=[],
        setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
    )
    if args.ready is not None:
        os.close(args.ready)
    status = _wait(child)
    _end_descendants()
    for file in (args.socket, args.socket.with_suffix(".json"), args.spec):
        file.unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    return status


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; `parent` is the pid that it should still have."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _wait(child: int) -> int:
    """Wait for the child, ending it in order when this process is told to stop; its exit status."""
    deadline: float | None = None
    while True:
        status = _reap(child)
        if status is not None:
            return status
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        received = signal.sigwait(_SIGNALS) if left is None else _signal_within(left)
        if received is None:
            os.kill(child, signal.SIGKILL)
            deadline = None
        elif received != signal.SIGCHLD and deadline is None:
            os.kill(child, signal.SIGTERM)
            deadline = time.monotonic() + STOP_GRACE_S


def _signal_within(seconds: float) -> int | None:
    info = signal.sigtimedwait(_SIGNALS, seconds)
    return None if info is None else info.si_signo


def _reap(child: int | None = None) -> int | None:
    """Take away every process that has ended; the exit status of `child` if it is among them."""
    found: int | None = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                found = code if code >= 0 else 128 - code
    return found


def _end_descendants() -> None:
    """End and reap all that is left: asked first, killed soon after."""
    me = psutil.Process()
    ask_until = time.monotonic() + TIDY_GRACE_S
    give_up = ask_until + _KILL_GRACE_S
    asked: set[int] = set()
    while time.monotonic() < give_up:
        _reap()
        left = me.children(recursive=True)
        if not left:
            return
        for process in left:
            with suppress(psutil.Error):
                if time.monotonic() > ask_until or not _is_tracker(process):
                    process.kill()
                elif process.pid not in asked:
                    asked.add(process.pid)
                    process.terminate()
        # Whatever dies tells its parent or, where that has died, this process; the limit is for what no signal tells:
        # that it is time to kill what was asked, and a process that was started between the look and the kill.
        signal.sigtimedwait([signal.SIGCHLD], _LOOK_AGAIN_S)


def _is_tracker(process: psutil.Process) -> bool:
    """Whether it is multiprocessing's resource tracker, which ends by itself and frees shared memory as it does."""
    return any("resource_tracker" in argument for argument in process.cmdline())


def _prctl(option: int, value: int) -> None:
    """Linux's prctl; other systems have none, and rely on the guardian alone."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _log_to(path: Path) -> None:
    file = open_to_append(path)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
