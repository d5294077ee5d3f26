"""The real command line, with its own folders for vlmtui's files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from vlmtui.engine.local.processes import worker_processes
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve


class Machine:
    """Folders for vlmtui's files, and the real command line that uses them."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths.below(folder)
        self.spec = resolve(Registry.bundled(), "shapes").spec
        self.endpoint = Endpoint.of(self.paths, self.spec)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("VLMTUI_")},
            "VLMTUI_DATA_DIR": str(folder),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "vlmtui", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command; return its exit code, stdout and stderr."""
        with self.start(*arguments) as process:
            out, error = process.communicate()
        return process.returncode, out, error

    def ask(self, *arguments: str) -> dict[str, object]:
        """Return the object that `ask --json` prints."""
        code, out, error = self.run("ask", "--json", *arguments)
        assert code == 0, error
        answer: dict[str, object] = json.loads(out)
        return answer

    def processes(self) -> list[psutil.Process]:
        return worker_processes(self.endpoint)

    def wait_until_nothing_runs(self, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while left := self.processes():
            assert time.monotonic() < deadline, [process.cmdline() for process in left]
            psutil.wait_procs(left, timeout=0.1)


@contextmanager
def new_machine() -> Iterator[Machine]:
    """A machine whose processes have all ended when the test ends."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-test-") as folder:
        machine = Machine(Path(folder))
        yield machine
        code, _, error = machine.run("stop", "--all")
        assert code == 0, error
        assert machine.processes() == []
