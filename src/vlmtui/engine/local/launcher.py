"""Starts worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from vlmtui.domain.engine import DEFAULT_BACKEND, SERVED_BACKENDS, TRANSFORMERS_BACKEND, LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import open_to_append
from vlmtui.paths import APP, Paths, private_dir
from vlmtui.processes import python_command, safe_environment, search_path
from vlmtui.protocol.endpoint import MARKER, Endpoint, WorkerRecord
from vlmtui.registry.engine_arguments import check_engine_args

_QUIET = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""Variables that turn usage reporting off, unless the user has set them."""


class StartedWorker(msgspec.Struct, frozen=True):
    """A worker process that was just started."""

    process: subprocess.Popen[bytes]
    ready_pipe: int
    """A pipe's descriptor: a byte arrives when the worker listens; the pipe ends if the worker exits first."""


class WorkerProgram(msgspec.Struct, frozen=True):
    """The program that runs a worker."""

    words: tuple[str, ...] = ("-m", "vlmtui.worker")
    """The interpreter's arguments; the worker's own follow."""
    interpreter: str = sys.executable
    """An absolute path."""
    search_path: tuple[str, ...] | None = None
    """Extra package folders for another environment's interpreter, to which vlmtui is added; None: this interpreter."""
    environment: dict[str, str] = {}
    """Further environment variables."""


def installed_program(paths: Paths, spec: LoadSpec) -> WorkerProgram:
    """Return the worker program for a spec. Raises VlmtuiError(NO_ENGINE) if no installed engine can run it."""
    from vlmtui.engines.installed import Engines, choose_engine  # not needed for the first paint
    from vlmtui.worker.backends import require_backend

    if spec.backend in SERVED_BACKENDS:
        return _serving_program(paths, spec)
    is_installed = spec.backend in (DEFAULT_BACKEND, TRANSFORMERS_BACKEND)
    chosen = choose_engine(Engines(paths)) if is_installed else None
    if chosen is None:
        require_backend(spec.backend)
        return WorkerProgram()
    folders = None if chosen.record is None else chosen.search_path
    return WorkerProgram(interpreter=chosen.interpreter, search_path=folders)


def _serving_program(paths: Paths, spec: LoadSpec) -> WorkerProgram:
    """Return the worker program for a spec whose engine is used through its server: the worker runs in this Python and
    starts `vllm serve`. Raises VlmtuiError(NO_ENGINE) if the engine is not installed."""
    from vlmtui.engines.builds import how_to_install
    from vlmtui.engines.installed import Engines, choose_engine, pinned_engine
    from vlmtui.engines.serve import SERVER_VARIABLE, server_program
    from vlmtui.worker.backends import no_vllm

    engines = Engines(paths)
    if spec.pinned is None:
        if (chosen := choose_engine(engines)) is None:
            raise no_vllm()
        record = chosen.record
    elif (record := pinned_engine(engines, spec.pinned)) is None:
        message = f"{spec.name} needs vLLM {spec.pinned}, which is not installed."
        raise VlmtuiError(ErrorKind.NO_ENGINE, message, hint=how_to_install(spec.pinned))
    return WorkerProgram(environment={SERVER_VARIABLE: msgspec.json.encode(server_program(record)).decode()})


class Launcher(msgspec.Struct, frozen=True):
    """Starts worker processes."""

    choose: Callable[[LoadSpec], WorkerProgram]
    """Returns the program for a spec. Raises VlmtuiError. Call it in a thread: it may query the GPU driver."""

    def start(
        self, program: WorkerProgram, endpoint: Endpoint, spec: LoadSpec, keep_alive_s: float | None
    ) -> StartedWorker:
        """Start a worker as the leader of a new process session, and write its record. Raises VlmtuiError."""
        check_engine_args(spec)
        arguments = [
            *("--socket", str(endpoint.socket)),
            *("--spec", str(endpoint.spec_file)),
            *("--log", str(endpoint.log)),
            *("--keep-alive", "none" if keep_alive_s is None else f"{keep_alive_s:g}"),
        ]
        private_dir(endpoint.log.parent)
        private_dir(endpoint.home)
        try:
            endpoint.write_spec(spec)
            started = _spawn(program, arguments, endpoint)
            record = WorkerRecord(spec=spec, pid=started.process.pid, started_at=time.time(), log=str(endpoint.log))
            endpoint.write_record(record)
        except OSError as error:
            message = f"Can't start the worker of {spec.name}."
            raise VlmtuiError(ErrorKind.INTERNAL, message, detail=str(error)) from error
        return started


def linked_package(home: Path) -> str:
    """Create and return a folder in `home` that contains only a link to vlmtui, so that another interpreter can import
    vlmtui and nothing else of this environment."""
    link = home / "app" / APP
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(Path(__file__).parents[2])
    return str(link.parent)


def _spawn(program: WorkerProgram, arguments: Sequence[str], endpoint: Endpoint) -> StartedWorker:
    other = program.search_path  # another interpreter also needs vlmtui
    folders = [] if other is None else [linked_package(endpoint.home), *other]
    environment = worker_environment(os.environ, endpoint, folders)
    ready_pipe, write_end = os.pipe()
    try:
        with _fresh_log(endpoint.log) as log:
            process = subprocess.Popen(
                python_command(program.interpreter, *program.words, *arguments, "--ready", str(write_end)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=endpoint.home,
                env={**environment, **program.environment},
                start_new_session=True,
                pass_fds=(write_end,),
            )
    except OSError:
        os.close(ready_pipe)
        raise
    finally:
        os.close(write_end)
    return StartedWorker(process, ready_pipe)


def worker_environment(given: Mapping[str, str], endpoint: Endpoint, further: Sequence[str] = ()) -> dict[str, str]:
    """Return a worker's environment variables: the user's, and those that the engine's processes need."""
    return {
        **_QUIET,
        **safe_environment(given),
        "PYTHONPATH": _python_path(given, further),
        MARKER: str(endpoint.record),
    }


def reader_environment(given: Mapping[str, str], home: Path, further: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of a process that reads a model below `home`: no hub token, no network."""
    hidden = {name for name in given if name.startswith("HF_") and "TOKEN" in name}
    return {
        **_QUIET,
        **{name: value for name, value in safe_environment(given).items() if name not in hidden},
        "HF_HUB_OFFLINE": "1",
        "HF_MODULES_CACHE": str(home / "modules"),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": _python_path(given, further),
    }


def _python_path(given: Mapping[str, str], further: Sequence[str]) -> str:
    site = str(Path(__file__).parents[2] / "worker" / "site")
    return os.pathsep.join([site, *further, *search_path(given)])


def _fresh_log(path: Path) -> BinaryIO:
    """Open an empty log (0600). The previous log is kept as `.log.1`, since it may explain why the previous worker
    died."""
    with suppress(FileNotFoundError):
        path.replace(path.with_suffix(".log.1"))
    return os.fdopen(open_to_append(path), "ab")
