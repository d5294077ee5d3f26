"""Detects a file's type from its first bytes, never from its name."""

from __future__ import annotations

from enum import Enum, StrEnum

HEAD_BYTES = 4096


class Kind(StrEnum):
    IMAGE = "image"
    ANIMATION = "animation"
    """A format for one frame or many (GIF, WebP, AVIF); only the decoder can tell."""
    VIDEO = "video"
    SOUND = "sound"
    DOCUMENT = "document"
    """A document whose pages are attached as images."""
    OTHER = "other"


class FileType(Enum):
    """A file type: its `kind`, its `title` for display (`a PNG picture`), and the `suffix` of its stored copy, which is
    empty for types that are never stored."""

    JPEG = Kind.IMAGE, "a JPEG image", ".jpg"
    PNG = Kind.IMAGE, "a PNG image", ".png"
    """May also be animated (APNG); only the decoder can tell."""
    GIF = Kind.ANIMATION, "a GIF", ".gif"
    TIFF = Kind.IMAGE, "a TIFF image", ".tiff"
    JPEG_2000 = Kind.IMAGE, "a JPEG 2000 image", ".jp2"
    ICON = Kind.IMAGE, "an icon", ".ico"
    BMP = Kind.IMAGE, "a BMP image", ".bmp"
    PNM = Kind.IMAGE, "a PNM image", ".pnm"
    WEBP = Kind.ANIMATION, "a WebP image", ".webp"
    AVIF = Kind.ANIMATION, "an AVIF image", ".avif"
    HEIC = Kind.IMAGE, "a HEIC image", ".heic"
    MATROSKA = Kind.VIDEO, "a Matroska or WebM video", ".mkv"
    FLASH = Kind.VIDEO, "a Flash video", ".flv"
    MPEG = Kind.VIDEO, "an MPEG video", ".mpg"
    TRANSPORT_STREAM = Kind.VIDEO, "an MPEG transport stream", ".ts"
    WINDOWS_MEDIA = Kind.VIDEO, "a Windows Media file", ".wmv"
    OGG = Kind.VIDEO, "an Ogg file", ".ogg"
    AVI = Kind.VIDEO, "an AVI video", ".avi"
    MP4 = Kind.VIDEO, "an MP4 video", ".mp4"
    QUICKTIME = Kind.VIDEO, "a QuickTime video", ".mov"
    MP4_SOUND = Kind.VIDEO, "an MPEG-4 sound file", ".m4a"
    """May contain video after all; Ogg, MP4 and Matroska files may contain only audio."""
    MP3 = Kind.SOUND, "a sound file", ".mp3"
    FLAC = Kind.SOUND, "a sound file", ".flac"
    WAV = Kind.SOUND, "a sound file", ".wav"
    AAC = Kind.SOUND, "a sound file", ".aac"
    AIFF = Kind.SOUND, "a sound file", ".aiff"
    AMR = Kind.SOUND, "a sound file", ".amr"
    CAF = Kind.SOUND, "a sound file", ".caf"
    PDF = Kind.DOCUMENT, "a PDF document", ".pdf"
    POSTSCRIPT = Kind.OTHER, "a PostScript document"
    PHOTOSHOP = Kind.OTHER, "a Photoshop document"
    CAMERA_RAW = Kind.OTHER, "a camera's raw file"
    """Raw files in a container of their own; others are TIFF files, which only the decoder can tell."""
    JPEG_XL = Kind.OTHER, "a JPEG XL file"
    PROGRAM = Kind.OTHER, "a program"
    ZIP = Kind.OTHER, "a ZIP archive or an office document"
    GZIP = Kind.OTHER, "a gzip archive"
    SQLITE = Kind.OTHER, "an SQLite database"
    RIFF = Kind.OTHER, "an unknown kind of RIFF file"
    HTML = Kind.OTHER, "a web page (HTML)"
    SVG = Kind.OTHER, "an SVG drawing"
    GIT_LFS = Kind.OTHER, "a Git LFS pointer, not the file itself"
    TEXT = Kind.OTHER, "text"
    UNKNOWN = Kind.OTHER, "an unknown file format"

    def __init__(self, kind: Kind, title: str, suffix: str = "") -> None:
        self.kind = kind
        self.title = title
        self.suffix = suffix


