"""Installs locked packages into an environment with uv or pip: checks hashes, reports progress, explains failures."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vlmtui.engines.bound_process import bound_command
from vlmtui.engines.environment import python_of
from vlmtui.engines.indexes import pip_environment, uv_environment
from vlmtui.engines.variants import UV_LOCK
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.processes import find_program, isolated_command, safe_environment

_TICK_S = 0.5
_LINES = 12
_OLDEST_UV = (0, 6)
_DOWNLOADING = re.compile(r"^\s*Downloading (\S+) \(([\d.]+ ?[KMG]i?B)\)")
_DOWNLOADED = re.compile(r"^\s*Downloaded (\S+)")

_ADVICE = (
    (
        r"No space left on device|Errno 28|os error 28|Disk quota exceeded",
        ErrorKind.INSTALL_FAILED,
        "The disk is full.",
        "Free some space there or in the cache (UV_CACHE_DIR sets another cache), then run it again.",
    ),
    (
        r"Read-only file system|os error 30|Permission denied|os error 13",
        ErrorKind.INSTALL_FAILED,
        "The folder is not writable.",
        "Check its permissions, or choose another one.",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|invalid peer certificate|UnknownIssuer",
        ErrorKind.NO_NETWORK,
        "The package index's certificate is not trusted.",
        "Set SSL_CERT_FILE to a file with your network's certificates.",
    ),
    (
        r"[Pp]roxy ?(?:Error|Connect)|tunnel error|407 Proxy|unsuccessful tunnel",
        ErrorKind.NO_NETWORK,
        "The proxy refused the connection.",
        "Check HTTPS_PROXY and NO_PROXY, then run it again to continue.",
    ),
    (
        r"after connection broken|Max retries|NewConnectionError|name resolution|[Tt]imed? ?out|dns error|"
        r"error sending request|Connection refused|Network is unreachable|Could not connect|tcp connect error",
        ErrorKind.NO_NETWORK,
        "The package index cannot be reached.",
        "Check the network, HTTPS_PROXY, and pip's settings (`pip config list`). Downloads are kept: run it again to "
        "continue.",
    ),
    (
        r"end of file before message|error (?:reading a|decoding response) body|[Cc]onnection (?:reset|broken|closed)|"
        r"IncompleteRead|IncompleteDownload",
        ErrorKind.NO_NETWORK,
        "A download broke off.",
        "Check the network. Downloads are kept: run it again to continue.",
    ),
    (
        r"[Hh]ash(?:es)? (?:mismatch|do not match)|DO NOT MATCH THE HASHES",
        ErrorKind.INSTALL_FAILED,
        "A package's hash does not match the lock file. Do not use it.",
        "A proxy or a mirror may have changed it.",
    ),
    (
        r"No matching distribution|No solution found|no wheels with a matching|not found in the package registry",
        ErrorKind.INSTALL_FAILED,
        "No configured index offers this package for this Python and machine.",
        "Check `pip config list`.",
    ),
)
"""Patterns in the installer's output, most specific first, each with the error's kind, message and hint."""


class InstallStep(NamedTuple):
    """A step of an installation."""

    stage: str
    detail: str = ""
    fraction: float | None = None
    """Of this stage, from 0 to 1."""


OnInstallStep = Callable[[InstallStep], None]


class Installer(NamedTuple):
    """Installs packages into one environment."""

    folder: Path
    uv: tuple[str, ...]
    """The uv command; empty: use pip."""
    environment: dict[str, str]
    log: Path

    @property
    def name(self) -> str:
        return "uv" if self.uv else "pip"

    def install(
        self, locks: Iterable[Path], requirement: str, *, expected_gb: float, stage: str, report: OnInstallStep
    ) -> None:
        """Install the locked packages plus `requirement` in one step. Raises VlmtuiError; downloads are kept.

        requirement: a package that is not locked by hash (PyTorch's CPU build), or empty.
        expected_gb: how much will be written, for the progress.
        """
        files = [option for lock in locks for option in ("-r", str(lock))]
        extra = [requirement] if requirement else []
        if self.uv:
            compiling = ["--compile-bytecode"] if self.environment.get("PYTHONDONTWRITEBYTECODE") else []
            command = [*self.uv, "pip", "install", "--no-deps", "--python", str(python_of(self.folder)), *compiling]
            self.run([*command, *files, *extra], stage=stage, expected_gb=expected_gb, report=report)
            return
        command = isolated_command(python_of(self.folder), "-m", "pip", "install", "--no-deps", "--no-input")
        if extra:
            self.run([*command, *extra], stage=stage, expected_gb=expected_gb, report=report)
        self.run([*command, "--require-hashes", *files], stage=stage, expected_gb=expected_gb, report=report)

    def run(self, command: Sequence[str], *, stage: str, expected_gb: float, report: OnInstallStep) -> None:
        """Run a command of uv or pip, logging its output. Raises VlmtuiError if it fails."""
        with self.log.open("ab") as log:
            log.write(f"\n== {stage}\n".encode())
            log.flush()
            begin = log.tell()
            process = subprocess.Popen(
                bound_command(command),  # an installer must not go on in a folder that another has taken over
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.folder,
                process_group=0,
            )
            watcher = InstallMonitor(process, self.log, begin, expected_gb)
            try:
                while True:
                    try:
                        code = process.wait(timeout=_TICK_S)
                        break
                    except subprocess.TimeoutExpired:
                        report(watcher.progress(stage))
            finally:
                end_group(process)
        if code != 0:
            raise failure(command[0], code, self.log.read_bytes()[begin:].decode("utf-8", "replace"), self.log)


class InstallMonitor:
    """Reports a running installer's progress, from the bytes it wrote and the downloads in its log."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, begin: int, expected_gb: float) -> None:
        self._io = Path(f"/proc/{process.pid}/io")
        self._log = log
        self._begin = begin
        self._expected = expected_gb * 1e9

    def progress(self, stage: str) -> InstallStep:
        """Return the current progress."""
        said = self._log.read_bytes()[self._begin :].decode("utf-8", "replace")
        downloading: dict[str, str] = {}
        for line in said.splitlines():
            if begun := _DOWNLOADING.match(line):
                downloading[begun[1]] = begun[2]
            elif ended := _DOWNLOADED.match(line):
                downloading.pop(ended[1], None)
        newest = [f"{name} {size}" for name, size in downloading.items()][-2:]
        return InstallStep(stage, ", ".join(newest), self._fraction())

    def _fraction(self) -> float | None:
        try:
            written = re.search(r"^wchar: (\d+)", self._io.read_text(encoding="ascii"), re.MULTILINE)
        except OSError:
            return None
        return min(0.99, int(written[1]) / self._expected) if written and self._expected else None


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process group by its leader. Does nothing if the leader has ended."""
    if process.poll() is not None:
        return
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signum)
            process.wait(timeout=5)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def prepare_installer(
    folder: Path, base: Path, log: Path, report: OnInstallStep, *, cache: Path | None = None
) -> Installer:
    """Return the installer for an environment: the machine's uv, else one that its pip downloads, else pip itself.

    `base`: an interpreter whose pip is configured, if the environment has no pip. `cache`: a folder for downloads,
    unless the user's uv already has a cache. Raises VlmtuiError if the network is unreachable.
    """
    given = safe_environment(os.environ)
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"):
        given.pop(name, None)
    for_pip = pip_environment(given)
    uv = find_uv()
    if not uv:
        fetching = Installer(folder, (), for_pip, log)
        options = ["--no-deps", "--require-hashes", "-r", str(UV_LOCK)]
        command = isolated_command(python_of(folder), "-m", "pip", "install", *options)
        try:
            fetching.run(command, stage="Fetch uv", expected_gb=0, report=report)
            uv = (str(folder / "bin" / "uv"),)
        except VlmtuiError as error:
            if error.kind is ErrorKind.NO_NETWORK:
                raise
            return fetching
    environment = uv_environment(base, for_pip)
    if cache is not None and "UV_CACHE_DIR" not in environment and not _uses_uv(environment):
        environment["UV_CACHE_DIR"] = str(cache)
    return Installer(folder, uv, environment, log)


def failure(program: str, code: int, output: str, log: Path) -> VlmtuiError:
    """Return the error for a failed installer: the cause and the output line that shows it if known, else the end of
    the output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for pattern, kind, cause, remedy in _ADVICE:
        if telling := [line for line in lines if re.search(pattern, line)]:
            return VlmtuiError(kind, cause, detail=telling[-1], hint=f"{remedy} Log: {log}")
    name = "uv" if Path(program).name == "uv" else "pip"
    message = f"{name} failed with exit code {code}."
    return VlmtuiError(ErrorKind.INSTALL_FAILED, message, detail="\n".join(lines[-_LINES:]), hint=f"Log: {log}")


def find_uv() -> tuple[str, ...]:
    """Return the command of an installed uv that is new enough; empty if there is none."""
    found = find_program("uv")
    if not found:
        return ()
    try:
        asked = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=20, check=False, cwd=os.sep
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    version = re.match(r"uv (\d+)\.(\d+)", asked.stdout)
    return (found,) if version and (int(version[1]), int(version[2])) >= _OLDEST_UV else ()


def _uses_uv(environment: Mapping[str, str]) -> bool:
    """Whether the user already has a uv cache, which all uv installations share."""
    home = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "/nowhere")) / ".cache")
    return (Path(home) / "uv").is_dir()
