"""`vlmtui batch` with a disk that can be full and, by default, the worker of `tests.torture`.

    python -m tests.batches.client ENGINE FULL batch …

ENGINE is `scripted` or `vllm`. While the file FULL exists, the output finds no room behind some more bytes.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from pathlib import Path

import vlmtui.bootstrap
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.local.launcher import Launcher, WorkerProgram
from vlmtui.session.batch import results

_ROOM = 37


def limit_the_disk(full: Path) -> None:
    """Write a part of what is to be written, as a disk does that is full then."""
    write = results._write_all

    def limited(descriptor: int, data: bytes, place: int) -> None:
        if full.exists():
            os.pwrite(descriptor, data[:_ROOM], place)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(descriptor, data, place)

    setattr(results, "_write_all", limited)  # noqa: B010


def main() -> int:
    engine, full, *options = sys.argv[1:]
    limit_the_disk(Path(full))
    if engine == "scripted":
        launcher = Launcher(lambda spec: WorkerProgram(("-m", "tests.torture.worker")))
        hosting = functools.partial(WorkerHost, launcher=launcher)
        setattr(vlmtui.bootstrap, "WorkerHost", hosting)  # noqa: B010 - mypy takes no other class there
    from vlmtui.cli import main as run

    sys.argv = ["vlmtui", *options]
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
