"""Creates virtual environments and installs packages with uv: the machine's, or one that pip downloads.

Uses only the standard library. uv reports downloads and errors on stderr itself."""

from __future__ import annotations

import ast
import fcntl
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from vlmtui.engines.builds import UV_LOCK
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.processes import bound_command, find_program, isolated_command, python_command, safe_environment

PYTORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU builds."""
_ASK_TIMEOUT_S = 60.0
_IN_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "no-index": "UV_NO_INDEX",
    "timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""pip's options and uv's corresponding variables, since uv does not read pip's configuration."""
_SEPARATORS = {"UV_INDEX": " ", "UV_FIND_LINKS": ",", "UV_INSECURE_HOST": " "}
_NOT_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")


@contextmanager
def installation_lock(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Create a folder and lock it against other installations until this process ends. Calls `on_wait` if it is locked.
    Raises OSError."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_at(handle, folder):  # otherwise, another process removed it meanwhile
                yield
                return
        finally:
            os.close(handle)


def _is_at(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False


class Uv(NamedTuple):
    """uv for one environment."""

    program: str
    python: Path
    environment: Mapping[str, str]

    @property
    def _installing(self) -> list[str]:
        # uv itself reads no variable for this option.
        offline = ["--no-index"] if self.environment.get(_IN_UV["no-index"]) else []
        return [self.program, "pip", "install", "--python", str(self.python), *offline]

    def install(self, *arguments: str) -> None:
        """Install packages. Raises VlmtuiError; completed downloads stay in uv's cache."""
        # With this variable, Python would otherwise compile everything at every start.
        compiling = ["--compile-bytecode"] if self.environment.get("PYTHONDONTWRITEBYTECODE") else []
        run_step([*self._installing, *compiling, *arguments], self.environment)

    def offers(self, requirement: str, *arguments: str) -> bool:
        """Return True if the indexes have the package of `requirement` for this interpreter."""
        quickly = {**self.environment, "UV_HTTP_RETRIES": "0"}
        dry = [*self._installing, "--dry-run", "--no-deps", *arguments, requirement]
        return _answer(dry, quickly) is not None

    def cpu_torch(self, version: str) -> tuple[str, ...]:
        """Return uv's arguments for a CPU build of PyTorch from the configured indexes or PyTorch's own; empty: not
        found."""
        requirement = f"torch=={version}+cpu"
        for index in ((), ("--index", PYTORCH_INDEX)):
            if self.offers(requirement, *index):
                return (*index, requirement)
        return ()

    def install_locked(self, lock: Path, torch: str, torch_lock: Path | None, *more: str) -> None:
        """Install the packages of a lock. `torch`: the version of PyTorch, if the lock lacks it: installs a CPU build
        if an index has one, else the build of `torch_lock`. `more`: further arguments of uv. Raises VlmtuiError."""
        found = self.cpu_torch(torch) if torch else ()
        if found:
            self.install("--no-deps", *found)
        elif torch_lock is not None:
            more = (*more, "-r", str(torch_lock))
        self.install("--no-deps", "-r", str(lock), *more)


def uv_for(folder: Path, base: Path, *, is_kept: bool = False) -> Uv:
    """Return uv for the environment in a folder. Creates the environment with the interpreter `base`; `is_kept`: keeps
    an existing environment. Uses the machine's uv, or lets pip install uv into the environment. Raises VlmtuiError."""
    given = {name: value for name, value in safe_environment(os.environ).items() if name not in _NOT_OURS}
    program, python, own = find_program("uv"), folder / "bin" / "python", folder / "bin" / "uv"
    if is_kept and program is None and own.exists():
        program = str(own)
    if not is_kept or program is None:
        options = [] if program is None else ["--without-pip"]
        run_step(isolated_command(base, "-m", "venv", "--clear", *options, str(folder)), given)
    if program is None:
        fetch = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", str(UV_LOCK)]
        run_step(isolated_command(python, *fetch), {**given, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
        program = str(own)
    return Uv(program, python, {**uv_variables(base, given), **given})


def uv_variables(python: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables of uv that have the effect of pip's options, read from pip's config files and
    environment variables. As in pip, all indexes have the same priority: the locked hashes guard against foreign
    packages."""
    options = {name[4:].lower().replace("_", "-"): value for name, value in given.items() if name.startswith("PIP_")}
    listed = _answer(python_command(python, "-m", "pip", "config", "list"), safe_environment(given)) or ""
    found = re.findall(r"^(global|install)\.([\w-]+)=(.*)$", listed, re.MULTILINE)
    for _, option, value in sorted(found, reverse=True):  # `install` goes before `global`
        options.setdefault(option, str(ast.literal_eval(value)))
    said = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never"}
    for option, value in options.items():
        if (variable := _IN_UV.get(option)) and value.strip():
            said[variable] = _SEPARATORS.get(variable, " ").join(value.split())
    if "SSL_CERT_FILE" not in {**said, **given}:
        said["UV_SYSTEM_CERTS"] = said["UV_NATIVE_TLS"] = "1"  # the newer and the older name
    return said


def _answer(command: list[str], environment: Mapping[str, str]) -> str | None:
    """Return the output of a command; None if it fails."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=True,
            env=environment,
            cwd=os.sep,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def run_step(command: list[str], environment: Mapping[str, str], *, is_quiet: bool = False) -> None:
    """Run a command that is killed when this process dies, so that it can't go on in a folder that another has taken
    over. Its output goes to stderr, or nowhere (`is_quiet`). Raises VlmtuiError."""
    told = subprocess.DEVNULL if is_quiet else None
    output = subprocess.DEVNULL if is_quiet else 2
    done = subprocess.run(bound_command(command), stdout=output, stderr=told, check=False, env=environment, cwd=os.sep)
    if done.returncode != 0:
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED,
            f"{Path(command[0]).name} failed with exit code {done.returncode}.",
            hint="Its message is above. Check the free space, the network and `pip config list`, then run it again: "
            "downloads are kept.",
        )
