"""A session shows the same whether our frames or Textual's own driver write it, in two terminals."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from benchmarks.streaming.recording import Recording
from benchmarks.streaming.sessions import session_env
from tests.support.emulators import Cell, Pyte, Tmux, differences

SIZE = (80, 24)
_REST_S = 1.0
"""Nothing is written for so long once all of it is shown."""
_KEYS = ("\x15", "\x1b[5~", "\x1b[<65;20;8M", "\x1b[1;5F", "\x1b[A", "\x1b[A", "\x1b", "\x1bOP", "\x1b")
"""An empty composer, a page up, the wheel down, the end, the message cursor and back, the help and back."""
_FIGURES = " · TTFT "
"""Stands in the line whose figures differ from one session to the next."""

pytestmark = pytest.mark.process


def played(folder: Path, environment: dict[str, str]) -> list[bytes]:
    """Play a session; returns what it wrote until each of its stops, where all is at rest."""
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.streaming.app", "--model", "shapes", "--graphics", "halfcell"]
    env = {**session_env(folder, is_app=True), **environment}
    stops: list[bytes] = []
    with Recording(command, env, size=SIZE) as app:

        def ask(name: str, count: int, rate: int, *, then: str = "") -> None:
            question = f"say {count} {rate} {name}"
            app.type(question)
            app.wait_for(question)
            app.type("\r")
            if then:
                app.wait_for(f"⟨{name}")
                app.type(then)
            app.wait_for(f"{name}⟩")

        def at_rest() -> None:
            before = -1
            while before != app.written:
                before = app.written
                time.sleep(_REST_S)
            stops.append(b"".join(chunk.data for chunk in app.chunks))

        def press(keys: str) -> None:
            before = app.written
            app.type(keys)
            app.until(lambda: app.written > before, f"an effect of {keys!r}")

        app.wait_for("● shapes")
        at_rest()
        ask("one", 12, 0)
        at_rest()
        ask("two", 150, 150, then="draft")
        at_rest()
        for keys in _KEYS:
            press(keys)
            at_rest()
        ask("three", 500, 0)
        at_rest()
    return stops


def without_figures(cells: list[list[Cell]]) -> list[list[Cell]]:
    return [row if _FIGURES not in "".join(cell[0] for cell in row) else row[:1] * SIZE[0] for row in cells]


def test_our_frames_and_textuals_own_driver_show_the_same(tmp_path: Path) -> None:
    ours = played(tmp_path / "ours", {})
    plain = played(tmp_path / "plain", {"VLMTUI_OUTPUT": "plain"})
    assert len(plain[-1]) > 1.5 * len(ours[-1]), "both were written in the same way"
    for name in ("ours", "plain"):
        (tmp_path / name / "terminal").mkdir()
    with (
        Tmux(SIZE, tmp_path / "ours" / "terminal") as tmux_ours,
        Tmux(SIZE, tmp_path / "plain" / "terminal") as tmux_plain,
    ):
        for one, other in ((Pyte(SIZE), Pyte(SIZE)), (tmux_ours, tmux_plain)):
            fed = [0, 0]
            for number, stop in enumerate(zip(ours, plain, strict=True)):
                for at, terminal in enumerate((one, other)):
                    terminal.feed(stop[at][fed[at] :].decode(errors="replace"))
                    fed[at] = len(stop[at])
                found = differences(without_figures(one.cells()), without_figures(other.cells()))
                assert not found, f"stop {number}, {type(one).__name__}: {len(found)} cells, {found[:5]}"
