"""A virtual environment, from nothing to one that is known to be whole."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from vlmtui.engines.variants import NEWEST_PYTHON, OLDEST_PYTHON
from vlmtui.errors import ErrorKind, VlmtuiError

_NAMES = ("python3.13", "python3.12", "python3.11", "python3.14", "python3")
_START_TIMEOUT_S = 120.0
_LINES = 12
STATE_FILE = "vlmtui-setup.json"


class Phase(StrEnum):
    """How far an environment is. One that is not READY is never used, and what is INSTALLING is made anew."""

    NOTHING = "nothing"
    INSTALLING = "installing"
    READY = "ready"


class State(NamedTuple):
    """What an environment's own file says of it."""

    phase: Phase = Phase.NOTHING
    variant: str = ""
    fingerprint: str = ""
    """Of all that decides what is in it."""


def read_state(folder: Path) -> State:
    """The state of an environment; NOTHING where no file tells."""
    try:
        found = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        return State(Phase(found["phase"]), str(found["variant"]), str(found["fingerprint"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return State()


def write_state(folder: Path, state: State) -> None:
    """Replace the state, whole, and on the disk before anything that follows it."""
    temporary = folder / f".{STATE_FILE}"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(json.dumps(state._asdict()) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / STATE_FILE)


@contextmanager
def one_at_a_time(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the folder against other installations in it; the lock goes with the process. `on_wait` is called where
    another one holds it. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / "bin" / "python"


def find_python(given: Path | None = None) -> Path:
    """An interpreter that vLLM has wheels for and that can make environments: this one, or another of this machine.

    Raises VlmtuiError where there is none.
    """
    if given is not None:
        candidates = [given]
    else:
        here = Path(sys.executable if sys.prefix == sys.base_prefix else getattr(sys, "_base_executable", ""))
        found = [shutil.which(name) for name in _NAMES]
        candidates = [*([here] if here.name else []), *(Path(name) for name in found if name)]
    fitting = [one for one in candidates if _answers(one, f"import sys; sys.exit(not {_RANGE})")]
    if not fitting:
        have = f"{candidates[0]} is not one" if given else "none was found"
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED,
            f"vLLM needs Python 3.11 to 3.14, and {have}.",
            hint="On Debian 12 and Ubuntu 24.04 or later: `sudo apt install python3 python3-venv`; elsewhere pyenv, "
            "conda or uv bring one.",
        )
    for one in fitting:
        if _answers(one, "import venv, ensurepip"):
            return one
    raise VlmtuiError(
        ErrorKind.INSTALL_FAILED,
        f"{fitting[0]} cannot make virtual environments: its modules venv and ensurepip are missing.",
        hint="On Debian and Ubuntu: `sudo apt install python3-venv` (or python3.12-venv, for that very version).",
    )


_RANGE = f"{OLDEST_PYTHON} <= sys.version_info[:2] <= {NEWEST_PYTHON}"


def make_environment(folder: Path, python: Path, *, with_pip: bool = True) -> None:
    """Make it from nothing; what was there goes. Raises VlmtuiError."""
    command = [str(python), "-m", "venv", "--clear", *([] if with_pip else ["--without-pip"]), str(folder)]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    made = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment
    )
    if made.returncode != 0:
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED,
            f"The virtual environment {folder} could not be made.",
            detail="\n".join(made.stdout.splitlines()[-_LINES:]),
            hint="Check the free space and the permissions of that folder.",
        )


def works(folder: Path) -> bool:
    """Whether the environment's interpreter starts, and is new enough: a system's upgrade may have taken it away."""
    return _answers(python_of(folder), f"import sys; sys.exit(not {_RANGE})")


def require_disk_space(folder: Path, wanted_gb: float, what: str) -> None:
    """Raise VlmtuiError where less than that is free on the folder's disk."""
    standing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(standing).free / 1e9
    if free < wanted_gb:
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED,
            f"{free:.1f} GB are free on the disk of {standing}; {what} needs {wanted_gb:.1f} GB.",
            hint="Free some space, or keep it on another disk.",
        )


def _answers(python: Path, code: str) -> bool:
    try:
        command = [str(python), "-c", code]
        return subprocess.run(command, capture_output=True, timeout=_START_TIMEOUT_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
