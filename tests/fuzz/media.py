"""Readers of pictures, videos and what is made of them, each with real files of its format."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import av
import pillow_heif
from PIL import ExifTags, Image

from tests.fuzz.campaign import Reader
from tests.unit.media.made import corners, gif, video
from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.errors import VlmtuiError
from vlmtui.media.describe import attachment_facts, attachment_line
from vlmtui.media.folder import FolderEntry
from vlmtui.media.frames import sample_frames
from vlmtui.media.images import open_prepared
from vlmtui.media.pages import page_picture, stage_page
from vlmtui.media.stage import stage
from vlmtui.media.thumbnails import thumbnail
from vlmtui.ui.attachments.browser import preview_file

_VIDEOS = {"mp4": "libx264", "mkv": "libx264", "webm": "libvpx", "avi": "mpeg4", "mov": "mpeg4", "ts": "mpeg2video"}


def media_readers() -> list[Reader]:
    """Return a reader for each format."""
    pictures = [_picture("jpeg", _jpegs), _picture("png", _pngs), _picture("webp", _moving("webp"))]
    pictures += [_picture("avif", _moving("avif")), _picture("gif", _moving("gif")), _picture("heic", _heics)]
    pictures += [_picture("tiff", _tiffs), _picture("other pictures", _others)]
    videos = [_video(name, codec) for name, codec in _VIDEOS.items()]
    others = [Reader("pdf", _documents, _read_document), Reader("thumbnails", _pngs, _read_thumbnail)]
    return [*pictures, *videos, *others]


def _picture(name: str, seeds: Callable[[Path], Sequence[bytes]]) -> Reader:
    return Reader(name, seeds, _read_media)


def _video(ending: str, codec: str) -> Reader:
    def seeds(folder: Path) -> Sequence[bytes]:
        still = video(folder / f"a.{ending}", frames=10, codec=codec)
        turned = video(folder / f"b.{ending}", frames=4, codec=codec, pts=[0, 1, 7, 30])
        return [still.read_bytes(), turned.read_bytes()]

    return Reader(ending, seeds, _read_media)


def _read_media(folder: Path, data: bytes) -> None:
    """All that is done with a file that is attached. Each step is taken whatever became of the one before."""
    path = folder / "a.bin"
    path.write_bytes(data)
    steps: list[Callable[[], object]] = [
        lambda: _use(stage(path, folder / "store", still=True), folder),
        lambda: _use(stage(path, folder / "store", page=2, still=True), folder),
        lambda: preview_file(FolderEntry(path, path.name, False, len(data), 0.0)),
    ]
    for step in steps:
        with suppress(VlmtuiError):
            step()
    _use(stage(path, folder / "store"), folder)


def _documents(folder: Path) -> Sequence[bytes]:
    corners((40, 30)).save(folder / "a.pdf", save_all=True, append_images=[corners((8, 8))])
    return [(folder / "a.pdf").read_bytes()]


def _read_document(folder: Path, data: bytes) -> None:
    path = folder / "a.pdf"
    path.write_bytes(data)
    with suppress(VlmtuiError):
        page_picture(path)
    _use(stage_page(path, folder / "store", page=2), folder)


def _use(attachment: Attachment, folder: Path) -> None:
    attachment_line(attachment)
    attachment_facts(attachment)
    thumbnail(attachment, folder / "cache", (48, 48))
    if attachment.modality == "video":
        sample_frames(attachment.path, VideoSampling(num_frames=3))
    else:
        open_prepared(attachment.path)


def _read_thumbnail(folder: Path, data: bytes) -> None:
    """If the cache is damaged, the picture is made again."""
    corners().save(folder / "a.png")
    attachment = stage(folder / "a.png", folder / "store")
    thumbnail(attachment, folder / "cache", (48, 48))
    (kept,) = (folder / "cache").glob("*.png")
    kept.write_bytes(data)
    made = thumbnail(attachment, folder / "cache", (48, 48))
    assert made.mode == "RGB"


def _saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _exif() -> Image.Exif:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    exif[ExifTags.Base.Make], exif[ExifTags.Base.Model] = "Maker", "Maker One"
    exif[ExifTags.Base.DateTime] = "2024:01:02 03:04:05"
    details = exif.get_ifd(ExifTags.IFD.Exif)
    details[ExifTags.Base.ExposureTime], details[ExifTags.Base.FNumber] = 0.01, 2.8
    details[ExifTags.Base.LensModel] = "A lens"
    return exif


def _jpegs(_: Path) -> Sequence[bytes]:
    plain, grey = corners(), corners().convert("L")
    progressive = _saved(plain, "JPEG", progressive=True, icc_profile=_profile())
    return [
        _saved(plain, "JPEG", exif=_exif()),
        progressive,
        _saved(grey, "JPEG"),
        _saved(plain.convert("CMYK"), "JPEG"),
    ]


def _pngs(folder: Path) -> Sequence[bytes]:
    plain = corners()
    moving = gif(folder / "a.png", frames=3).read_bytes()
    deep = _saved(Image.new("I;16", (20, 10), 300), "PNG")
    return [_saved(plain, "PNG", exif=_exif(), icc_profile=_profile()), _saved(plain.convert("P"), "PNG"), deep, moving]


def _moving(ending: str) -> Callable[[Path], Sequence[bytes]]:
    def seeds(folder: Path) -> Sequence[bytes]:
        moving = gif(folder / f"a.{ending}", frames=4).read_bytes()
        return [moving, _saved(corners().convert("RGBA" if ending != "gif" else "P"), ending.upper())]

    return seeds


def _heics(folder: Path) -> Sequence[bytes]:
    pillow_heif.from_pillow(corners()).save(folder / "a.heic", exif=_exif().tobytes())
    several = pillow_heif.from_pillow(corners())
    several.add_from_pillow(corners((32, 32)))
    several.save(folder / "b.heic")
    return [(folder / "a.heic").read_bytes(), (folder / "b.heic").read_bytes()]


def _tiffs(_: Path) -> Sequence[bytes]:
    plain = corners()
    pages = _saved(plain, "TIFF", save_all=True, append_images=[corners((20, 20)), plain.convert("L")])
    return [pages, *(_saved(plain, "TIFF", compression=name) for name in ("tiff_lzw", "tiff_adobe_deflate", "jpeg"))]


def _others(_: Path) -> Sequence[bytes]:
    plain = corners()
    return [_saved(plain, kind) for kind in ("BMP", "JPEG2000", "ICO", "PPM")]


def _profile() -> bytes:
    from PIL import ImageCms

    return ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()


av.logging.set_level(None)
