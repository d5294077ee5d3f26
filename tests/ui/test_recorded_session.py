"""Two terminals show a part of a recorded session as Textual draws it. All of it: `benchmarks.streaming.moments`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.streaming.moments import SIZE, equal_moments, record
from tests.support.emulators import Pyte, Tmux

MOMENTS = 20

pytestmark = pytest.mark.process


def test_two_terminals_show_what_textual_draws_at_random_moments(tmp_path: Path) -> None:
    written, moments = record(tmp_path / "session", moments=MOMENTS, seed=2)
    assert len({moment.screen for moment in moments}) > MOMENTS / 2, "the screen hardly changed"
    assert equal_moments(written, moments, Pyte(SIZE), Pyte(SIZE)) == []
    for side in ("stream", "anew"):
        (tmp_path / side).mkdir()
    with Tmux(SIZE, tmp_path / "stream") as terminal, Tmux(SIZE, tmp_path / "anew") as anew:
        assert equal_moments(written, moments, terminal, anew) == []
    moved = [msgspec.structs.replace(moment, written=max(0, moment.written - 300)) for moment in moments]
    assert equal_moments(written, moved, Pyte(SIZE), Pyte(SIZE)), "a frame that is left out is seen"
