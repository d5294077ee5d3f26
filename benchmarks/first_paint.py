"""Time from the command to a painted first screen, against a bare Textual chat screen.

`python -m benchmarks.first_paint [--rounds N]`. Both run in the same kind of pseudo-terminal, in turn; the first of
each is thrown away (cold files). Prints medians in milliseconds, of the time on the clock and of the processor's (user
and system; less noisy on a busy machine), and the median of the ratios of each pair: two runs that follow each other
find the machine alike, which over a series changes its pace. The budget is 1.3.

`--against FOLDER` compares this checkout with another one instead (with the packages of this one's environment): first
paint and `--help`, in turn; the budget is 1.05.
"""

from __future__ import annotations

import argparse
import operator
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.terminal import Terminal

BUDGET, BUDGET_AGAINST = 1.3, 1.05
_WARM_S = 2.0
ROOT = Path(__file__).resolve().parent.parent


def paint_ms(command: Sequence[str], needle: str, env: dict[str, str]) -> tuple[float, float]:
    """Milliseconds from the start of `command` until its screen shows `needle`: on the clock, and of the processor."""
    with Terminal(command, env=env) as terminal:
        terminal.wait_for(needle, timeout=60)
        return (terminal.read_at - terminal.started) * 1000, time.clock_gettime(_processor_clock(terminal.pid)) * 1000


def app_command() -> list[str]:
    """The app as people start it."""
    return [str(Path(sys.executable).parent / "vlmtui")]


def warm_up(command: Sequence[str], env: dict[str, str]) -> None:
    """Start the app once for long enough that it caches what the next starts read: compiled modules, records."""
    with Terminal(command, env=env) as terminal:
        terminal.wait_for("Shapes", timeout=60)
        time.sleep(_WARM_S)
        terminal.type("\x11")
        terminal.wait_for_end(timeout=60)


def _processor_clock(pid: int) -> int:
    """The clock of the time that another process has had, as `clock_getcpuclockid` of glibc makes it."""
    return ~pid << 3 | 2


def help_ms(command: Sequence[str], env: dict[str, str]) -> tuple[float, float]:
    """Milliseconds that a command that prints and ends takes: on the clock, and of the processor."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (ended - started) * 1000, used * 1000


def report(what: str, times: dict[str, list[tuple[float, float]]], budget: float) -> float:
    """Print medians and ratios of the second to the first, without the first round; the ratio by the clock."""
    (first, _), (second, _) = times.items()
    ratios: list[float] = []
    for number, clock in enumerate(("clock", "processor")):
        values = {name: [pair[number] for pair in pairs[1:]] for name, pairs in times.items()}
        for name, of_one in values.items():
            spread = f"{min(of_one):.0f}-{max(of_one):.0f}"
            median = statistics.median(of_one)
            print(f"{name:8} {what} {median:6.0f} ms of the {clock} (median of {len(of_one)}; {spread})")
        ratios.append(statistics.median(map(operator.truediv, values[second], values[first])))
        print(f"ratio    {ratios[-1]:.2f} (budget {budget})")
    return ratios[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout")
    options = parser.parse_args()
    ours = app_command()
    with tempfile.TemporaryDirectory() as folder:
        env = {"HOME": folder, "PATH": os.environ["PATH"], "VLMTUI_DATA_DIR": str(Path(folder) / "data")}
        if options.against is None:
            bare = [sys.executable, "-m", "benchmarks.bare_chat"]
            times: dict[str, list[tuple[float, float]]] = {"bare": [], "vlmtui": []}
            warm_up(ours, env)
            for _ in range(options.rounds + 1):
                times["bare"].append(paint_ms(bare, "bare chat", env))
                times["vlmtui"].append(paint_ms(ours, "Shapes", env))
            return 0 if report("first paint", times, BUDGET) <= BUDGET else 1
        sources = {"other": options.against.resolve() / "src", "this": ROOT / "src"}
        paints: dict[str, list[tuple[float, float]]] = {name: [] for name in sources}
        helps: dict[str, list[tuple[float, float]]] = {name: [] for name in sources}
        own = {
            name: {**env, "PYTHONPATH": str(source), "VLMTUI_DATA_DIR": str(Path(folder) / name)}
            for name, source in sources.items()
        }
        for each in own.values():
            warm_up(ours, each)
        for _ in range(options.rounds + 1):
            for name, each in own.items():
                paints[name].append(paint_ms(ours, "Shapes", each))
                helps[name].append(help_ms([*ours, "--help"], each))
    found = [report("first paint", paints, BUDGET_AGAINST), report("--help", helps, BUDGET_AGAINST)]
    return 0 if max(found) <= BUDGET_AGAINST else 1


if __name__ == "__main__":
    raise SystemExit(main())
