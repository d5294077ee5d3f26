"""Processes forked from one that has imported everything: what is killed is the deed, and not Python's start.

    python -m tests.torture.nursery

reads an order a line (JSON) and starts it, one at a time; it says the process's id, then how it ended.
"""

from __future__ import annotations

import importlib
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_ROOT = Path(__file__).parents[2]


class Nursery:
    """Starts what is in `NURSLINGS`, each in a process of its own. A context manager."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.nursery"],
            stdin=pipe,
            stdout=pipe,
            cwd=_ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def start(self, command: Sequence[str], environment: dict[str, str], folder: Path) -> Nursling:
        """Start a command in `folder`; what it prints goes to the file `log` there."""
        order = {"command": list(command), "environment": environment, "folder": str(folder)}
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(order)}\n".encode())
        self._process.stdin.flush()
        return Nursling(int(self._line()), self._line, self._comes)

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the nursery has ended"
        return line

    def _comes(self, within_s: float) -> bool:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            return bool(waiting.select(max(0.0, within_s)))


class Nursling:
    """A process that was started; it has to be waited for before the next one is."""

    def __init__(self, pid: int, line: Callable[[], bytes], comes: Callable[[float], bool]) -> None:
        self.pid = pid
        self._line = line
        self._comes = comes
        self._status: int | None = None

    def wait(self, within_s: float) -> int | None:
        """Its exit status, or minus the signal that ended it; None where it still runs after so long."""
        if self._status is None and self._comes(within_s):
            self._status = os.waitstatus_to_exitcode(int(self._line()))
        return self._status

    def end(self, signal: int, within_s: float) -> int:
        """Send it a signal, unless it has ended, and wait for its end."""
        if self.wait(0.0) is None:
            os.kill(self.pid, signal)
        status = self.wait(within_s)
        assert status is not None, f"process {self.pid} does not end"
        return status


def _born(order: dict[str, object]) -> None:
    """Become what was ordered. Never returns."""
    status = 1
    try:
        command, folder = order["command"], str(order["folder"])
        assert isinstance(command, list)
        os.environ.clear()
        os.environ.update(order["environment"])  # type: ignore[call-overload]
        os.chdir(folder)
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        module, *words = command
        status = _mains()[module](words)
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(status)


def _mains() -> dict[str, Callable[[list[str]], int]]:
    """Return the functions that a child can run, by module. Importing them here saves the time of a new process."""
    for module in ("vlmtui.cli.conversations", "vlmtui.store.opening", "vlmtui.store.store"):
        importlib.import_module(module)
    from tests.torture import deeds
    from vlmtui.cli.main import main as vlmtui

    return {"vlmtui": vlmtui, "tests.torture.deeds": deeds.main}


def main() -> int:
    _mains()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)  # closed in what is started, which has another 1
    os.set_inheritable(answers.fileno(), False)
    for line in iter(sys.stdin.buffer.readline, b""):
        pid = os.fork()
        if pid == 0:
            os.close(answers.fileno())
            _born(json.loads(line))
        answers.write(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        answers.write(f"{status}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
