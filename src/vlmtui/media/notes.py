"""Notes on parts of a file that an attachment lacks or shows differently, such as damaged parts and wide colours: the
same words for images, videos and sounds."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import BinaryIO

from vlmtui.domain.conversation import Attachment
from vlmtui.media.describe import clock
from vlmtui.text import counted

_HOLE_BYTES = 4096
"""Metadata may have shorter runs of zeros."""
_PIECE = 1 << 20
_PRIMARIES = {9: "BT.2020", 11: "DCI-P3", 12: "Display P3"}
_HDR = {16: "PQ", 18: "HLG"}
_NCLX = b"colrnclx"


_DAMAGED, _DIFFERS = "damaged: ", "not as in a viewer: "


def damage(what: str) -> str:
    """Return the note for a part of a file that could not be read."""
    return _DAMAGED + what


def differs(what: str) -> str:
    return _DIFFERS + what


def warning_of(attachment: Attachment) -> str:
    """Return a sentence with the notes that a user should know before asking, or "": the attachment is damaged, or a
    viewer may show it differently. The name in it is hostile text."""
    told = [note for note in attachment.notes if note.startswith((_DAMAGED, _DIFFERS))]
    return f"{attachment.name}: {'; '.join(told)}." if told else ""


CROPPED = differs("its crop (clean aperture) not applied")


def lost(times_s: Collection[float], noun: str, *, are_all: bool) -> tuple[str, ...]:
    """Return a note on frames or packets that could not be decoded, by their times in seconds. `are_all`: the whole
    file was read."""
    if not times_s:
        return ()
    count, first_s, last_s = len(times_s), max(0.0, min(times_s)), max(0.0, *times_s)
    most = "" if are_all else "at least "
    where = f"at {clock(first_s)}" if count == 1 else f"from {clock(first_s)} to {clock(last_s)}"
    return (damage(f"{most}{counted(count, noun)} can't be decoded, {where}"),)


def ends_early(promised_s: float, end_s: float) -> str:
    return damage(f"its header says {promised_s:.2f} s, but it ends after {end_s:.2f} s")


def missing_bytes(count: int) -> tuple[str, ...]:
    """Return a note if a file lacks bytes that its header announces; `count` is at most 0 if it does not."""
    return (damage(f"cut off, {count:,} bytes are missing"),) if count > 0 else ()


def hole(data: bytes, start: int = 0, stop: int | None = None, *, least: int = _HOLE_BYTES) -> tuple[str, ...]:
    """Return a note if compressed data has a run of at least `least` zero bytes, or a quarter of that at its end:
    unfinished downloads and damaged disks leave those, and encoders do not write them."""
    stop = len(data) if stop is None else stop
    found = data.find(bytes(least), start, stop)
    if found < 0 and data.endswith(bytes(least // 4), start, stop):
        found = start + len(data[start:stop].rstrip(b"\0"))
    if found < 0:
        return ()
    run = re.compile(rb"\0*").match(data, found, stop)
    return (damage(f"{run.end() - found if run else 0:,} bytes from byte {found:,} on are zeros, perhaps missing"),)


_ZERO_TAIL_BYTES = 256


def zeros_at_end(file: BinaryIO) -> int:
    """Return how many bytes at the end of a file are zeros. Does not keep the position."""
    at = end = file.seek(0, 2)
    while at > 0:
        size = min(_PIECE, at)
        file.seek(at - size)
        kept = len(file.read(size).rstrip(b"\0"))
        if kept:
            return end - (at - size + kept)
        at -= size
    return end


def zero_tail(count: int) -> tuple[str, ...]:
    """Return a note if a compressed file ends in `count` zero bytes, as an unfinished download does."""
    return (damage(f"the last {count:,} bytes are zeros, perhaps missing"),) if count >= _ZERO_TAIL_BYTES else ()


def wide_colours(primaries: int, transfer: int) -> tuple[str, ...]:
    """Return a note if colours are taken as sRGB that are not: HDR, or a wide gamut. The numbers are those of ITU-T
    H.273, which PNG, HEIF, AVIF and videos share."""
    names = [f"HDR ({_HDR[transfer]})"] if transfer in _HDR else []
    names += [_PRIMARIES[primaries]] if primaries in _PRIMARIES else []
    return (differs(f"{' and '.join(names)} colours taken as sRGB"),) if names else ()


def wide_heif_colours(data: bytes) -> tuple[str, ...]:
    """Return the note of `wide_colours` for the first colour box of a HEIC or AVIF file."""
    at = data.find(_NCLX)
    if at < 0:
        return ()
    return wide_colours(*(int.from_bytes(data[at + 8 + skip : at + 10 + skip], "big") for skip in (0, 2)))
