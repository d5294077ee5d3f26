"""Runs a process that reads a model's tokenizer and templates, with the engine's interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.engine import LoadSpec
from vlmtui.engine.local.launcher import WorkerProgram, installed_program, linked_package, reader_environment
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths, private_dir
from vlmtui.processes import python_command

if TYPE_CHECKING:
    from vlmtui.domain.model_reading import ModelReading, ReadRequest

WHOLE_S = 240.0
"""The most seconds that the process may take."""
_ANSWER_BYTES_MAX = 64_000_000
_LOG_BYTES = 4_000


class LocalModelReader(msgspec.Struct, frozen=True):
    """Reads models in a separate process."""

    paths: Paths
    whole_s: float = WHOLE_S

    def read(self, request: ReadRequest) -> ModelReading:
        """Read a model. Blocking. Raises VlmtuiError if the process fails, or if no engine is installed."""
        program = WorkerProgram()  # templates alone need no package of the engine
        if request.folder and request.tokenizer:
            program = installed_program(self.paths, LoadSpec(model=request.folder, name=request.folder))
        private_dir(self.paths.runtime)
        with tempfile.TemporaryDirectory(prefix="reader-", dir=self.paths.runtime) as home:
            other = program.search_path
            linked = [linked_package(Path(home)), *other] if other is not None else []
            return self._run(request, program.interpreter, Path(home), linked)

    def _run(self, request: ReadRequest, interpreter: str, home: Path, linked: list[str]) -> ModelReading:
        from vlmtui.domain.model_reading import ModelReading

        with tempfile.TemporaryFile(dir=home) as answer, tempfile.TemporaryFile(dir=home) as log:
            process = subprocess.Popen(
                python_command(interpreter, "-m", "vlmtui.worker.model_reader"),
                stdin=subprocess.PIPE,
                stdout=answer,
                stderr=log,
                cwd=home,
                env=reader_environment(os.environ, home, linked),
                start_new_session=True,
            )
            try:
                process.communicate(msgspec.json.encode(request), timeout=self.whole_s)
            except subprocess.TimeoutExpired as error:
                message = f"Reading the model took longer than {self.whole_s:g} s."
                raise VlmtuiError(ErrorKind.BAD_INPUT, message) from error
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            answer.seek(0)
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_BYTES))
            try:
                return msgspec.json.decode(answer.read(_ANSWER_BYTES_MAX), type=ModelReading)
            except msgspec.DecodeError as error:
                raise _died(process.returncode, log.read().decode("utf-8", "replace")) from error


def _died(code: int, log: str) -> VlmtuiError:
    reason = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return VlmtuiError(
        ErrorKind.BAD_INPUT,
        f"The process that reads the model ended {reason}.",
        detail="\n".join(log.strip().splitlines()[-6:]),
        hint="Its memory, processor time and network are limited; check the model's tokenizer files.",
    )
