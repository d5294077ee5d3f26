"""The program `vlmtui`; `python -m vlmtui` is the same."""

from __future__ import annotations

import sys
from typing import NoReturn

from vlmtui.cli import main


def run() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    sys.exit(main())


if __name__ == "__main__":
    run()