_STARTS: tuple[tuple[bytes, FileType], ...] = (
    (b"\xff\xd8\xff", FileType.JPEG),
    (b"\x89PNG\r\n\x1a\n", FileType.PNG),
    (b"GIF87a", FileType.GIF),
    (b"GIF89a", FileType.GIF),
    (b"II*\0", FileType.TIFF),
    (b"MM\0*", FileType.TIFF),
    (b"II+\0", FileType.TIFF),
    (b"MM\0+", FileType.TIFF),
    (b"\0\0\0\x0cjP  \r\n\x87\n", FileType.JPEG_2000),
    (b"\xff\x4f\xff\x51", FileType.JPEG_2000),
    (b"\0\0\x01\0", FileType.ICON),
    (b"IIRO", FileType.CAMERA_RAW),
    (b"IIRS", FileType.CAMERA_RAW),
    (b"MMOR", FileType.CAMERA_RAW),
    (b"IIU\0", FileType.CAMERA_RAW),
    (b"II\x1a\0\0\0HEAP", FileType.CAMERA_RAW),
    (b"FUJIFILMCCD-RAW", FileType.CAMERA_RAW),
    (b"FOVb", FileType.CAMERA_RAW),
    (b"\0MRM", FileType.CAMERA_RAW),
    (b"\0\0\0\x0cJXL \r\n\x87\n", FileType.JPEG_XL),
    (b"\xff\x0a", FileType.JPEG_XL),
    (b"\x1a\x45\xdf\xa3", FileType.MATROSKA),
    (b"FLV\x01", FileType.FLASH),
    (b"\0\0\x01\xba", FileType.MPEG),
    (b"\0\0\x01\xb3", FileType.MPEG),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", FileType.WINDOWS_MEDIA),
    (b"OggS", FileType.OGG),
    (b"ID3", FileType.MP3),
    (b"fLaC", FileType.FLAC),
    (b"\xff\xfb", FileType.MP3),
    (b"\xff\xfa", FileType.MP3),
    (b"\xff\xf3", FileType.MP3),
    (b"\xff\xf2", FileType.MP3),
    (b"\xff\xf1", FileType.AAC),
    (b"\xff\xf9", FileType.AAC),
    (b"#!AMR", FileType.AMR),
    (b"caff\0\x01", FileType.CAF),
    (b"%PDF-", FileType.PDF),
    (b"%!PS", FileType.POSTSCRIPT),
    (b"8BPS", FileType.PHOTOSHOP),
    (b"\x7fELF", FileType.PROGRAM),
    (b"PK\x03\x04", FileType.ZIP),
    (b"\x1f\x8b", FileType.GZIP),
    (b"SQLite format 3\0", FileType.SQLITE),
)
_RIFF = {
    b"WEBP": FileType.WEBP,
    b"AVI ": FileType.AVI,
    b"WAVE": FileType.WAV,
}
_BMP_HEADERS = (b"\x0c", b"\x28", b"\x34", b"\x38", b"\x40", b"\x6c", b"\x7c")
"""Lengths of the headers that Pillow reads."""
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_OLD_QUICKTIME = frozenset({b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot"})
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")


def sniff(head: bytes) -> FileType:
    """Detect the type of a file from its first `HEAD_BYTES` bytes, or fewer if the file is shorter."""
    for start, found in _STARTS:
        if head.startswith(start):
            return found
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], FileType.RIFF)
    if head[:4] == b"FORM" and head[8:12] in (b"AIFF", b"AIFC"):
        return FileType.AIFF
    if head[4:8] == b"ftyp":
        return _sniff_ftyp(head)
    if head[4:8] in _OLD_QUICKTIME:
        return FileType.QUICKTIME
    if _is_transport_stream(head):
        return FileType.TRANSPORT_STREAM
    if head[:2] == b"BM" and head[14:15] in _BMP_HEADERS and head[15:18] == bytes(3):
        return FileType.BMP
    if head[:1] == b"P" and head[1:2] in b"123456" and head[2:3].isspace():
        return FileType.PNM
    return _sniff_text(head)


def _is_transport_stream(head: bytes) -> bool:
    """Check for packets of 188 bytes that begin with 0x47; Blu-ray and AVCHD put a 4-byte timestamp before each."""
    layouts = ((0, 188), (4, 192))
    return any(len(head) > first + 2 * step and set(head[first::step]) == {0x47} for first, step in layouts)


def _sniff_ftyp(head: bytes) -> FileType:
    """Tell images from videos in ISO base media files (MP4, HEIC, …) by the brands in the first box."""
    size = min(max(int.from_bytes(head[:4], "big"), 16), len(head))
    brands = {head[8:12], *(head[at : at + 4] for at in range(16, size - 3, 4))}
    if brands & {b"avif", b"avis"}:
        return FileType.AVIF
    if head[8:12] in _HEIF_BRANDS:
        return FileType.HEIC
    if head[8:12] == b"crx ":
        return FileType.CAMERA_RAW
    if head[8:12] == b"M4A ":
        return FileType.MP4_SOUND
    return FileType.QUICKTIME if head[8:12] == b"qt  " else FileType.MP4


def _sniff_text(head: bytes) -> FileType:
    if any(byte < 0x20 and byte not in _TEXT_CONTROLS for byte in head):
        return FileType.UNKNOWN
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return FileType.HTML
    if start.startswith(b"<svg") or (start.startswith(b"<?xml") and b"<svg" in start):
        return FileType.SVG
    if start.startswith(b"version https://git-lfs"):
        return FileType.GIT_LFS
    return FileType.TEXT
