"""Commands and environments for child processes, which never run code from the current folder.

The current folder may be somebody else's data set or checkpoint. `python -m …` and `python -c …` would put it first on
the import path, and run a `json.py` in it. Uses only the standard library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_HERE = Path(__file__).absolute().parents[1]
"""The folder that this process imports vlmtui from."""
_BOUND = """
import ctypes, os, signal, sys
if sys.platform.startswith("linux"):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def python_command(interpreter: str | Path, *words: str) -> list[str]:
    """Return a command for Python 3.11 or newer that does not import from the current folder.

    Uses Python's option `-P`, which multiprocessing passes on to the processes that it spawns.
    """
    return [str(interpreter), "-P", *words]


def isolated_command(interpreter: str | Path, *words: str) -> list[str]:
    """Return a command for any Python that imports only from its own environment: not from the current folder,
    PYTHONPATH or the user's site-packages."""
    return [str(interpreter), "-I", *words]


def bound_command(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command`. On Linux, the new process is killed when the thread that started it ends
    (PR_SET_PDEATHSIG).

    The first word of `command` must be an absolute path.
    """
    return isolated_command(sys.executable, "-c", _BOUND, str(os.getpid()), *command)


def limit_process(*, memory_bytes: int, cpu_s: int | None = None, file_bytes: int | None = None) -> None:
    """Limit what this process may allocate, the processor time it may use from now on (then SIGXCPU ends it), and the
    size of files that it writes. It leaves no core file."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    limits = {
        resource.RLIMIT_DATA: memory_bytes,
        resource.RLIMIT_CPU: None if cpu_s is None else int(used.ru_utime + used.ru_stime) + 1 + cpu_s,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        if most is not None:
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def search_path(environment: Mapping[str, str]) -> list[str]:
    """Return the absolute folders in PYTHONPATH. A relative entry counts only if this process imports vlmtui from
    it."""
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [
        str(Path(entry).absolute()) for entry in entries if Path(entry).is_absolute() or Path(entry).absolute() == _HERE
    ]


def program_path(environment: Mapping[str, str]) -> str:
    """Return the absolute folders of PATH; other entries lead into the current folder."""
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute()) or os.defpath


def safe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that keeps the current folder off PATH, PYTHONPATH and the import path."""
    rest = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    folders = {"PYTHONPATH": os.pathsep.join(found)} if (found := search_path(environment)) else {}
    return {**rest, **folders, "PATH": program_path(environment), "PYTHONSAFEPATH": "1"}


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the absolute path of a program; None if it is not installed."""
    return shutil.which(name, path=program_path(environment))


def ask_program(name: str, *words: str, within_s: float, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return what a program, not written in Python, prints within `within_s` seconds; None if it is not installed or
    fails. It runs in /."""
    program = find_program(name, environment)
    if program is None:
        return None
    try:
        command = [program, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=True, cwd=os.sep).stdout
    except (OSError, subprocess.SubprocessError):
        return None
