"""A real worker with the real guardian and server, and an engine that repeats the question (`tests.worker.hosted`).

The word `hold` of an answer waits until the file `$ECHO_RELEASE` exists.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.worker.hosted import EchoEngine
from vlmtui.domain.engine import LoadSpec
from vlmtui.engine.local.launcher import Launcher, WorkerProgram
from vlmtui.worker import serve
from vlmtui.worker.backends.contract import Backend, Report

_ROOT = Path(__file__).parents[2]
_GUARD = "import sys; from vlmtui.worker.guardian import main; sys.exit(main(sys.argv[1:], server={module!r}))"


def echo_launcher(monkeypatch: pytest.MonkeyPatch, release: Path) -> Launcher:
    """Starts this worker where the real one would be started."""
    monkeypatch.setenv("PYTHONPATH", str(_ROOT), prepend=os.pathsep)
    monkeypatch.setenv("ECHO_RELEASE", str(release))
    words = ("-c", _GUARD.format(module="tests.worker.echo_server"))
    return Launcher(lambda spec: WorkerProgram(words))


def linger() -> None:
    """Ignores SIGTERM and never ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()


async def load(spec: LoadSpec, report: Report) -> EchoEngine:
    """Has a child, as vLLM's engine core is one."""
    multiprocessing.get_context("spawn").Process(target=linger).start()
    release = Path(os.environ["ECHO_RELEASE"])
    engine = EchoEngine(release.exists)
    engine.info = msgspec.structs.replace(engine.info, spec=spec)
    if spec.engine_args.get("block"):
        time.sleep(600)
    return engine


if __name__ == "__main__":
    sys.exit(serve.main(sys.argv[1:], Backend(title="Echo", load=load)))
