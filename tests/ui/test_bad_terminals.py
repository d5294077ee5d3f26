"""Terminals that are resized all the time, take nothing for a while, or are not of the size that they tell: at the end
they show what Textual draws, memory is bounded, and keys are heeded."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.streaming import sessions
from benchmarks.streaming.engine import read_notes
from benchmarks.streaming.moments import read_moments
from benchmarks.streaming.recording import Recording
from tests.support.emulators import Cell, Pyte

SIZE = (120, 40)
MEMORY_MAX = 60_000_000
"""Bytes that an answer of some thousand tokens may take, however the terminal behaves."""
STALL_S = 6.0

pytestmark = pytest.mark.process


class Streaming:
    """The app while it is asked for answers."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        self.recording = recording
        self.folder = folder
        self._answers = itertools.count(1)

    def ask(self, count: int, rate: int) -> None:
        question = f"say {count} {rate} n{next(self._answers)}z"
        self.recording.type(question)
        self.recording.wait_for(question)
        self.recording.type("\r")

    def answered(self, count: int) -> bool:
        return len(read_notes(self.folder / "app.notes")) >= count

    def last_drawn(self, *, columns: int, rows: int) -> tuple[list[list[Cell]], list[list[Cell]]]:
        """Return what a terminal of this size shows of everything that was written, and of what Textual draws, once
        both have come to rest."""
        deadline = time.monotonic() + 60
        at_rest = -1
        while at_rest != self.recording.written or not read_moments(self.folder / "moments"):
            assert time.monotonic() < deadline, "it never comes to rest"
            at_rest = self.recording.written
            time.sleep(1.5)
        shown, drawn = Pyte((columns, rows)), Pyte((columns, rows))
        shown.feed(b"".join(chunk.data for chunk in self.recording.chunks).decode())
        drawn.feed(f"\x1b[?7l\x1b[m\x1b[H\x1b[2J{read_moments(self.folder / 'moments')[-1].screen}")
        return shown.cells(), drawn.cells()


@contextmanager
def streaming(folder: Path, size: tuple[int, int] = SIZE) -> Iterator[Streaming]:
    command = [sys.executable, "-m", "benchmarks.streaming.moments_app", str(folder / "moments"), "1"]
    env = sessions.session_env(folder, is_app=True)
    options = ["--model", "shapes", "--graphics", "halfcell"]
    with Recording([*command, *options], env, size=size) as recording:
        recording.wait_for("● shapes", timeout_s=120)
        time.sleep(1.0)
        yield Streaming(recording, folder)


def test_a_terminal_that_is_resized_fifty_times_a_second(tmp_path: Path) -> None:
    with streaming(tmp_path) as app:
        memory = app.recording.memory
        app.ask(500, 100)
        for number in range(200):
            app.recording.resize(100 + number * 7 % 40, 30 + number * 5 % 20)
            time.sleep(0.02)
        app.recording.resize(*SIZE)
        app.recording.until(lambda: app.answered(1), "the answer", timeout_s=90)
        app.recording.type("vqxk")
        shown, drawn = app.last_drawn(columns=SIZE[0], rows=SIZE[1])
        assert shown == drawn
        assert "vqxk" in text_of(shown), "keys are heeded"
        assert "n1z⟩" in text_of(shown)
        assert app.recording.memory - memory < MEMORY_MAX


def test_a_terminal_that_takes_nothing_for_a_while(tmp_path: Path) -> None:
    with streaming(tmp_path) as app:
        memory = app.recording.memory
        app.ask(4000, 1000)
        time.sleep(0.5)
        app.recording.stop_reading()
        time.sleep(STALL_S)
        app.recording.type("vqxk")
        app.recording.until(lambda: app.answered(1), "the answer", timeout_s=90)
        assert app.recording.memory - memory < MEMORY_MAX
        before = app.recording.written
        app.recording.read_again()
        shown, drawn = app.last_drawn(columns=SIZE[0], rows=SIZE[1])
        assert shown == drawn
        assert "n1z⟩" in text_of(shown)
        assert "vqxk" in text_of(shown), "keys were heeded meanwhile"
        assert app.recording.written - before < 400_000, "frames were left out"


@pytest.mark.parametrize("size", [(150, 50), (100, 40)])
def test_a_terminal_that_is_not_of_the_size_it_tells(tmp_path: Path, size: tuple[int, int]) -> None:
    """What fits on both screens is right; in the last column of a narrower one stands what came last."""
    columns, rows = (min(one, other) for one, other in zip(size, SIZE, strict=True))
    with streaming(tmp_path) as app:
        app.ask(300, 100)
        app.recording.until(lambda: app.answered(1), "the answer", timeout_s=90)
        shown, drawn = app.last_drawn(columns=size[0], rows=size[1])
        assert [row[: columns - 1] for row in shown[:rows]] == [row[: columns - 1] for row in drawn[:rows]]


def text_of(cells: list[list[Cell]]) -> str:
    return "\n".join("".join(cell[0] for cell in row) for row in cells)
