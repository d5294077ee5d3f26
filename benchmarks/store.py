"""The cost of a long conversation against a short one: opening the store with the last turns, and searching.

`python -m benchmarks.store [--rounds N]`. The stores are created first, then measured in turn. Prints medians in
milliseconds and their ratios. Reading the last turns must cost the same; opening reads the whole file once (the quick
check).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.records import milliseconds
from tests.unit.store.made import bulk
from vlmtui.store.records import ConversationId
from vlmtui.store.store import Store

SHORT, LONG = 20, 2_000
WINDOW_BUDGET = 1.5


def open_and_read(folder: Path, conversation: ConversationId) -> None:
    store = Store.open(folder)
    store.turns(conversation, limit=SHORT)
    store.close()


def measured(folder: Path, turns: int) -> dict[str, Callable[[], object]]:
    """Return the actions to measure, on a store with one conversation of this many turns."""
    made = Store.open(folder)
    conversation = bulk(made, turns, images=turns // 4)
    made.close()
    store = Store.open(folder)
    return {
        "open and read the last window": lambda: open_and_read(folder, conversation),
        "read the last window": lambda: store.turns(conversation, limit=SHORT),
        "search, a word of one turn": lambda: store.conversations(str(turns - 1)),
        "list by a word of every turn": lambda: store.conversations("words"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    ratios = {}
    with tempfile.TemporaryDirectory() as name:
        short, long = measured(Path(name) / "short", SHORT), measured(Path(name) / "long", LONG)
        for what in short:
            pairs = [(milliseconds(short[what]), milliseconds(long[what])) for _ in range(rounds + 1)][1:]
            few, many = (statistics.median(times) for times in zip(*pairs, strict=True))
            ratios[what] = many / few
            print(f"{what:30} {SHORT} turns {few:7.2f} ms, {LONG} turns {many:7.2f} ms, ratio {many / few:.2f}")
    window = ratios["read the last window"]
    print(f"ratio    {window:.2f} for the window (budget {WINDOW_BUDGET})")
    return 0 if window <= WINDOW_BUDGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
