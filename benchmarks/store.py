"""What a long conversation costs against a short one: opening the store with its last window, and searching. What the
checksums of rows cost: the same answer written with them and without.

`python -m benchmarks.store [--rounds N]`. The stores are made first; then they are measured in turn. Prints medians in
milliseconds and their ratios. The window alone must cost the same; opening reads the whole file once (the quick check).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.unit.store.made import COMPLETE, RECIPE, bulk
from vlmtui.domain.conversation import user_turn
from vlmtui.store.records import ConversationId
from vlmtui.store.store import Store

SHORT, LONG = 20, 2_000
WINDOW_BUDGET = 1.5
CHECKSUMS_BUDGET = 1.75
"""The row and the clock's row are written once more: a tenth each of what an append takes where the disk takes nothing;
the sums of both are as much again."""
APPENDS, APPENDED = 40, "some words of an answer, a second's worth of them or so; " * 6


def milliseconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1000


def open_and_read(folder: Path, conversation: ConversationId) -> None:
    store = Store.open(folder).store
    store.turns(conversation, limit=SHORT)
    store.close()


def measured(folder: Path, turns: int) -> dict[str, Callable[[], object]]:
    """The actions on a store with one conversation of that many turns."""
    made = Store.open(folder).store
    conversation = bulk(made, turns, images=turns // 4)
    made.close()
    store = Store.open(folder).store
    return {
        "open and read the last window": lambda: open_and_read(folder, conversation),
        "read the last window": lambda: store.turns(conversation, limit=SHORT),
        "search, a word of one turn": lambda: store.search(str(turns - 1)),
        "search, a word of every turn": lambda: store.search("words"),
        "list by a word of every turn": lambda: store.conversations("words"),
    }


def write_answer(store: Store) -> None:
    """A question, and its answer in appends, as a model writes it."""
    asked = store.add_turn(store.new_conversation(title="written"), None, user_turn(APPENDED))
    answer, text = store.begin_answer(asked, RECIPE), ""
    for number in range(APPENDS):
        text += APPENDED
        store.append_answer(answer, text, 80 * number)
    store.end_answer(answer, text, COMPLETE)


def without_checksums(store: Store) -> Store:
    for (name,) in store.database.rows("SELECT name FROM sqlite_temp_schema WHERE type = 'trigger'"):
        store.database.rows(f"DROP TRIGGER {name}")
    return store


def checksums_ratio(folder: Path, rounds: int) -> float:
    kept, bare = Store.open(folder / "kept").store, without_checksums(Store.open(folder / "bare").store)
    pairs = [
        (milliseconds(lambda: write_answer(bare)), milliseconds(lambda: write_answer(kept))) for _ in range(rounds)
    ]
    without, with_them = (statistics.median(times) for times in zip(*pairs[1:], strict=True))
    print(f"{f'write an answer in {APPENDS} appends':30} without checksums {without:7.2f} ms, with {with_them:7.2f} ms")
    return float(with_them / without)


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
        checksums = checksums_ratio(Path(name), rounds + 1)
    window = ratios["read the last window"]
    print(f"ratio    {window:.2f} for the window (budget {WINDOW_BUDGET})")
    print(f"ratio    {checksums:.2f} for the checksums (budget {CHECKSUMS_BUDGET})")
    return 0 if window <= WINDOW_BUDGET and checksums <= CHECKSUMS_BUDGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
