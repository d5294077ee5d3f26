"""The application with a disk that can be full and, by default, the worker of this folder.

    python -m tests.torture.app ENGINE FULL [options of vlmtui]

ENGINE is `scripted` or `vllm`. While the file FULL exists, the conversation database finds no room.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import vlmtui.bootstrap
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.local.launcher import Launcher, WorkerProgram
from vlmtui.store.database import Database

_ANY = 2**30


def limit_the_disk(full: Path) -> None:
    """SQLite itself refuses to grow the file while `full` exists: the error is its own."""
    writing = Database.writing

    @contextmanager
    def limited(self: Database) -> Iterator[int]:
        self.connection.execute(f"PRAGMA max_page_count = {1 if full.exists() else _ANY}")
        with writing(self) as now:
            yield now

    Database.writing = limited  # type: ignore[method-assign]


def main() -> int:
    engine, full, *options = sys.argv[1:]
    limit_the_disk(Path(full))
    if engine == "scripted":
        launcher = Launcher(lambda spec: WorkerProgram(("-m", "tests.torture.worker")))
        hosting = functools.partial(WorkerHost, launcher=launcher)
        setattr(vlmtui.bootstrap, "WorkerHost", hosting)  # noqa: B010 - mypy takes no other class there
    from vlmtui.cli import main as run

    return run(options)


if __name__ == "__main__":
    sys.exit(main())
