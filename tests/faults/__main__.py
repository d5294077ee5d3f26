"""`python -m tests.faults`: random histories of the store over a failing disk. Exits 1 when anything was lost, or
damage was not noticed."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.faults.campaign import run_history, table
from tests.faults.vfs import is_supported

_MEMORY = Path("/dev/shm")
_CHUNK = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--histories", type=int, default=5_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first history")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if not is_supported():
        print("Python's sqlite3 has its SQLite built in here: there is no way below it.")
        return 2
    scratch = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    play = partial(run_history, seed=options.seed, scratch=scratch)
    started = time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        results = list(pool.map(play, range(options.first, options.first + options.histories), chunksize=_CHUNK))
    for one in results:
        for what in one.lost:
            print(f"history {one.number} ({one.fault}): {what}")
        if one.is_changed and not one.is_noticed:
            print(f"history {one.number} ({one.fault}): damage was not noticed")
    print(table(results, time.monotonic() - started))
    return 1 if any(one.lost or (one.is_changed and not one.is_noticed) for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
