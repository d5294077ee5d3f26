"""Huge and odd answers: in the end the terminal shows what Textual draws, memory is limited, and keys work while the
answers arrive. `-s` prints the figures."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from wcwidth import wcwidth

from benchmarks.streaming.recording import Link
from tests.support.emulators import Pyte
from tests.support.streaming_app import SIZE, plain_cells, streaming, text_of

ECHO_MAX_S = 15.0
"""The longest that a key may wait for its letter on a busy machine."""
MEMORY_MAX = 400_000_000
WITHIN_S = 400.0
KEYS = "vqxkzjvq"
WORD = re.compile("[A-Za-z]{2,}")

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.mark.parametrize(
    ("kind", "size"),
    [("line", 2_000_000), ("words", 100_000), ("table", 500), ("code", 20_000), ("scripts", 2_000)],
)
def test_an_answer_that_no_layout_is_made_for(tmp_path: Path, kind: str, size: int) -> None:
    with streaming(tmp_path) as app:
        memory, cpu_s, asked = app.recording.memory, app.recording.cpu_s, time.monotonic()
        name = app.give(kind, size)
        waited = app.echoes(KEYS, every_s=0.3)
        app.recording.until(lambda: app.answered(1), "the answer", timeout_s=WITHIN_S)
        answered = time.monotonic() - asked
        app.recording.wait_for(f"{name}⟩", timeout_s=WITHIN_S)
        written, screen = app.at_rest(WITHIN_S)
        taken = app.recording.memory - memory
        print(
            f"\n{kind} {size:,}: answered after {answered:.1f} s, at rest after {time.monotonic() - asked:.1f} s, "
            f"{app.recording.cpu_s - cpu_s:.1f} s of processor time, {taken / 1e6:.0f} MB more, {len(written):,} "
            f"characters written, longest wait for a key {max(waited) * 1000:.0f} ms"
        )
    terminals = [Pyte(SIZE)]
    if kind == "scripts":
        terminals += [Pyte(SIZE, width_of=of_one_cell), Pyte(SIZE, width_of=of_two_cells)]
    for terminal in terminals:
        terminal.feed(written)
        shown = terminal.cells()
        wanted = plain_cells(screen)
        if kind != "scripts":
            assert not [(place, char) for place, char in wanted.items() if shown[place[1]][place[0]][0] != char]
        else:  # where a sign takes more cells than Textual counts, what follows is shifted, and complete
            for y, row in enumerate(shown):
                cells = {x: char for (x, at), char in wanted.items() if at == y}
                plain = "".join(cells.get(x, " ") for x in range(SIZE[0]))
                assert WORD.findall("".join(cell[0] for cell in row)) == WORD.findall(plain), y
        assert {f"{name}⟩", KEYS} <= set(text_of(shown).split())
    if kind != "scripts":  # pyte and Textual count the cells of joined emoji in different ways
        drawn = Pyte(SIZE)
        drawn.feed(f"\x1b[?7l\x1b[m\x1b[H\x1b[2J{screen}")
        assert terminals[0].cells() == drawn.cells()
    assert max(waited) < ECHO_MAX_S, waited
    assert taken < MEMORY_MAX


def test_nothing_is_lost_and_keys_work_over_a_slow_line(tmp_path: Path) -> None:
    """The line has 10 kB/s, and a round trip of 200 ms."""
    with streaming(tmp_path, link=Link(10_000, 0.1)) as app:
        name = app.give("code", 2_000)
        waited = app.echoes(KEYS, every_s=0.5)
        app.recording.until(lambda: app.answered(1), "the answer", timeout_s=WITHIN_S)
        app.recording.wait_for(f"{name}⟩", timeout_s=WITHIN_S)
        shown, drawn = app.last_drawn(columns=SIZE[0], rows=SIZE[1], within_s=WITHIN_S)
        print(f"\nlongest wait for a key {max(waited) * 1000:.0f} ms")
    assert shown == drawn
    assert max(waited) < ECHO_MAX_S, waited


def of_one_cell(char: str) -> int:
    """Return a character's cells in a terminal that draws an emoji in one cell."""
    return min(1, wcwidth(char)) if ord(char) > 0xFFFF else wcwidth(char)


def of_two_cells(char: str) -> int:
    """Return a character's cells in a terminal that takes two for each part of a joined emoji."""
    return 2 if ord(char) > 0xFFFF else wcwidth(char)
