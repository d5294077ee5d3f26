"""Time from the command to a painted first screen, against a bare Textual chat screen.

`python -m benchmarks.first_paint [--rounds N]`. Both run in the same kind of pseudo-terminal, in turn; the first of
each is thrown away (cold files). Prints medians in milliseconds, of the time on the clock and of the processor's (user
and system; less noisy on a busy machine), and the median of the ratios of each pair: two runs that follow each other
find the machine alike, which over a series changes its pace. The budget is 1.3.
"""

from __future__ import annotations

import argparse
import operator
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.terminal import Terminal

BUDGET = 1.3


def paint_ms(command: Sequence[str], needle: str, env: dict[str, str]) -> tuple[float, float]:
    """Milliseconds from the start of `command` until its screen shows `needle`: on the clock, and of the processor."""
    with Terminal(command, env=env) as terminal:
        terminal.wait_for(needle, timeout=60)
        return (terminal.read_at - terminal.started) * 1000, time.clock_gettime(_processor_clock(terminal.pid)) * 1000


def _processor_clock(pid: int) -> int:
    """The clock of the time that another process has had, as `clock_getcpuclockid` of glibc makes it."""
    return ~pid << 3 | 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        env = {"HOME": folder, "PATH": os.environ["PATH"], "VLMTUI_DATA_DIR": str(Path(folder) / "data")}
        bare = [sys.executable, "-m", "benchmarks.bare_chat"]
        ours = [str(Path(sys.executable).parent / "vlmtui")]
        times: dict[str, list[tuple[float, float]]] = {"bare": [], "vlmtui": []}
        for _ in range(rounds + 1):
            times["bare"].append(paint_ms(bare, "bare chat", env))
            times["vlmtui"].append(paint_ms(ours, "Shapes", env))
    ratios: list[float] = []
    for number, clock in enumerate(("clock", "processor")):
        values = {name: [pair[number] for pair in pairs[1:]] for name, pairs in times.items()}
        medians = {name: statistics.median(of_one) for name, of_one in values.items()}
        for name, of_one in values.items():
            spread = f"{min(of_one):.0f}-{max(of_one):.0f}"
            print(f"{name:8} first paint {medians[name]:6.0f} ms of the {clock} (median of {rounds}; {spread})")
        ratios.append(statistics.median(map(operator.truediv, values["vlmtui"], values["bare"])))
        print(f"ratio    {ratios[-1]:.2f} (budget {BUDGET})")
    return 0 if ratios[0] <= BUDGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
