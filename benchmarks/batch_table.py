"""The table of a batch's results at 100,000 rows against 1,000, headless.

`python -m benchmarks.batch_table [--rounds N]`. Prints medians, in ms, and ratios: from opening the file to the rows on
the screen, showing only errors, all again, a search in all answers (typing it among it), one page down. All but the
last grow with the file, as all of it is read; they run in a thread, and the budget is 1.5 for the page, which is drawn
in the app's own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual.app import App
from textual.pilot import Pilot

from vlmtui.session.batch.result_table import ResultTable, TableLook
from vlmtui.session.batch.results import StoredResult
from vlmtui.ui.batch.result_rows import ResultRows
from vlmtui.ui.batch.screen import BatchScreen
from vlmtui.ui.terminal.themes import DARK, VARIABLES

FEW, MANY = 1_000, 100_000
PAGE_BUDGET = 1.5
_PAGES = 20


class Alone:
    """No batch is known of the file."""

    def read_state(self, output: Path) -> None:
        return None

    def pause_or_resume(self, output: Path) -> None: ...

    def ask_again(self, output: Path, result: StoredResult) -> None: ...

    def open_item(self, output: Path, result: StoredResult) -> None: ...

    def compare_item(self, output: Path, result: StoredResult, look: TableLook) -> None: ...


class Host(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.register_theme(DARK)
        self.theme = DARK.name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLES


def write(path: Path, count: int) -> None:
    """Write results; one in a hundred is an error."""
    error = {"kind": "bad_input", "message": "There is no such file.", "detail": "", "hint": ""}
    with path.open("w") as file:
        for number in range(count):
            failed = number % 100 == 0
            result = {
                "id": f"item-{number}",
                "line": number + 1,
                "key": "a-b-c-d-e",
                "question": "What is in this image?",
                "answer": "" if failed else f"A {'red' if number % 2 else 'blue'} circle, number {number}.",
                "usage": {"prompt_tokens": 70, "completion_tokens": 9, "image_tokens": 36},
                "timings": {"ttft_s": 0.1, "total_s": 0.4},
                "error": error if failed else None,
            }
            file.write(json.dumps(result) + "\n")


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    while not holds():
        await pilot.pause(0)


def _has(table: ResultTable, count: int) -> bool:
    return len(table) == count


async def measure(path: Path, count: int) -> dict[str, float]:
    """Return milliseconds."""
    app = Host()
    seconds: dict[str, float] = {}
    async with app.run_test(size=(120, 40)) as pilot:
        started = time.monotonic()
        table = ResultTable(path)
        screen = BatchScreen(table, Alone(), look_again=3600, show_inspector=lambda report: None)
        await app.push_screen(screen)
        rows = screen.query_one(ResultRows)
        await until(pilot, lambda: rows.virtual_size.height == count)
        seconds["open"] = time.monotonic() - started
        started = time.monotonic()
        for _ in range(_PAGES):
            await pilot.press("pagedown")
        seconds["page"] = (time.monotonic() - started) / _PAGES
        for name, keys, found in (("errors", ("tab",), count // 100), ("all", ("tab", "tab"), count)):
            started = time.monotonic()
            await pilot.press(*keys)
            await until(pilot, partial(_has, table, found))
            seconds[name] = time.monotonic() - started
        started = time.monotonic()
        await pilot.press("slash", *"number 77", "enter")
        await until(pilot, lambda: 0 < len(table) < count // 10)
        seconds["search"] = time.monotonic() - started
    return {name: 1000 * value for name, value in seconds.items()}


async def compare(rounds: int) -> bool:
    """Print the table; return whether it is within its budget."""
    found: dict[int, list[dict[str, float]]] = {FEW: [], MANY: []}
    with tempfile.TemporaryDirectory() as folder:
        for count in found:
            write(Path(folder) / f"{count}.jsonl", count)
        for _ in range(rounds):
            for count, results in found.items():
                results.append(await measure(Path(folder) / f"{count}.jsonl", count))
    ratios = {}
    for name in found[FEW][0]:
        few, many = (statistics.median(one[name] for one in found[count]) for count in (FEW, MANY))
        ratios[name] = many / few
        print(f"{name:<8} {few:8.1f} ms for {FEW:,} rows, {many:8.1f} ms for {MANY:,}: × {ratios[name]:.2f}")
    return ratios["page"] <= PAGE_BUDGET


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    return 0 if asyncio.run(compare(parser.parse_args().rounds)) else 1


if __name__ == "__main__":
    sys.exit(main())
