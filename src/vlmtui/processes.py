"""Commands and environments of the processes that vlmtui starts: nothing of the current folder runs in them.

The current folder may be a data set or a checkpoint of someone else. Python would put it first on the search path of
`python -m …` and `python -c …`, and a `json.py` in it would run. Uses only the standard library.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_HERE = Path(__file__).absolute().parents[1]
"""The folder that this process has vlmtui from."""
_BOUND = """
import ctypes, os, signal, sys
if sys.platform.startswith("linux"):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def python_command(interpreter: str | Path, *words: str) -> list[str]:
    """Return a command of a Python of version 3.11 or newer, which leaves the current folder off its search path.

    multiprocessing hands the option on to the processes that it spawns."""
    return [str(interpreter), "-P", *words]


def isolated_command(interpreter: str | Path, *words: str) -> list[str]:
    """Return a command of a Python of any version that needs only the packages of its own environment.

    It takes nothing from the current folder, from variables such as PYTHONPATH, or from the user's own packages."""
    return [str(interpreter), "-I", *words]


def bound_command(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` (its first word an absolute path) and dies with the thread of this process
    that starts it (PR_SET_PDEATHSIG). On other systems than Linux it only runs it."""
    return isolated_command(sys.executable, "-c", _BOUND, str(os.getpid()), *command)


def search_path(environment: Mapping[str, str]) -> list[str]:
    """Return the folders of PYTHONPATH. An empty or relative entry names the current folder, or one in it, and is left
    out; except the folder that this process has vlmtui from, whose code runs already."""
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [
        str(Path(entry).absolute()) for entry in entries if Path(entry).is_absolute() or Path(entry).absolute() == _HERE
    ]


def program_path(environment: Mapping[str, str]) -> str:
    """Return the absolute folders of PATH. An empty or relative entry is the current folder, or one in it."""
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute()) or os.defpath


def safe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process: its PATH and PYTHONPATH lead nowhere in the current folder, and the Pythons
    that it starts in turn leave that folder off their search paths."""
    rest = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    folders = {"PYTHONPATH": os.pathsep.join(found)} if (found := search_path(environment)) else {}
    return {**rest, **folders, "PATH": program_path(environment), "PYTHONSAFEPATH": "1"}


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the absolute path of a program; None if it is not installed."""
    return shutil.which(name, path=program_path(environment))
