"""vLLM without the worker, in its own process: the reference for `engine_overhead` and `batch`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from vlmtui.engine.local.launcher import worker_environment
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.worker.backends.vllm.engine_args import CPU_ENVIRONMENT, ENVIRONMENT, engine_arguments


class BareVllm:
    """A process `python -m MODULE --alone DESCRIPTOR` with the worker's environment. Each line of JSON to its stdin
    starts a round, whose result it writes to the descriptor. Blocking."""

    def __init__(self, module: str, endpoint: Endpoint) -> None:
        results, told = os.pipe()
        environment = {**ENVIRONMENT, **CPU_ENVIRONMENT, **worker_environment(os.environ, endpoint)}
        # A worker's Python does not search the current folder, where this package is.
        environment["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).parents[1]}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "--alone", str(told)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(told,),
            start_new_session=True,  # a group of its own, as the worker has, whose priority is lowered
        )
        os.close(told)
        self._lines = os.fdopen(results)

    @property
    def pid(self) -> int:
        return self._process.pid

    def load(self) -> None:
        """Wait until the process has written its first line."""
        assert self._lines.readline()

    def round(self, order: object = None) -> Any:
        """Return the result of a round."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._lines.readline())

    def end(self) -> None:
        self._process.communicate()
        self._lines.close()


def report(told: int, result: object) -> None:
    """Write a result in the process; the first one says that the model is loaded."""
    os.write(told, json.dumps(result).encode() + b"\n")


def bundled_arguments(kind: type) -> dict[str, Any]:
    """Return the worker's arguments for the bundled model. `kind`: vLLM's class of arguments."""
    from vllm.platforms import current_platform

    known = {field.name for field in fields(kind)}
    spec = resolve(Registry.bundled(), "shapes").spec
    return engine_arguments(spec, known=known, on_cpu=current_platform.is_cpu())
