"""Stands in for the worker's server in the guardian's tests: has children that do not want to end, and leaves a file.

Its arguments are the server's own; the pids of its processes go to the file `$OBSTINATE_PIDS`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path

from vlmtui.worker import guardian

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def linger(is_there: Event) -> None:
    """A child as vLLM has them: ignores SIGTERM and never ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    is_there.set()
    time.sleep(600)


def main() -> None:
    guardian.die_with_parent(int(sys.argv[sys.argv.index("--guardian") + 1]))
    context = multiprocessing.get_context("spawn")
    is_there = context.Event()
    child = context.Process(target=linger, args=(is_there,))
    child.start()
    assert is_there.wait(60)
    deaf = subprocess.Popen([sys.executable, "-c", DEAF], start_new_session=True)
    # An orphan: its own parent is gone, so that the guardian inherits it.
    orphan = subprocess.check_output(
        [sys.executable, "-c", f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {DEAF!r}],"
         " start_new_session=True, stdout=subprocess.DEVNULL).pid)"]
    )  # fmt: skip
    pids = {"server": os.getpid(), "child": child.pid, "deaf": deaf.pid, "orphan": int(orphan)}
    if os.environ.get("OBSTINATE_DEAF"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (Path(tempfile.gettempdir()) / "left").touch()
    target = Path(os.environ["OBSTINATE_PIDS"])
    target.with_suffix(".new").write_text(json.dumps(pids))
    target.with_suffix(".new").rename(target)
    time.sleep(600)


if __name__ == "__main__":
    main()
