"""What a file is, told from its first bytes. A name's ending is never believed."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

HEAD_BYTES = 4096
"""How much of a file's beginning `sniff` wants to see."""


class Kind(StrEnum):
    """What can be done with a file."""

    IMAGE = "image"
    ANIMATION = "animation"
    """A format that may hold one picture or many (GIF, WebP, AVIF): its decoder must be asked."""
    VIDEO = "video"
    OTHER = "other"


class Sniffed(NamedTuple):
    """`kind`, and `what` in words for people: `a PNG picture`, `text`."""

    kind: Kind
    what: str


_STARTS: tuple[tuple[bytes, Sniffed], ...] = (
    (b"\xff\xd8\xff", Sniffed(Kind.IMAGE, "a JPEG picture")),
    (b"\x89PNG\r\n\x1a\n", Sniffed(Kind.IMAGE, "a PNG picture")),
    (b"GIF87a", Sniffed(Kind.ANIMATION, "a GIF")),
    (b"GIF89a", Sniffed(Kind.ANIMATION, "a GIF")),
    (b"II*\0", Sniffed(Kind.IMAGE, "a TIFF picture")),
    (b"MM\0*", Sniffed(Kind.IMAGE, "a TIFF picture")),
    (b"II+\0", Sniffed(Kind.IMAGE, "a TIFF picture")),
    (b"MM\0+", Sniffed(Kind.IMAGE, "a TIFF picture")),
    (b"\0\0\0\x0cjP  \r\n\x87\n", Sniffed(Kind.IMAGE, "a JPEG 2000 picture")),
    (b"\xff\x4f\xff\x51", Sniffed(Kind.IMAGE, "a JPEG 2000 picture")),
    (b"\0\0\x01\0", Sniffed(Kind.IMAGE, "an icon")),
    (b"\x1a\x45\xdf\xa3", Sniffed(Kind.VIDEO, "a Matroska or WebM video")),
    (b"FLV\x01", Sniffed(Kind.VIDEO, "a Flash video")),
    (b"\0\0\x01\xba", Sniffed(Kind.VIDEO, "an MPEG video")),
    (b"\0\0\x01\xb3", Sniffed(Kind.VIDEO, "an MPEG video")),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", Sniffed(Kind.VIDEO, "a Windows Media file")),
    (b"OggS", Sniffed(Kind.VIDEO, "an Ogg file")),
    (b"ID3", Sniffed(Kind.OTHER, "a sound file")),
    (b"fLaC", Sniffed(Kind.OTHER, "a sound file")),
    (b"\xff\xfb", Sniffed(Kind.OTHER, "a sound file")),
    (b"%PDF-", Sniffed(Kind.OTHER, "a PDF document")),
    (b"%!PS", Sniffed(Kind.OTHER, "a PostScript document")),
    (b"8BPS", Sniffed(Kind.OTHER, "a Photoshop document")),
    (b"\x7fELF", Sniffed(Kind.OTHER, "a program")),
    (b"PK\x03\x04", Sniffed(Kind.OTHER, "a ZIP archive or an office document")),
    (b"\x1f\x8b", Sniffed(Kind.OTHER, "a gzip archive")),
    (b"SQLite format 3\0", Sniffed(Kind.OTHER, "an SQLite database")),
)
_RIFF = {
    b"WEBP": Sniffed(Kind.ANIMATION, "a WebP picture"),
    b"AVI ": Sniffed(Kind.VIDEO, "an AVI video"),
    b"WAVE": Sniffed(Kind.OTHER, "a sound file"),
}
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"})
_OLD_QUICKTIME = frozenset({b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot"})
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")


def sniff(head: bytes) -> Sniffed:
    """Tell what a file is from its first `HEAD_BYTES` bytes (fewer, where the file is shorter)."""
    for start, found in _STARTS:
        if head.startswith(start):
            return found
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], Sniffed(Kind.OTHER, "a RIFF file of an unknown sort"))
    if head[4:8] == b"ftyp":
        return _sniff_ftyp(head)
    if head[4:8] in _OLD_QUICKTIME:
        return Sniffed(Kind.VIDEO, "a QuickTime video")
    if _is_transport_stream(head):
        return Sniffed(Kind.VIDEO, "an MPEG transport stream")
    if head[:2] == b"BM" and head[14:18] in (b"\x0c\0\0\0", b"\x28\0\0\0", b"\x6c\0\0\0", b"\x7c\0\0\0"):
        return Sniffed(Kind.IMAGE, "a BMP picture")
    if head[:1] == b"P" and head[1:2] in b"123456" and head[2:3].isspace():
        return Sniffed(Kind.IMAGE, "a PNM picture")
    return _sniff_text(head)


def _is_transport_stream(head: bytes) -> bool:
    """Packets of 188 bytes, each beginning with 0x47; in those of Blu-ray and AVCHD four bytes of time come before."""
    layouts = ((0, 188), (4, 192))
    return any(len(head) > first + 2 * step and set(head[first::step]) == {0x47} for first, step in layouts)


def _sniff_ftyp(head: bytes) -> Sniffed:
    """ISO base media (MP4 and its relatives): the brands of the first box tell pictures from videos."""
    size = min(max(int.from_bytes(head[:4], "big"), 16), len(head))
    brands = {head[8:12], *(head[at : at + 4] for at in range(16, size - 3, 4))}
    if brands & {b"avif", b"avis"}:
        return Sniffed(Kind.ANIMATION, "an AVIF picture")
    if head[8:12] in _HEIF_BRANDS:
        return Sniffed(Kind.IMAGE, "a HEIC picture")
    if head[8:12] == b"M4A ":
        return Sniffed(Kind.VIDEO, "an MPEG-4 sound file")
    return Sniffed(Kind.VIDEO, "a QuickTime video" if head[8:12] == b"qt  " else "an MP4 video")


def _sniff_text(head: bytes) -> Sniffed:
    if any(byte < 0x20 and byte not in _TEXT_CONTROLS for byte in head):
        return Sniffed(Kind.OTHER, "no picture or video format that vlmtui knows")
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return Sniffed(Kind.OTHER, "a web page (HTML)")
    if start.startswith(b"<svg") or (start.startswith(b"<?xml") and b"<svg" in start):
        return Sniffed(Kind.OTHER, "an SVG drawing")
    if start.startswith(b"version https://git-lfs"):
        return Sniffed(Kind.OTHER, "a Git LFS pointer, not the file itself")
    return Sniffed(Kind.OTHER, "text")
