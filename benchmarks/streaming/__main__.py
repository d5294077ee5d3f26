"""The cost of streaming answers: the app against a bare Textual chat, in turn, in one run.

`python -m benchmarks.streaming [--rounds N] [--quick] [--begin]`: 11 minutes. Both run in pseudo-terminals of 120×40,
with the stand-in engine in a real worker; each of N rounds (5) plays one session of each. Prints both medians, the
median ratio of the rounds and the budgets; exit code 1: a budget is exceeded. Then single sessions: compare, fan-out,
idle time, a screen of 200×60, a connection of 10 kB/s and 200 ms, memory. `--quick`: one round at 120×40, without slow
connection and memory (two minutes). `--begin`: only from Enter to the first token (two minutes). CPU is the program's
own processor time, without the worker's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.first_paint import app_command, paint_ms
from benchmarks.streaming import sessions
from benchmarks.streaming.sessions import Figures, session_env


class Budget(NamedTuple):
    """The maximum of a figure: absolute, as a ratio to the bare chat's figure in the same run, or both."""

    value: float | None = None
    ratio: float | None = None

    def __str__(self) -> str:
        limits = [f"{self.value:g}"] if self.value is not None else []
        limits += [f"{self.ratio:g} x"] if self.ratio is not None else []
        return "<= " + ", ".join(limits)


BUDGETS = {
    "first paint, ms": Budget(ratio=1.3),
    "CPU s per 1,000 at 100 tok/s": Budget(ratio=0.4),
    "bytes a token at 100 tok/s": Budget(150),
    "key echo streaming p95, ms": Budget(50, 0.3),
    "Enter to the engine, ms": Budget(ratio=1.0),
    "last token of 3,000, ms": Budget(300, 0.25),
    "idle bytes a second": Budget(0),
    "memory with 200 turns, 50 images": Budget(1.5),
}
"""Limits that a person notices."""
_PAINTS = 5
_ROUNDS = 5


class Line(NamedTuple):
    """A row of the table."""

    name: str
    bare: float | None
    app: float
    ratio: float | None

    @property
    def is_within(self) -> bool:
        budget = BUDGETS.get(self.name, Budget())
        is_good = budget.value is None or round(self.app, 3) <= budget.value
        return is_good and (budget.ratio is None or (self.ratio is not None and round(self.ratio, 3) <= budget.ratio))

    def __str__(self) -> str:
        budget = BUDGETS.get(self.name)
        bare = "" if self.bare is None else f"{self.bare:,.4g}"
        ratio = "" if self.ratio is None else f"{self.ratio:.3f} x"
        told = "" if budget is None else str(budget)
        verdict = "" if budget is None else "ok" if self.is_within else "OVER"
        return f"| {self.name:42} | {bare:>8} | {self.app:>8,.4g} | {ratio:>8} | {told:>13} | {verdict:4} |"


def compared(pairs: Sequence[tuple[Figures, Figures]]) -> list[Line]:
    """Return rows of figures of the bare chat and the app, measured in turn."""
    lines = []
    for name in pairs[0][0]:
        bare, app = ([pair[side][name] for pair in pairs] for side in (0, 1))
        ratio = statistics.median(ours / max(theirs, 1e-9) for theirs, ours in zip(bare, app, strict=True))
        lines.append(Line(name, statistics.median(bare), statistics.median(app), ratio))
    return lines


def alone(figures: Figures) -> list[Line]:
    return [Line(name, None, value, None) for name, value in figures.items()]


def first_paint(folder: Path, rounds: int) -> list[Line]:
    """Return the time of the program's first paint, without a model, as in `benchmarks.first_paint`."""
    ours, bare = app_command(), sessions.command(folder, is_app=False)[:3]
    env = session_env(folder, is_app=True)
    pairs = [
        (
            {"first paint, ms": paint_ms(bare, "bare chat", env)},
            {"first paint, ms": paint_ms(ours, "No model", env)},
        )
        for _ in range(rounds + 1)
    ]
    return compared(pairs[1:])


def both(measure: Callable[..., Figures], folder: Path, rounds: int) -> list[Line]:
    """Return rows of both, measured in turn. Reuses the data of earlier rounds, so that daily tasks are done
    already."""
    return compared([(measure(folder, is_app=False), measure(folder, is_app=True)) for _ in range(rounds)])


def show(lines: Sequence[Line]) -> list[Line]:
    for line in lines:
        print(line, flush=True)
    return list(lines)


def verdict(lines: Sequence[Line]) -> int:
    """Print the figures outside their budgets; return the exit code."""
    over = [line.name for line in lines if not line.is_within]
    print(f"outside the budget: {', '.join(over)}" if over else "all within the budgets")
    return 1 if over else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="5; with --quick 1")
    parser.add_argument("--quick", action="store_true", help="120×40 alone, without slow link and memory")
    parser.add_argument("--begin", action="store_true", help="only from Enter to the first token on the screen")
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else _ROUNDS)
    print(f"| {'':42} | {'bare':>8} | {'vlmtui':>8} | {'ratio':>8} | {'budget':>13} |      |")
    print(f"| {'-' * 42} | {'-' * 8} | {'-' * 8} | {'-' * 8} | {'-' * 13} | ---- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.begin:
            return verdict(show(both(sessions.begin, folder / "begin", rounds)))
        found = show(first_paint(folder / "paint", 1 if options.quick else _PAINTS))
        found += show(both(sessions.chat, folder / "chat", rounds))
        found += show(alone(sessions.lanes(folder / "lanes")))
        if not options.quick:
            found += show(both(sessions.large, folder / "large", 1))
            found += show(both(sessions.slow_link, folder / "link", 1))
            found += show(alone(sessions.memory(folder / "memory")))
    return verdict(found)


if __name__ == "__main__":
    raise SystemExit(main())
