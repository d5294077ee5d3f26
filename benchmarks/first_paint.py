"""Time from the command to a painted first screen, against a bare Textual chat screen.

`python -m benchmarks.first_paint [--rounds N]`. Both run in the same kind of pseudo-terminal, in turn; the first of
each is thrown away (cold files). Prints medians in milliseconds and their ratio; the budget is 1.3.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.terminal import Terminal

BUDGET = 1.3


def paint_ms(command: Sequence[str], needle: str, env: dict[str, str]) -> float:
    """Milliseconds from the start of `command` until its screen shows `needle`."""
    with Terminal(command, env=env) as terminal:
        terminal.wait_for(needle, timeout=60)
        return (time.monotonic() - terminal.started) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        env = {"HOME": folder, "PATH": os.environ["PATH"], "VLMTUI_DATA_DIR": str(Path(folder) / "data")}
        bare = [sys.executable, "-m", "benchmarks.bare_chat"]
        ours = [str(Path(sys.executable).parent / "vlmtui")]
        times: dict[str, list[float]] = {"bare": [], "vlmtui": []}
        for _ in range(rounds + 1):
            times["bare"].append(paint_ms(bare, "bare chat", env))
            times["vlmtui"].append(paint_ms(ours, "Shapes", env))
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    spread = {name: f"{min(values[1:]):.0f}-{max(values[1:]):.0f}" for name, values in times.items()}
    ratio = medians["vlmtui"] / medians["bare"]
    for name, value in medians.items():
        print(f"{name:8} first paint {value:6.0f} ms (median of {rounds}; {spread[name]})")
    print(f"ratio    {ratio:.2f} (budget {BUDGET})")
    return 0 if ratio <= BUDGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
