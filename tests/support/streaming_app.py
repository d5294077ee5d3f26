"""Runs the app with a stand-in engine in a pseudo-terminal, and compares the result with Textual's own rendering."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.cells import split_graphemes

from benchmarks.streaming import sessions
from benchmarks.streaming.engine import read_notes
from benchmarks.streaming.moments import read_moments
from benchmarks.streaming.recording import Link, Recording
from tests.support.emulators import Cell, Pyte

SIZE = (120, 40)
_SEQUENCE = re.compile(r"(\x1b\[[0-9;?]*[A-Za-z]|\x1b\].*?\x1b\\\\)")
_MOVE = re.compile(r"\x1b\[([0-9]+);([0-9]+)H")
_PLAIN = re.compile("[\x20-\x7e─-╿]")


class Streaming:
    """The running app, and methods that request answers."""

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

    def give(self, kind: str, size: int) -> str:
        """Request an answer of `benchmarks.streaming.bad_answers`; return its name."""
        name = f"n{next(self._answers)}z"
        question = f"give {kind} {size} {name}"
        self.recording.type(question)
        self.recording.wait_for(question)
        self.recording.type("\r")
        return name

    def echoes(self, keys: str, *, every_s: float) -> list[float]:
        """Type letters one by one; return the seconds until each was on the screen."""
        waited = []
        for number, key in enumerate(keys, 1):
            typed = self.recording.type(key)
            waited.append(self.recording.wait_for(keys[:number], timeout_s=90) - typed)
            time.sleep(every_s)
        return waited

    def last_drawn(
        self, *, columns: int, rows: int, within_s: float = 60.0
    ) -> tuple[list[list[Cell]], list[list[Cell]]]:
        """Wait until nothing changes any more. Return the screen after the app's output, and after Textual's rendering,
        in a terminal of this size."""
        written, screen = self.at_rest(within_s)
        shown, drawn = Pyte((columns, rows)), Pyte((columns, rows))
        shown.feed(written)
        drawn.feed(f"\x1b[?7l\x1b[m\x1b[H\x1b[2J{screen}")
        return shown.cells(), drawn.cells()

    def at_rest(self, within_s: float = 60.0) -> tuple[str, str]:
        """Wait until nothing changes any more. Return the app's whole output, and Textual's rendering of the whole
        screen."""
        deadline, before = time.monotonic() + within_s, -1
        while before != self.recording.written or not read_moments(self.folder / "moments"):
            assert time.monotonic() < deadline, "it never comes to rest"
            before = self.recording.written
            time.sleep(1.5)
        written = b"".join(chunk.data for chunk in self.recording.chunks).decode()
        return written, read_moments(self.folder / "moments")[-1].screen


@contextmanager
def streaming(folder: Path, size: tuple[int, int] = SIZE, link: Link | None = None) -> Iterator[Streaming]:
    command = [sys.executable, "-m", "benchmarks.streaming.moments_app", str(folder / "moments"), "1"]
    env = sessions.session_env(folder, is_app=True)
    options = ["--model", "shapes", "--graphics", "halfcell"]
    with Recording([*command, *options], env, size=size, link=link) as recording:
        recording.wait_for("● shapes", timeout_s=120)
        time.sleep(1.0)
        yield Streaming(recording, folder)


def plain_cells(screen: str) -> dict[tuple[int, int], str]:
    """Return the cells of Textual's rendering, by its own count of columns. Only for characters that take one cell in
    every terminal."""
    found: dict[tuple[int, int], str] = {}
    x = y = 0
    for piece in _SEQUENCE.split(screen):
        if moved := _MOVE.fullmatch(piece):
            x, y = int(moved[2]) - 1, int(moved[1]) - 1
        elif not piece.startswith("\x1b"):
            text = piece.replace("\n", "")
            for begin, end, width in split_graphemes(text)[0]:
                if _PLAIN.fullmatch(text[begin:end]):
                    found[x, y] = text[begin:end]
                x += width
    return found


def text_of(cells: list[list[Cell]]) -> str:
    return "\n".join("".join(cell[0] for cell in row) for row in cells)
