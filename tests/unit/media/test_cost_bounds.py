"""Small files that are made to waste time: pages, frames and pixels are bounded before work is done."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import pillow_heif
import pytest
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from tests.unit.media.made import video
from vlmtui.errors import VlmtuiError
from vlmtui.media import images, pages
from vlmtui.media import video as decoders
from vlmtui.media.folder import list_folder
from vlmtui.media.images import stage_image
from vlmtui.media.pages import FRAMES_MAX, PAGES_MAX, most_parts
from vlmtui.media.stage import stage
from vlmtui.ui.attachments.browser import preview_file


def tiff(path: Path, sizes: list[tuple[int, int]]) -> Path:
    """Pages of these sizes that share one byte of pixels; 90 bytes each."""
    out = bytearray(b"II*\0" + struct.pack("<I", 8))
    for number, (width, height) in enumerate(sizes):
        tags = ((256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 1), (279, 4, 1))
        entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
        following = len(out) + 2 + len(entries) + 4 if number + 1 < len(sizes) else 0
        out += struct.pack("<H", len(tags)) + entries + struct.pack("<I", following)
    path.write_bytes(out)
    return path


def gif(path: Path, size: tuple[int, int], frames: int) -> Path:
    """The same single-coloured frame again and again."""
    buffer = io.BytesIO()
    Image.new("P", size).save(buffer, "GIF")
    data = buffer.getvalue()
    at = data.index(b"\x2c", 13)
    path.write_bytes(data[:at] + data[at:-1] * frames + b";")
    return path


def webp(path: Path, size: tuple[int, int], frames: int) -> Path:
    buffer = io.BytesIO()
    first, second = Image.new("RGB", size, "red"), Image.new("RGB", size, "blue")
    first.save(buffer, "WEBP", save_all=True, append_images=[second], duration=50, lossless=True)
    data, at, chunks = buffer.getvalue(), 12, list[bytes]()
    while at < len(data):
        length = struct.unpack("<I", data[at + 4 : at + 8])[0]
        length += 8 + length % 2
        chunks.append(data[at : at + length])
        at += length
    moving = [chunk for chunk in chunks if chunk[:4] == b"ANMF"]
    body = b"WEBP" + b"".join(chunk for chunk in chunks if chunk[:4] != b"ANMF") + moving[0] + moving[-1] * (frames - 1)
    path.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)
    return path


def apng(path: Path, size: tuple[int, int], frames: int) -> Path:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    width, height = size
    pixels = zlib.compress(bytes((width + 1) * height), 9)
    parts = [b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))]
    parts.append(chunk(b"acTL", struct.pack(">II", frames, 0)))
    number = 0
    for frame in range(frames):
        parts.append(chunk(b"fcTL", struct.pack(">IIIIIHHBB", number, width, height, 0, 0, 1, 20, 0, 0)))
        number += 1
        parts.append(chunk(b"fdAT", struct.pack(">I", number) + pixels) if frame else chunk(b"IDAT", pixels))
        number += 1 if frame else 0
    path.write_bytes(b"".join([*parts, chunk(b"IEND", b"")]))
    return path


def test_pages_are_counted_to_a_limit(tmp_path: Path) -> None:
    """60,000 pages in 6 MB took Pillow's own count 40 seconds."""
    path = tiff(tmp_path / "many.tiff", [(1, 1)] * 60_000)
    attachment = stage(path, tmp_path / "store")
    assert (attachment.page, attachment.pages) == (1, PAGES_MAX)
    assert stage(path, tmp_path / "store", page=PAGES_MAX).page == PAGES_MAX
    with pytest.raises(VlmtuiError, match="only the first 1000 can be used"):
        stage(path, tmp_path / "store", page=PAGES_MAX + 1)
    assert preview_file(list_folder(tmp_path)[-1]).image is not None


def test_exif_segments_are_counted_before_pillow_joins_them(tmp_path: Path) -> None:
    """8 MB of them took 25 seconds."""
    buffer = io.BytesIO()
    Image.new("RGB", (2, 2)).save(buffer, "JPEG")
    picture, segment = buffer.getvalue(), b"\xff\xe1\x00\x28Exif\0\0" + bytes(32)
    path = tmp_path / "a.jpg"
    path.write_bytes(picture[:2] + segment * 100 + picture[2:])
    assert stage(path, tmp_path / "store").width == 2
    path.write_bytes(picture[:2] + segment * 101 + picture[2:])
    with pytest.raises(VlmtuiError, match=r"a.jpg has more than 100 Exif segments"):
        stage(path, tmp_path / "store")


