"""A file that can't be attached is reported at once, by name and with a reason."""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pillow_heif
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.support.cases import examples
from tests.unit.media.made import corners, gif, sound, video
from vlmtui import files
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.media.frames import sample_frames
from vlmtui.media.images import open_prepared, stage_image
from vlmtui.media.stage import stage
from vlmtui.reading import shown_name


def _refused(path: Path, *words: str, kind: ErrorKind = ErrorKind.BAD_INPUT) -> VlmtuiError:
    store = path.parent / "store" if path.parent.is_dir() and os.access(path.parent, os.W_OK) else Path("/nonexistent")
    with pytest.raises(VlmtuiError) as caught:
        stage(path, store)
    error = caught.value
    assert error.kind is kind
    assert shown_name(path)[:40] in error.message
    for word in words:
        assert word in error.message, error.message
    assert not [kept for kept in store.rglob("*") if kept.is_file()], "a refused file must not be kept"
    return error


def test_missing(tmp_path: Path) -> None:
    _refused(tmp_path / "gone.png", "does not exist")


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    _refused(tmp_path / "folder.png", "is a folder")


def test_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    _refused(tmp_path / "pipe.png", "pipe")


def test_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s.png")
        _refused(tmp_path / "s.png", "socket")


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null"])
def test_device_does_not_hang(name: str) -> None:
    _refused(Path(name), "is a device")


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.png"
    corners().save(path)
    if os.getuid() == 0:
        monkeypatch.setattr(os, "open", _raising(PermissionError(errno.EACCES, "Permission denied")))
    else:
        path.chmod(0)
    _refused(path, "permission denied")


def _raising(error: OSError) -> Callable[..., int]:
    def open_(*_: object) -> int:
        raise error

    return open_


def test_dangling_link_and_link_loop(tmp_path: Path) -> None:
    (tmp_path / "link.png").symlink_to("nowhere.png")
    _refused(tmp_path / "link.png", "is a broken link to nowhere.png")
    (tmp_path / "loop.png").symlink_to("loop.png")
    _refused(tmp_path / "loop.png", "circular link")


def test_name_too_long_for_the_system(tmp_path: Path) -> None:
    _refused(tmp_path / ("x" * 300 + ".png"), "too long")


def test_empty(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    _refused(tmp_path / "empty.png", "is empty")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"hello\nworld\n", "is text"),
        ("grüße".encode(), "is text"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "is a web page"),
        (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "is an SVG drawing"),
        (b"%PDF-1.7\n", "is a damaged PDF document"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "is a PostScript document"),
        (b"PK\x03\x04\x14\0", "is a ZIP archive"),
        (b"\x7fELF\x02\x01\x01\0", "is a program"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "is a Git LFS pointer"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "is text"),
        (b"\x00\x01\x02\x03\x04\x05", "an unknown file format"),
    ],
)
def test_something_else_named_png(content: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "notes.png").write_bytes(content)
    _refused(tmp_path / "notes.png", what)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp", "a.tif", "a.bmp", "a.avif", "a.gif"])
