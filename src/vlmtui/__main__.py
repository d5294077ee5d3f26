"""The program `vlmtui`; `python -m vlmtui` is the same."""

from __future__ import annotations

from vlmtui.start_code import StartCode

TYPE_CHECKING = False  # what `typing` has is not imported yet
if TYPE_CHECKING:
    from typing import NoReturn


def run() -> NoReturn:
    """Run the command line and end the process.

    Everything is closed by then; without taking the interpreter apart, which takes longer than all the rest of
    quitting, the shell has its prompt back at once. A thread that still works is waited for as usual."""
    StartCode.of_app().begin()
    import atexit
    import os
    import sys
    import threading
    from contextlib import suppress

    from vlmtui.cli import main

    status = main()
    if threading.active_count() > 1 and any(
        thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()
    ):
        sys.exit(status)
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