def test_every_page_has_a_size_of_its_own(tmp_path: Path) -> None:
    path = tiff(tmp_path / "a.tiff", [(1, 1), (60_000, 60_000)])
    assert stage(path, tmp_path / "store").width == 1
    with pytest.raises(VlmtuiError, match=r"too large: 60000 × 60000 pixels|too many pixels"):
        stage_image(path, tmp_path / "store", page=2)


@pytest.mark.parametrize(("make", "name"), [(gif, "a.gif"), (webp, "a.webp"), (apng, "a.png")])
def test_frames_are_bounded(make: object, name: str, tmp_path: Path) -> None:
    assert callable(make)
    path = make(tmp_path / name, (1, 1), 100_000)
    with pytest.raises(VlmtuiError, match=rf"too many frames: .* is {FRAMES_MAX}"):
        stage(path, tmp_path / "store")
    assert stage(path, tmp_path / "store", still=True).pages == FRAMES_MAX


@pytest.mark.parametrize(("make", "name"), [(gif, "a.gif"), (webp, "a.webp"), (apng, "a.png")])
def test_pixels_of_all_frames_are_bounded(
    make: object, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some kilobytes of one colour would be played as gigabytes of pixels."""
    assert callable(make)
    monkeypatch.setattr(pages, "_PIXELS_OF_SMALL_FILES", 1_000_000)
    path = make(tmp_path / name, (500, 500), 40)
    assert path.stat().st_size < 50_000
    with pytest.raises(VlmtuiError, match="too many frames"):
        stage(path, tmp_path / "store")
    assert preview_file(list_folder(tmp_path)[-1]).image is not None


@pytest.mark.parametrize("name", ["a.gif", "a.webp"])
def test_frames_of_enormous_size(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmtui.media.video.FRAME_PIXELS_MAX", 1000)
    path = {"a.gif": gif, "a.webp": webp}[name](tmp_path / name, (100, 100), 3)
    with pytest.raises(VlmtuiError, match="too many frames"):
        stage(path, tmp_path / "store")


def test_larger_files_may_hold_more() -> None:
    picture = Image.new("P", (1000, 1000))
    picture.format = "GIF"
    assert most_parts(picture, 1000) == 200
    assert most_parts(picture, 20_000_000) == 1200
    assert most_parts(picture, 10**9) == 4000
    picture.format = "TIFF"
    assert most_parts(picture, 10**9) == PAGES_MAX


def test_videos_of_enormous_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = video(tmp_path / "a.mp4")
    monkeypatch.setattr(decoders, "FRAME_PIXELS_MAX", 80 * 48 - 1)
    with pytest.raises(VlmtuiError, match="are too large: 80 × 48 pixels"):
        stage(path, tmp_path / "store")


@pytest.mark.parametrize("name", ["a.png", "a.webp", "a.avif", "a.gif", "a.jp2", "a.tif", "a.heic"])
def test_pixels_of_a_picture_are_bounded_by_its_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty picture of 14,000 pixels a side is 7 kB of WebP, and took seconds and gigabytes."""
    path, image = tmp_path / name, Image.new("L" if name == "a.jp2" else "RGB", (1000, 900))
    if name == "a.heic":
        pillow_heif.from_pillow(image).save(path)
    else:
        image.save(path)
    size = path.stat().st_size
    monkeypatch.setattr(images, "_PIXELS_OF_SMALL_FILES", 1_000)
    monkeypatch.setattr(images, "_PIXELS_PER_BYTE", 899_999 // size)
    with pytest.raises(VlmtuiError, match=r"too large for its .*: 1000 × 900 pixels"):
        stage(path, tmp_path / "store", still=True)
    with pytest.raises(VlmtuiError, match="too large for its"):
        exif = list_folder(tmp_path)[0]
        images.open_image(exif.path.read_bytes(), exif.path)
    monkeypatch.setattr(images, "_PIXELS_PER_BYTE", 900_000 // size + 1)
    assert stage(path, tmp_path / "store", still=True).width == 1000


def test_transparency_holds_no_second_copy_of_white(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Image, "composite")
    Image.new("RGBA", (2, 1), (0, 0, 0, 51)).save(tmp_path / "a.png")
    attachment = stage(tmp_path / "a.png", tmp_path / "store")
    assert images.open_prepared(attachment.path).getpixel((1, 0)) == (204, 204, 204)


LARGE = {
    "a.webp": ("RGB", 1),
    "turned.jpg": ("RGB", 6),
    "turned.png": ("RGB", 8),
    "clear.png": ("RGBA", 1),
    "palette.png": ("P", 1),
    "deep.png": ("I;16", 1),
    "cmyk.jpg": ("CMYK", 1),
    "turned.tif": ("RGB", 6),
    "a.heic": ("RGB", 1),
}
"""Mode and EXIF orientation."""


@pytest.mark.parametrize("name", LARGE)
def test_converted_images_have_a_limit_of_pixels(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 million pixels of a photograph that was turned took 28 seconds to attach, and 11 for its thumbnail."""
    monkeypatch.setattr(images, "RECODED_PIXELS_MAX", 6_000)
    mode, turned = LARGE[name]
    path, exif = tmp_path / name, Image.Exif()
    exif[0x0112] = turned
    picture = Image.new("L", (300, 200))
    picture.paste(255, (0, 0, 150, 200))  # the left half is white
    picture = picture.convert(mode)
    if name == "a.heic":
        pillow_heif.from_pillow(picture).save(path)
    else:
        picture.save(path, exif=exif if turned != 1 else Image.Exif())
    attachment = stage(path, tmp_path / "store")
    sizes = ((75, 50), (300, 200)) if turned == 1 else ((50, 75), (200, 300))
    assert ((attachment.width, attachment.height), attachment.scaled_from) == sizes
    assert attachment.notes[-1] == "made smaller from {} × {}".format(*sizes[1])
    pixels = images.open_prepared(attachment.path)
    assert pixels.size == sizes[0]
    white = {1: (5, 25), 6: (25, 5), 8: (25, 70)}[turned]
    black = (pixels.width - 1 - white[0], pixels.height - 1 - white[1])
    if name != "deep.png":  # its 255 of 65,535 is nearly black
        assert (pixels.getpixel(white) > (200, 200, 200), pixels.getpixel(black) < (50, 50, 50)) == (True, True)  # type: ignore[operator]


def test_a_large_jpeg_is_not_decoded_whole_where_it_is_made_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (1600, 800)).save(tmp_path / "a.jpg", exif=exif)
    decoded, load = list[tuple[int, int]](), JpegImageFile.load

    def loaded(self: JpegImageFile) -> object:
        decoded.append(self.size)
        return load(self)

    monkeypatch.setattr(JpegImageFile, "load", loaded)
    monkeypatch.setattr(images, "RECODED_PIXELS_MAX", 800 * 400)
    assert stage(tmp_path / "a.jpg", tmp_path / "store").width == 400
    assert set(decoded) == {(800, 400)}


def test_a_large_picture_that_can_be_kept_keeps_its_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "RECODED_PIXELS_MAX", 100)
    for name in ("a.jpg", "a.png"):
        Image.new("RGB", (100, 80)).save(tmp_path / name)
        attachment = stage(tmp_path / name, tmp_path / "store")
        assert (attachment.width, attachment.scaled_from, attachment.notes) == (100, None, ())
        assert Path(attachment.path).read_bytes() == (tmp_path / name).read_bytes()


def box(kind: bytes, *inside: bytes, size: int | None = None) -> bytes:
    data = b"".join(inside)
    return struct.pack(">I", len(data) + 8 if size is None else size) + kind + data


MP4 = box(b"ftyp", b"isom\0\0\2\0isomiso2mp41")
BOXES = {
    "a box of size 0": MP4 + box(b"moov", size=0),
    "a box of 4 GB": MP4 + box(b"moov", size=2**32 - 1) + bytes(100),
    "a 64-bit size": MP4 + struct.pack(">I4sQ", 1, b"moov", 2**63) + bytes(100),
    "a box within itself": MP4 + box(b"moov", *[struct.pack(">I4s", 8 * (40 - at), b"trak") for at in range(40)]),
    "20,000 boxes deep": MP4 + b"".join(struct.pack(">I4s", 8 * (20_000 - at), b"moov") for at in range(20_000)),
    "a million empty boxes": MP4 + struct.pack(">I4s", 8, b"free") * 1_000_000,
    "two thousand million samples": MP4
    + box(
        b"moov", box(b"trak", box(b"mdia", box(b"minf", box(b"stbl", box(b"stsz", struct.pack(">III", 0, 0, 2**31))))))
    ),
    "a track of 65,000 by 65,000": MP4
    + box(b"moov", box(b"trak", box(b"tkhd", bytes(76) + struct.pack(">II", 65_000 << 16, 65_000 << 16)))),
    "only its first bytes": MP4,
    "a Matroska element of 2**56 bytes": b"\x1a\x45\xdf\xa3\x84\x42\x82\x80\x80\x18\x53\x80\x67\x01" + b"\xff" * 7,
    "AVI with a list of 4 GB": b"RIFF\xff\xff\xff\xffAVI LIST\xff\xff\xff\xffhdrl" + bytes(64),
}


@pytest.mark.parametrize("data", BOXES.values(), ids=BOXES)
def test_malformed_boxes_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(data)
    with pytest.raises(VlmtuiError, match=r"a\.mp4"):
        stage(path, tmp_path / "store")
