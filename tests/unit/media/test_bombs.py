"""Videos and HEIC pictures with boxes that lie: each is refused or used, in bounded time and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.media.bombs import KINDS
from tests.unit.media.made import video
from vlmtui.media.stage import stage

_ROOT = Path(__file__).parents[3]
REFUSED = {
    "mp4": ("400,000 edits", "400,000 edits and a tail", "20,000 edits", "a compressed index"),
    "heic": (f"{2**31 - 1} by {2**31 - 1}", "30000 by 30000", "0 by 0", "meta 50,000 deep"),
    "mkv": ("2**31 by 2**31", "400,000 blocks", "300,000 tags deep", "a block of 2**40 bytes"),
}
"""Files of which nothing may be used."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not hold processes to a limit of memory")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_made_to_cost(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.unit.media.bombs", kind, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)
    became = dict(line.split(": ", 1) for line in ended.stdout.splitlines())
    assert ended.returncode == 0, f"the one after {list(became)[-1:]}: {ended.stderr[-2000:]}"
    assert set(became) == {name for name, _ in KINDS[kind](tmp_path)}
    assert all(text == "used" or (text.startswith("refused: ") and "bomb." in text) for text in became.values()), became
    assert [name for name in REFUSED[kind] if became[name] == "used"] == []


def test_a_video_with_edits_is_used(tmp_path: Path) -> None:
    """Phones and editors write edits."""
    path = video(tmp_path / "a.mp4", frames=10)
    assert b"elst" in path.read_bytes()
    assert stage(path, tmp_path / "store").duration_s == pytest.approx(0.4)
