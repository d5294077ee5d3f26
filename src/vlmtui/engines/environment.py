"""Creates virtual environments. Uses only the standard library."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vlmtui.engines.variants import NEWEST_PYTHON, OLDEST_PYTHON
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.processes import find_program, isolated_command, safe_environment

_NAMES = ("python3.13", "python3.12", "python3.11", "python3.14", "python3")
_START_TIMEOUT_S = 120.0
_LINES = 12


@contextmanager
def installation_lock(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Lock the folder against other installations; the lock ends with the process. `on_wait` is called if another
    process holds it. Raises OSError."""
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
    """Return the interpreter of an environment."""
    return folder / "bin" / "python"


def find_python(given: Path | None = None, *, newest: tuple[int, int] = NEWEST_PYTHON) -> Path:
    """Return an interpreter that vLLM has wheels for and that can create environments: this one, or another installed.

    `newest`: the newest version with wheels. Raises VlmtuiError if there is none.
    """
    fits = f"{OLDEST_PYTHON} <= sys.version_info[:2] <= {newest}"
    if given is not None:
        candidates = [given]
    else:
        here = Path(sys.executable if sys.prefix == sys.base_prefix else getattr(sys, "_base_executable", ""))
        found = [find_program(name) for name in _NAMES]
        candidates = [*([here] if here.name else []), *(Path(name) for name in found if name)]
    fitting = [one for one in candidates if _answers(one, f"import sys; sys.exit(not {fits})")]
    if not fitting:
        have = f"{candidates[0]} is another version" if given else "none was found"
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED,
            f"This vLLM needs Python 3.11 to 3.{newest[1]}, and {have}.",
            hint="On Debian 12 and Ubuntu 24.04 or later: `sudo apt install python3 python3-venv`; elsewhere use "
            "pyenv, conda or uv; then name it with --python PATH.",
        )
    for one in fitting:
        if _answers(one, "import venv, ensurepip"):
            return one
    raise VlmtuiError(
        ErrorKind.INSTALL_FAILED,
        f"{fitting[0]} can't create virtual environments: its modules venv and ensurepip are missing.",
        hint="On Debian and Ubuntu: `sudo apt install python3-venv` (or, for example, python3.12-venv).",
    )


def make_environment(folder: Path, python: Path, *, with_pip: bool = True) -> None:
    """Create an environment, replacing any that exists. Raises VlmtuiError."""
    options = [] if with_pip else ["--without-pip"]
    command = isolated_command(python, "-m", "venv", "--clear", *options, str(folder))
    given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    made = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=safe_environment(given)
    )
    if made.returncode != 0:
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED,
            f"Can't create the virtual environment {folder}.",
            detail="\n".join(made.stdout.splitlines()[-_LINES:]),
            hint="Check the folder's free space and permissions.",
        )


def works(folder: Path) -> bool:
    """Whether the environment's interpreter starts and is new enough; a system upgrade may have removed it."""
    return _answers(
        python_of(folder), f"import sys; sys.exit(not {OLDEST_PYTHON} <= sys.version_info[:2] <= {NEWEST_PYTHON})"
    )


def _answers(python: Path, code: str) -> bool:
    try:
        command = isolated_command(python, "-c", code)
        done = subprocess.run(
            command, capture_output=True, timeout=_START_TIMEOUT_S, check=False, env=safe_environment(os.environ)
        )
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
