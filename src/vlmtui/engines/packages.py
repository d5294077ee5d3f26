"""Packages into an environment, by uv, else by pip: exact versions, checked hashes, progress, and clear failures."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vlmtui.engines.environment import python_of
from vlmtui.engines.indexes import pip_environment, uv_environment
from vlmtui.engines.variants import UV_LOCK
from vlmtui.errors import ErrorKind, VlmtuiError

_TICK_S = 0.5
_LINES = 12
_OLDEST_UV = (0, 6)
_BOUND = """
import ctypes, os, signal, sys
if sys.platform.startswith("linux"):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Runs a command that the kernel ends when its parent is killed (PR_SET_PDEATHSIG): no installer may go on in a folder
that the next one has taken over. The command is absolute."""
_DOWNLOADING = re.compile(r"^\s*Downloading (\S+) \(([\d.]+ ?[KMG]i?B)\)")
_DOWNLOADED = re.compile(r"^\s*Downloaded (\S+)")

_ADVICE = (
    (
        r"No space left on device|Errno 28|os error 28|Disk quota exceeded",
        ErrorKind.INSTALL_FAILED,
        "The disk is full.",
        "Free some space there or in the cache (UV_CACHE_DIR names another one), and run it again.",
    ),
    (
        r"Read-only file system|os error 30|Permission denied|os error 13",
        ErrorKind.INSTALL_FAILED,
        "That place cannot be written.",
        "Check its permissions, or name another one.",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|invalid peer certificate|UnknownIssuer",
        ErrorKind.NO_NETWORK,
        "The package index's certificate is not trusted here.",
        "SSL_CERT_FILE names a file with your network's own.",
    ),
    (
        r"[Pp]roxy ?(?:Error|Connect)|tunnel error|407 Proxy|unsuccessful tunnel",
        ErrorKind.NO_NETWORK,
        "The proxy does not let this through.",
        "Check HTTPS_PROXY and NO_PROXY, and run it again to go on.",
    ),
    (
        r"after connection broken|Max retries|NewConnectionError|name resolution|[Tt]imed? ?out|dns error|"
        r"error sending request|Connection refused|Network is unreachable|Could not connect|tcp connect error",
        ErrorKind.NO_NETWORK,
        "The package index cannot be reached.",
        "Check the network, HTTPS_PROXY, and pip's settings (`pip config list`). What was downloaded stays: run it "
        "again to go on.",
    ),
    (
        r"[Hh]ash(?:es)? (?:mismatch|do not match)|DO NOT MATCH THE HASHES",
        ErrorKind.INSTALL_FAILED,
        "A package is not the one that was locked: do not use it.",
        "A proxy or a mirror may have changed it.",
    ),
    (
        r"No matching distribution|No solution found|no wheels with a matching|not found in the package registry",
        ErrorKind.INSTALL_FAILED,
        "No configured index offers this package for this Python and machine.",
        "Look at `pip config list`.",
    ),
)
"""What to look for in the output, most telling first, what kind of failure that is, and what to tell the user:
what happened, and what to do."""


class Progress(NamedTuple):
    """How far an installation is."""

    stage: str
    detail: str = ""
    fraction: float | None = None
    """Of this stage, from 0 to 1."""


Report = Callable[[Progress], None]


class Installer(NamedTuple):
    """What puts packages into one environment."""

    folder: Path
    uv: tuple[str, ...]
    """The command; empty: plain pip."""
    environment: dict[str, str]
    log: Path

    @property
    def name(self) -> str:
        return "uv" if self.uv else "pip"

    def install(
        self, locks: Iterable[Path], requirement: str, *, expected_gb: float, stage: str, report: Report
    ) -> None:
        """Install the locked packages, and one more, in one go. Raises VlmtuiError; what was downloaded stays.

        requirement: a package without a hash in a lock (PyTorch's CPU build), or empty.
        expected_gb: what will be written, for the progress.
        """
        files = [option for lock in locks for option in ("-r", str(lock))]
        extra = [requirement] if requirement else []
        if self.uv:
            compiling = ["--compile-bytecode"] if self.environment.get("PYTHONDONTWRITEBYTECODE") else []
            command = [*self.uv, "pip", "install", "--no-deps", "--python", str(python_of(self.folder)), *compiling]
            self.run([*command, *files, *extra], stage=stage, expected_gb=expected_gb, report=report)
            return
        command = [str(python_of(self.folder)), "-m", "pip", "install", "--no-deps", "--no-input"]
        if extra:
            self.run([*command, *extra], stage=stage, expected_gb=expected_gb, report=report)
        self.run([*command, "--require-hashes", *files], stage=stage, expected_gb=expected_gb, report=report)

    def run(self, command: Sequence[str], *, stage: str, expected_gb: float, report: Report) -> None:
        """Run a command of uv or pip, its output in the log. Raises VlmtuiError where it fails."""
        with self.log.open("ab") as log:
            log.write(f"\n== {stage}\n".encode())
            log.flush()
            begin = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOUND, str(os.getpid()), *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.folder,
                process_group=0,
            )
            watcher = Watcher(process, self.log, begin, expected_gb)
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


class Watcher:
    """Tells how far a running installer is: by what it wrote, and by what it says it is downloading."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, begin: int, expected_gb: float) -> None:
        self._io = Path(f"/proc/{process.pid}/io")
        self._log = log
        self._begin = begin
        self._expected = expected_gb * 1e9

    def progress(self, stage: str) -> Progress:
        """The progress now."""
        said = self._log.read_bytes()[self._begin :].decode("utf-8", "replace")
        under_way: dict[str, str] = {}
        for line in said.splitlines():
            if begun := _DOWNLOADING.match(line):
                under_way[begun[1]] = begun[2]
            elif ended := _DOWNLOADED.match(line):
                under_way.pop(ended[1], None)
        newest = [f"{name} {size}" for name, size in under_way.items()][-2:]
        return Progress(stage, ", ".join(newest), self._fraction())

    def _fraction(self) -> float | None:
        try:
            written = re.search(r"^wchar: (\d+)", self._io.read_text(encoding="ascii"), re.MULTILINE)
        except OSError:
            return None
        return min(0.99, int(written[1]) / self._expected) if written and self._expected else None


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads its group, with all it started. Harmless where it has ended."""
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


def prepare_installer(folder: Path, base: Path, log: Path, report: Report, *, cache: Path | None = None) -> Installer:
    """The installer of an environment: a uv of this machine, else one fetched by the environment's pip, else that pip.

    `base`: an interpreter whose pip knows the configuration, where the environment has none. `cache`: where downloads
    lie until they are installed, unless the user's uv has a place for them. Raises VlmtuiError where the network is
    not to be had.
    """
    given = dict(os.environ)
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"):
        given.pop(name, None)
    for_pip = pip_environment(given)
    uv = find_uv()
    if not uv:
        fetching = Installer(folder, (), for_pip, log)
        command = [str(python_of(folder)), "-m", "pip", "install", "--no-deps", "--require-hashes", "-r", str(UV_LOCK)]
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
    """The error for an installer that ended with `code`: where its output tells the cause, that and the line that tells
    it, else the end of the output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for pattern, kind, cause, remedy in _ADVICE:
        if telling := [line for line in lines if re.search(pattern, line)]:
            return VlmtuiError(kind, cause, detail=telling[-1], hint=f"{remedy} All that was said: {log}")
    name = "uv" if Path(program).name == "uv" else "pip"
    message = f"{name} ended with exit code {code}."
    return VlmtuiError(
        ErrorKind.INSTALL_FAILED, message, detail="\n".join(lines[-_LINES:]), hint=f"All that was said: {log}"
    )


def find_uv() -> tuple[str, ...]:
    """The command of a uv that is installed here and new enough; empty where there is none."""
    found = shutil.which("uv")
    if not found:
        return ()
    try:
        told = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    version = re.match(r"uv (\d+)\.(\d+)", told)
    return (found,) if version and (int(version[1]), int(version[2])) >= _OLDEST_UV else ()


def _uses_uv(environment: Mapping[str, str]) -> bool:
    """Whether the user has a cache of uv's already, which is shared by whatever uv installs."""
    home = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "/nowhere")) / ".cache")
    return (Path(home) / "uv").is_dir()
