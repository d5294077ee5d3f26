"""Time to load all family records, against parsing the same files as plain TOML.

`python -m benchmarks.records [--rounds N]`. Prints medians in milliseconds and their ratio; the budgets are 1.5 and 60
ms.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from importlib import resources

import tomli

from vlmtui.registry import loader
from vlmtui.registry.loader import Registry

RATIO, MILLISECONDS = 1.5, 60.0


def bare() -> None:
    """Parse every file as TOML only."""
    for file in (resources.files("vlmtui.registry") / "families").iterdir():
        tomli.loads(file.read_text(encoding="utf-8"))


def parsed() -> None:
    """Load the records as the app does."""
    loader.bundled_tables.cache_clear()
    Registry.bundled()


def milliseconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    times = [(milliseconds(bare), milliseconds(parsed)) for _ in range(rounds)]
    toml, records = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"bare TOML {toml:6.1f} ms, {len(Registry.bundled())} records {records:6.1f} ms (medians of {rounds})")
    print(f"ratio    {records / toml:.2f} (budget {RATIO}, and {MILLISECONDS:.0f} ms)")
    return 0 if records / toml <= RATIO and records <= MILLISECONDS else 1


if __name__ == "__main__":
    raise SystemExit(main())
