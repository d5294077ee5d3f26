"""Time from the command to the first painted screen, against a bare Textual chat; and the time of `vlmtui --help`.

`python -m benchmarks.first_paint [--rounds N]`. Both run in pseudo-terminals, in turn; the first run of each is
discarded (cold files). Prints medians in milliseconds, and the median of the ratios of the pairs. The budgets are 1.3 ×
and 250 ms.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.terminal import Terminal

PAINT_BUDGET, HELP_BUDGET_MS = 1.3, 250.0


def paint_ms(command: Sequence[str], needle: str, env: dict[str, str]) -> float:
    """Return the milliseconds from the start of `command` until its screen shows `needle`."""
    with Terminal(command, env=env) as terminal:
        terminal.wait_for(needle, timeout=60)
        return (terminal.read_at - terminal.started) * 1000


def app_command() -> list[str]:
    """Return the command that starts the app."""
    return [str(Path(sys.executable).parent / "vlmtui")]


def help_ms(env: dict[str, str]) -> float:
    """Return the milliseconds that `vlmtui --help` takes."""
    started = time.monotonic()
    subprocess.run([*app_command(), "--help"], env=env, stdout=subprocess.DEVNULL, check=True)
    return (time.monotonic() - started) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds + 1
    with tempfile.TemporaryDirectory() as folder:
        env = {"HOME": folder, "PATH": os.environ["PATH"], "VLMTUI_DATA_DIR": str(Path(folder) / "data")}
        bare = [sys.executable, "-m", "benchmarks.bare_chat"]
        pairs = [(paint_ms(bare, "bare chat", env), paint_ms(app_command(), "No model", env)) for _ in range(rounds)]
        pairs = pairs[1:]
        helps = [help_ms(env) for _ in range(rounds)][1:]
    for name, times in (("bare", [one for one, _ in pairs]), ("vlmtui", [one for _, one in pairs]), ("--help", helps)):
        print(
            f"{name:8} {statistics.median(times):6.0f} ms (median of {len(times)}; {min(times):.0f}-{max(times):.0f})"
        )
    ratio, help_median = statistics.median(ours / other for other, ours in pairs), statistics.median(helps)
    print(f"first paint {ratio:.2f} × (budget {PAINT_BUDGET}), --help budget {HELP_BUDGET_MS:.0f} ms")
    return 0 if ratio <= PAINT_BUDGET and help_median <= HELP_BUDGET_MS else 1


if __name__ == "__main__":
    raise SystemExit(main())
