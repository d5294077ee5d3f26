"""The application as it is, with the worker of `benchmarks.streaming.engine`: `python -m … [options of vlmtui]`."""

from __future__ import annotations

import sys

import vlmtui.bootstrap
from vlmtui.engine.local.host import WorkerHost
from vlmtui.paths import Paths


def main() -> int:
    def hosted(paths: Paths) -> WorkerHost:
        from benchmarks.streaming.engine import host

        return host(paths)

    setattr(vlmtui.bootstrap, "WorkerHost", hosted)  # noqa: B010 - mypy takes no other class there
    from vlmtui.cli import main as run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
