"""Files that are valid in an odd way: deeply nested, in a circle, without a frame rate."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from PIL import Image

from tests.unit.media.made import numbered, numbers, video
from vlmtui.domain.conversation import VideoSampling
from vlmtui.errors import VlmtuiError
from vlmtui.media.frames import sample_frames
from vlmtui.media.images import open_prepared
from vlmtui.media.stage import stage

_PIXEL_AT = 8


def _directory(at: int, *, inner: int, following: int) -> bytes:
    """A TIFF directory of a 1 × 1 grey picture at offset `at`, with a directory inside and one after it."""
    entries = [
        (256, 3, 1),
        (257, 3, 1),
        (258, 3, 8),
        (259, 3, 1),
        (262, 3, 1),
        (273, 4, _PIXEL_AT),
        (277, 3, 1),
        (278, 3, 1),
        (279, 4, 1),
        *([(330, 4, inner)] if inner else []),
    ]
    packed = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    return struct.pack("<H", len(entries)) + packed + struct.pack("<I", following)


def _nested_tiff(levels: int) -> bytes:
    size, start = 2 + 10 * 12 + 4, 16
    data = b"II*\0" + struct.pack("<I", start) + b"\x80".ljust(8, b"\0")
    for level in range(levels):
        at = start + level * size
        inner = at + size if level + 1 < levels else 0
        data += _directory(at, inner=inner, following=0).ljust(size, b"\0")
    return data


def test_directories_twenty_levels_deep(tmp_path: Path) -> None:
    (tmp_path / "deep.tif").write_bytes(_nested_tiff(20))
    attachment = stage(tmp_path / "deep.tif", tmp_path / "store")
    assert (attachment.width, attachment.height, attachment.pages) == (1, 1, 1)
    assert open_prepared(attachment.path).getpixel((0, 0)) == (128, 128, 128)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("inner", "following"), [(0, 16), (16, 0), (16, 16)])
def test_directories_in_a_circle(inner: int, following: int, tmp_path: Path) -> None:
    head = b"II*\0" + struct.pack("<I", 16) + b"\x80".ljust(8, b"\0")
    (tmp_path / "circle.tif").write_bytes(head + _directory(16, inner=inner, following=following))
    attachment = stage(tmp_path / "circle.tif", tmp_path / "store")
    assert (attachment.width, attachment.pages) == (1, 1)
    with pytest.raises(VlmtuiError, match=r"circle\.tif has no page 2"):
        stage(tmp_path / "circle.tif", tmp_path / "store", page=2)


def test_cmyk_jpeg_one_pixel_and_a_line(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "print.jpg")
    Image.new("RGB", (1, 1), "red").save(tmp_path / "one.png")
    Image.new("RGB", (10_000, 1), "red").save(tmp_path / "line.png")
    for name in ("print.jpg", "one.png", "line.png"):
        pixel = open_prepared(stage(tmp_path / name, tmp_path / "store").path).getpixel((0, 0))
        assert pixel == pytest.approx((255, 0, 0), abs=8)


def test_avi_of_zero_frames_a_second(tmp_path: Path) -> None:
    path = video(tmp_path / "a.avi", frames=20, rate=10, codec="mpeg4")
    data = bytearray(path.read_bytes())
    rate_at = data.index(b"strh") + 8 + 24
    data[rate_at : rate_at + 4] = bytes(4)
    data[32:36] = bytes(4)
    path.write_bytes(bytes(data))
    found = sample_frames(path, VideoSampling(num_frames=3))
    assert found.fps > 0 and found.duration_s > 0
    assert numbers(found.frames) == (0, 9, 19)


def test_mp4_whose_frames_last_no_time(tmp_path: Path) -> None:
    path = video(tmp_path / "a.mp4", frames=[numbered(3)] * 10, rate=10)
    data = bytearray(path.read_bytes())
    at = data.index(b"stts") + 8
    count = int.from_bytes(data[at : at + 4], "big")
    for entry in range(count):
        data[at + 8 + entry * 8 : at + 12 + entry * 8] = bytes(4)
    path.write_bytes(bytes(data))
    attachment = stage(path, tmp_path / "store")
    assert attachment.fps and attachment.duration_s
    found = sample_frames(attachment.path)
    assert set(numbers(found.frames)) == {3}
    assert list(found.times_s) == sorted(set(found.times_s))
