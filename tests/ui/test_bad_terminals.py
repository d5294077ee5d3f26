"""Terminals that are resized all the time, stop reading for a while, or report a wrong size: in the end they show what
Textual draws, memory is limited, and keys work."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.streaming_app import SIZE, streaming, text_of

MEMORY_MAX = 60_000_000
"""Most bytes for an answer of several thousand tokens."""

pytestmark = pytest.mark.process


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
        taken = app.recording.memory - memory
        print(f"\n200 sizes: {taken / 1e6:.0f} MB more")
        assert taken < MEMORY_MAX


@pytest.mark.parametrize("stall_s", [6.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_a_terminal_that_does_not_read_for_a_while(tmp_path: Path, stall_s: float) -> None:
    with streaming(tmp_path) as app:
        memory = app.recording.memory
        app.ask(4000, 1000)
        time.sleep(0.5)
        app.recording.stop_reading()
        time.sleep(stall_s)
        app.recording.type("vqxk")
        app.recording.until(lambda: app.answered(1), "the answer", timeout_s=90)
        taken, before = app.recording.memory - memory, app.recording.written
        app.recording.read_again()
        shown, drawn = app.last_drawn(columns=SIZE[0], rows=SIZE[1])
        assert shown == drawn
        assert "n1z⟩" in text_of(shown)
        assert "vqxk" in text_of(shown), "keys were heeded meanwhile"
        print(f"\n{stall_s:.0f} s: {taken / 1e6:.0f} MB more, then {app.recording.written - before:,} bytes")
        assert taken < MEMORY_MAX
        assert app.recording.written - before < 400_000, "frames were left out"


@pytest.mark.parametrize("size", [(150, 50), (100, 40)])
def test_a_terminal_may_report_a_wrong_size(tmp_path: Path, size: tuple[int, int]) -> None:
    """Cells that both sizes have are right. The last column of a narrower screen shows the last character."""
    columns, rows = (min(one, other) for one, other in zip(size, SIZE, strict=True))
    with streaming(tmp_path) as app:
        app.ask(300, 100)
        app.recording.until(lambda: app.answered(1), "the answer", timeout_s=90)
        shown, drawn = app.last_drawn(columns=size[0], rows=size[1])
        assert [row[: columns - 1] for row in shown[:rows]] == [row[: columns - 1] for row in drawn[:rows]]
