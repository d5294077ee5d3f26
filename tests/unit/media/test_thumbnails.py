"""Thumbnails are small, right, kept, and bounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.unit.media.made import corners, numbered, video
from vlmtui.domain.conversation import VideoSampling
from vlmtui.errors import VlmtuiError
from vlmtui.media import thumbnails
from vlmtui.media.stage import stage
from vlmtui.media.thumbnails import thumbnail


@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_image(name: str, tmp_path: Path) -> None:
    corners((800, 600)).save(tmp_path / name)
    attachment = stage(tmp_path / name, tmp_path / "store")
    small = thumbnail(attachment, tmp_path / "cache", (100, 100))
    assert (small.mode, small.size) == ("RGB", (100, 75))
    assert small.getpixel((10, 10)) == pytest.approx((255, 0, 0), abs=8)
    assert small.getpixel((90, 10)) == pytest.approx((0, 255, 0), abs=8)


def test_kept_and_read_again(tmp_path: Path) -> None:
    corners((400, 300)).save(tmp_path / "a.png")
    attachment = stage(tmp_path / "a.png", tmp_path / "store")
    cache = tmp_path / "cache"
    first = thumbnail(attachment, cache, (40, 30))
    Path(attachment.path).unlink()
    again = thumbnail(attachment, cache, (40, 30))
    assert (np.asarray(first) == np.asarray(again)).all()
    (kept,) = cache.iterdir()
    assert (kept.suffix, kept.stat().st_mode & 0o777) == (".png", 0o600)
    with pytest.raises(VlmtuiError, match="missing or damaged"):
        thumbnail(attachment, cache, (41, 31))


def test_a_damaged_one_is_made_again(tmp_path: Path) -> None:
    corners().save(tmp_path / "a.png")
    attachment = stage(tmp_path / "a.png", tmp_path / "store")
    thumbnail(attachment, tmp_path / "cache", (20, 20))
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(b"\x89PNG\r\n\x1a\n")
    assert thumbnail(attachment, tmp_path / "cache", (20, 20)).size == (20, 15)
    with Image.open(kept) as again:
        assert again.size == (20, 15)


def test_never_larger_than_the_original(tmp_path: Path) -> None:
    Image.new("RGB", (3, 2)).save(tmp_path / "a.png")
    attachment = stage(tmp_path / "a.png", tmp_path / "store")
    assert thumbnail(attachment, tmp_path / "cache", (100, 100)).size == (3, 2)
    Image.new("RGB", (10_000, 1)).save(tmp_path / "line.png")
    attachment = stage(tmp_path / "line.png", tmp_path / "store")
    assert thumbnail(attachment, tmp_path / "cache", (100, 100)).size == (100, 1)


def test_video_shows_its_first_sampled_frame(tmp_path: Path) -> None:
    frames = [numbered(0)] * 25 + [numbered(1023)] * 25
    path = video(tmp_path / "a.mp4", frames=frames)
    black = stage(path, tmp_path / "store")
    white = stage(path, tmp_path / "store", sampling=VideoSampling(start_s=1.5))
    assert black.sha256 == white.sha256
    shades = [np.asarray(thumbnail(item, tmp_path / "cache", (40, 24))).mean() for item in (black, white)]
    assert shades == pytest.approx([0, 255], abs=8)


def test_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thumbnails, "KEPT_MAX", 3)
    corners().save(tmp_path / "a.png")
    attachment = stage(tmp_path / "a.png", tmp_path / "store")
    for width in range(10, 20):
        thumbnail(attachment, tmp_path / "cache", (width, 10))
    assert len(list((tmp_path / "cache").iterdir())) == 3


def test_it_imports_few_of_pillows_formats(tmp_path: Path) -> None:
    corners((40, 30)).save(tmp_path / "a.png")
    program = """
import sys
from pathlib import Path
from vlmtui.domain.conversation import Attachment
from vlmtui.media.thumbnails import thumbnail
folder = Path(sys.argv[1])
made = Attachment(modality="image", name="a.png", path=str(folder / "a.png"), sha256="0", width=40, height=30,
                  size_bytes=1, format="PNG")
for _ in range(2):  # made, and read again
    thumbnail(made, folder / "cache", (20, 15))
assert "PIL.TiffImagePlugin" not in sys.modules, "all formats were imported"
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