def test_cut_in_half(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    Image.effect_noise((200, 150), 80).convert("RGB").save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    _refused(path)


def test_a_cut_off_png_has_a_note(tmp_path: Path) -> None:
    corners().save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(data[:-12])
    _refused(tmp_path / "a.png", "cut off")


def test_jpeg_with_a_broken_tail(tmp_path: Path) -> None:
    path = tmp_path / "tail.jpg"
    Image.effect_noise((400, 300), 80).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4] + bytes(len(data) // 4))
    _refused(path, "cut off")


def _png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [(60_000, 60_000), (15_000, 15_000)])
def test_decompression_bomb_is_refused_by_its_header(size: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(_png_header(*size))
    _refused(tmp_path / "bomb.png", "pixels")


def test_too_many_bytes(tmp_path: Path) -> None:
    path = tmp_path / "huge.jpg"
    with path.open("wb") as file:
        file.write(b"\xff\xd8\xff\xe0")
        file.truncate(300_000_000)
    _refused(path, "too large", "300 MB")


def test_gif_with_zero_frames(tmp_path: Path) -> None:
    (tmp_path / "none.gif").write_bytes(b"GIF89a\x10\0\x10\0\x80\0\0\0\0\0\xff\xff\xff;")
    _refused(tmp_path / "none.gif")


def test_a_video_without_a_picture_track_is_a_sound(tmp_path: Path) -> None:
    assert stage(sound(tmp_path / "song.mp4"), tmp_path / "store").modality == "audio"


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.webm", "a.avi"])
def test_video_cut_in_half(name: str, tmp_path: Path) -> None:
    codec = {"a.webm": "libvpx", "a.avi": "mpeg4"}.get(name, "libx264")
    path = video(tmp_path / name, frames=100, codec=codec)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    _refused(path, "cut off")


def test_video_cut_in_half_after_its_index(tmp_path: Path) -> None:
    path = video(tmp_path / "a.mp4", frames=100, options={"movflags": "+faststart"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 4 // 5])
    _refused(path, "cut off: its header says 4.0 s, but it ends after")


def test_video_of_noise(tmp_path: Path) -> None:
    path = video(tmp_path / "a.mkv")
    head = path.read_bytes()[:300]
    path.write_bytes(head + bytes(range(256)) * 40)
    _refused(path)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "growing.png"
    corners().save(path)
    seen = os.fstat
    calls: list[int] = []

    def fstat(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) == 3:
            with path.open("ab") as file:
                file.write(b"more")
        return seen(descriptor)

    monkeypatch.setattr(os, "fstat", fstat)
    _refused(path, "changed while it was being read")


def test_disk_full_while_storing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corners().save(tmp_path / "a.png")

    def full(_: Path) -> tuple[int, Path]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_open_unfinished", full)
    _refused(tmp_path / "a.png", "the disk is full", kind=ErrorKind.DISK_FULL)


@pytest.mark.parametrize(
    "name",
    [
        "with space.png",
        'it\'s "q".png',
        "new\nline.png",
        "-rf.png",
        "[red]x[b].png",
        "\x1b[31mred.png",
        "\u202egnp.exe",
    ],
)
def test_names_of_every_sort(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    corners().save(path, "PNG")
    assert stage(path, tmp_path / "store").name == name
    path.write_text("no picture")
    with pytest.raises(VlmtuiError) as caught:
        stage(path, tmp_path / "store")
    assert caught.value.message.isprintable()


def test_name_of_255_bytes_and_not_utf8(tmp_path: Path) -> None:
    for name in (b"x" * 251 + b".png", b"caf\xe9.png"):
        path = tmp_path / os.fsdecode(name)
        corners().save(path, "PNG")
        attachment = stage(path, tmp_path / "store")
        assert attachment.name.encode()
    gif(tmp_path / "m.gif").rename(tmp_path / os.fsdecode(b"m\xff.gif"))
    assert stage(tmp_path / os.fsdecode(b"m\xff.gif"), tmp_path / "store").modality == "video"
    video(tmp_path / "v.mp4").rename(tmp_path / os.fsdecode(b"v\xff.mp4"))
    assert stage(tmp_path / os.fsdecode(b"v\xff.mp4"), tmp_path / "store").modality == "video"


def test_a_stored_file_that_went_away(tmp_path: Path) -> None:
    corners().save(tmp_path / "a.png")
    attachment = stage_image(tmp_path / "a.png", tmp_path / "store")
    Path(attachment.path).unlink()
    with pytest.raises(VlmtuiError, match="missing or damaged"):
        open_prepared(attachment.path)


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    test_video_of_noise(tmp_path)
    test_jpeg_with_a_broken_tail(tmp_path)
    path = tmp_path / "lzw.tif"
    Image.effect_noise((90, 90), 80).save(path, compression="tiff_lzw")
    data = path.read_bytes()
    path.write_bytes(data[:500] + bytes(len(data) - 1000) + data[-500:])
    _refused(path)
    assert capfd.readouterr() == ("", "")


def test_an_animation_too_large_to_play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmtui.media.pages.PIXELS_MAX", 10_000)
    _refused(gif(tmp_path / "long.gif"), "too many frames: at least 3 of 80 × 48 pixels")


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("whole")
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a.jpg", "a.png", "a.webp", "a.tif", "a.bmp", "a.avif", "a.gif", "a.jp2", "a.ico", "a.ppm"):
        corners().save(folder / name, exif=exif)
    pillow_heif.from_pillow(corners()).save(folder / "a.heic")
    moving = [gif(folder / "m.gif"), gif(folder / "m.webp"), gif(folder / "m.png")]
    videos = [video(folder / name, frames=12) for name in ("a.mp4", "a.mkv", "a.ts", "a.flv")]
    return [*sorted(folder.glob("a.*")), *moving, *videos]


@pytest.mark.filterwarnings("ignore")
@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_are_staged_or_refused_and_nothing_else(
    seed: int, whole_files: list[Path], tmp_path: Path
) -> None:
    chance = random.Random(seed)
    whole = chance.choice(whole_files)
    data = bytearray(whole.read_bytes())
    for _ in range(chance.choice((1, 3, 20))):
        data[chance.randrange(min(len(data), chance.choice((64, 400, len(data)))))] = chance.choice((0, 255, 7))
    path = tmp_path / f"damaged{whole.suffix}"
    path.write_bytes(bytes(data[: chance.choice((len(data), chance.randrange(1, len(data))))]))
    try:
        attachment = stage(path, tmp_path / "store")
        if attachment.modality == "image":
            assert open_prepared(attachment.path).size == (attachment.width, attachment.height)
        else:
            assert len(sample_frames(attachment.path, attachment.sampling).frames)
    except VlmtuiError as error:
        assert error.kind is ErrorKind.BAD_INPUT
