"""The real app with the worker of `benchmarks.streaming.engine`: `python -m … [options of vlmtui]`."""

from __future__ import annotations

from typing import NoReturn

import vlmtui.bootstrap
from vlmtui.engine.local.host import WorkerHost
from vlmtui.paths import Paths


def main() -> NoReturn:
    def hosted(paths: Paths) -> WorkerHost:
        from benchmarks.streaming.engine import host

        return host(paths)

    setattr(vlmtui.bootstrap, "WorkerHost", hosted)  # noqa: B010 - mypy takes no other class there
    from vlmtui.__main__ import run

    run()


if __name__ == "__main__":
    main()
