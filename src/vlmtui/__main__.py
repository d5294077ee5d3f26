"""The program `vlmtui`; `python -m vlmtui` is the same."""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

from vlmtui.cli import main


def run() -> NoReturn:
    # Modules stay: searching for cycles while they are imported would take a tenth of the start.
    gc.disable()
    sys.exit(main())


if __name__ == "__main__":
    run()
