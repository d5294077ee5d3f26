"""Starting a worker's process."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import private_dir
from vlmtui.protocol.endpoint import MARKER, Endpoint, WorkerRecord

_POLL_S = 0.02
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""Nothing phones home, unless the user has said otherwise."""


def require_vllm() -> None:
    """Raise VlmtuiError(NO_VLLM) where no engine can run. Looks only whether the package is there."""
    if importlib.util.find_spec("vllm") is None:
        raise VlmtuiError(
            ErrorKind.NO_VLLM,
            "vLLM is not installed beside vlmtui, so no model can be run.",
            hint="Install it: `pip install 'vlmtui[cuda]'` for an NVIDIA GPU, `pip install 'vlmtui[cpu]'` without one.",
        )


class Launcher(msgspec.Struct, frozen=True):
    """How a worker's process is started."""

    command: tuple[str, ...] = (sys.executable, "-m", "vlmtui.worker")
    check: Callable[[], None] = require_vllm
    """Raises VlmtuiError where starting one is pointless."""

    def start(self, endpoint: Endpoint, spec: LoadSpec, keep_alive_s: float | None) -> subprocess.Popen[bytes]:
        """Start the process in a session of its own and write its record. Raises VlmtuiError."""
        command = [
            *self.command,
            *("--socket", str(endpoint.socket)),
            *("--spec", str(endpoint.spec_file)),
            *("--log", str(endpoint.log)),
            *("--keep-alive", "none" if keep_alive_s is None else f"{keep_alive_s:g}"),
        ]
        private_dir(endpoint.log.parent)
        private_dir(endpoint.home)
        try:
            endpoint.write_spec(spec)
            process = _spawn(command, endpoint)
            record = WorkerRecord(spec=spec, pid=process.pid, started_at=time.time(), log=str(endpoint.log))
            endpoint.write_record(record)
        except OSError as error:
            message = f"The worker of {spec.name} could not be started."
            raise VlmtuiError(ErrorKind.INTERNAL, message, detail=str(error)) from error
        return process


def _spawn(command: list[str], endpoint: Endpoint) -> subprocess.Popen[bytes]:
    with _fresh_log(endpoint.log) as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=endpoint.home,
            env=worker_environment(os.environ, endpoint),
            start_new_session=True,
        )


def worker_environment(given: Mapping[str, str], endpoint: Endpoint) -> dict[str, str]:
    """The environment of a worker: the user's, with what the engine's processes need."""
    site = str(Path(__file__).parents[1] / "worker" / "site")
    kept = [str(Path(item).absolute()) for item in given.get("PYTHONPATH", "").split(os.pathsep) if item]
    return {
        **_QUIET,
        **given,
        "PYTHONPATH": os.pathsep.join([site, *kept]),
        MARKER: str(endpoint.socket),
    }


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Hold the lock file, waiting for whoever holds it; the kernel releases it when a holder dies.

    Raises VlmtuiError when it cannot be opened.
    """
    private_dir(path.parent)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise VlmtuiError(ErrorKind.INTERNAL, f"The lock file {path} cannot be used.", detail=str(error)) from error
    try:
        while not _try_lock(file):  # noqa: ASYNC110 - the kernel has no event for it
            await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(file)


def _fresh_log(path: Path) -> BinaryIO:
    """An empty log, readable by its owner only. The last run's is kept beside it: it may say why that one died."""
    with suppress(FileNotFoundError):
        path.replace(path.with_suffix(".log.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600), "ab")


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
