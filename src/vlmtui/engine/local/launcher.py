"""Starting a worker's process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from vlmtui.domain.engine import DEFAULT_BACKEND, LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import open_to_append
from vlmtui.paths import APP, Paths, private_dir
from vlmtui.protocol.endpoint import MARKER, Endpoint, WorkerRecord

if TYPE_CHECKING:
    from vlmtui.engines.records import ChosenEngine

_QUIET = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""Nothing phones home, unless the user has said otherwise."""


class Started(msgspec.Struct, frozen=True):
    """A process that was just started."""

    process: subprocess.Popen[bytes]
    listens: int
    """Descriptor of a pipe: a byte comes when the worker listens, its end when the worker has ended before."""

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Close the pipe at the end."""
        try:
            yield
        finally:
            os.close(self.listens)


class WorkerProgram(msgspec.Struct, frozen=True):
    """What to run as a worker."""

    command: tuple[str, ...]
    """The interpreter first."""
    search_path: tuple[str, ...] | None = None
    """For an interpreter that is not this one: where it finds packages besides its own. It gets vlmtui as well."""


def installed_program(paths: Paths, spec: LoadSpec) -> WorkerProgram:
    """The worker in the engine that is installed here. Raises VlmtuiError(NO_ENGINE) where there is none for the
    spec's backend."""
    from vlmtui.engines.records import Engines, choose_engine  # brings more than a first paint needs
    from vlmtui.worker.backends import require_backend

    chosen = choose_engine(Engines(paths)) if spec.backend == DEFAULT_BACKEND else None
    if chosen is None:
        require_backend(spec.backend)
        return WorkerProgram((sys.executable, "-m", "vlmtui.worker"))
    return program_of(chosen)


def program_of(engine: ChosenEngine) -> WorkerProgram:
    """The worker in that engine."""
    return WorkerProgram(
        (engine.interpreter, "-m", "vlmtui.worker"), None if engine.record is None else engine.search_path
    )


class Launcher(msgspec.Struct, frozen=True):
    """How a worker's process is started."""

    choose: Callable[[LoadSpec], WorkerProgram]
    """Raises VlmtuiError where no engine can run that. May ask the GPU's driver: call it in a thread."""

    def start(self, program: WorkerProgram, endpoint: Endpoint, spec: LoadSpec, keep_alive_s: float | None) -> Started:
        """Start the process in a session of its own and write its record. Raises VlmtuiError."""
        command = [
            *program.command,
            *("--socket", str(endpoint.socket)),
            *("--spec", str(endpoint.spec_file)),
            *("--log", str(endpoint.log)),
            *("--keep-alive", "none" if keep_alive_s is None else f"{keep_alive_s:g}"),
        ]
        private_dir(endpoint.log.parent)
        private_dir(endpoint.home)
        try:
            endpoint.write_spec(spec)
            started = _spawn(command, endpoint, _search_path(program, endpoint))
            record = WorkerRecord(spec=spec, pid=started.process.pid, started_at=time.time(), log=str(endpoint.log))
            endpoint.write_record(record)
        except OSError as error:
            message = f"The worker of {spec.name} could not be started."
            raise VlmtuiError(ErrorKind.INTERNAL, message, detail=str(error)) from error
        return started


def _search_path(program: WorkerProgram, endpoint: Endpoint) -> list[str]:
    """Where the worker finds what its interpreter lacks: vlmtui, by a link, without all that is beside it here."""
    if program.search_path is None:
        return []
    link = endpoint.home / "app" / APP
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(Path(__file__).parents[2])
    return [str(link.parent), *program.search_path]


def _spawn(command: list[str], endpoint: Endpoint, search_path: list[str]) -> Started:
    listens, told = os.pipe()
    try:
        with _fresh_log(endpoint.log) as log:
            process = subprocess.Popen(
                [*command, "--ready", str(told)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=endpoint.home,
                env=worker_environment(os.environ, endpoint, search_path),
                start_new_session=True,
                pass_fds=(told,),
            )
    except OSError:
        os.close(listens)
        raise
    finally:
        os.close(told)
    return Started(process, listens)


def worker_environment(given: Mapping[str, str], endpoint: Endpoint, search_path: Sequence[str] = ()) -> dict[str, str]:
    """The environment of a worker: the user's, with what the engine's processes need."""
    site = str(Path(__file__).parents[2] / "worker" / "site")
    kept = [str(Path(item).absolute()) for item in given.get("PYTHONPATH", "").split(os.pathsep) if item]
    return {
        **_QUIET,
        **given,
        "PYTHONPATH": os.pathsep.join([site, *search_path, *kept]),
        MARKER: str(endpoint.socket),
    }


def _fresh_log(path: Path) -> BinaryIO:
    """An empty log, readable by its owner only. The last run's is kept beside it: it may say why that one died."""
    with suppress(FileNotFoundError):
        path.replace(path.with_suffix(".log.1"))
    return os.fdopen(open_to_append(path), "ab")
