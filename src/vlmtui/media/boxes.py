"""Looks through the boxes of an MP4 or QuickTime file for what would cost libav minutes or all memory to open."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import BinaryIO

from vlmtui.errors import bad_input

EDITS_MAX = 1000
"""Entries of edit lists. For each, libav goes through the index of the track: 100,000 take it minutes."""
_BOXES_MAX = 1_000_000
_INDEX_BYTES_MAX = 500_000_000
_CONTENT = frozenset({b"mdat", b"free", b"skip", b"wide"})
_END = b""
_EDIT_BYTES = 12
"""Of the smaller of the two forms."""
_WINDOW = 65_536
_PIECE = 16_000_000
_OVERLAP = 16
_HEAD, _LONG = struct.Struct(">I4s"), struct.Struct(">Q")
_COMPRESSED = re.compile(rb"cmov....dcom", re.DOTALL)


def check_boxes(file: BinaryIO, name: str) -> None:
    """Check a file of any type; one without boxes is over at once. Leaves the file at its beginning.

    Raises VlmtuiError for an index with too many edits, a compressed index, and more boxes or bytes of an index than
    any video has.
    """
    end = file.seek(0, 2)
    start, looked_at, edits = 0, 0, 0
    for number, (kind, at, stop) in enumerate(_boxes(file, end)):
        if number == _BOXES_MAX:
            raise bad_input(f"{name} has more than {_BOXES_MAX:,} parts.")
        if kind == _END or kind in _CONTENT:
            looked_at += at - start
            edits += _edits(file, start, at, name) if looked_at <= _INDEX_BYTES_MAX else 0
            start = stop
        if edits > EDITS_MAX or looked_at > _INDEX_BYTES_MAX:
            raise bad_input(f"{name} has a damaged index: it is larger than that of any video.")
    file.seek(0)


def _boxes(file: BinaryIO, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield kind, start and end of each outermost box, and in the end `_END`."""
    at = begin = 0
    data = b""
    while at + 8 <= end:
        if not begin <= at <= begin + len(data) - 16:
            file.seek(at)
            begin, data = at, file.read(_WINDOW)
            if len(data) < 8:
                break
        size, kind = _HEAD.unpack_from(data, at - begin)
        if size == 1 and at - begin + 16 <= len(data):
            size = _LONG.unpack_from(data, at - begin + 8)[0]
        stop = min(at + size, end) if size >= 8 else end
        yield kind, at, stop
        at = stop
    yield _END, end, end


def _edits(file: BinaryIO, start: int, stop: int, name: str) -> int:
    """Return how many entries the edit lists between two places can hold."""
    found = 0
    for at in range(start, stop, _PIECE):
        file.seek(at)
        data = file.read(min(_PIECE + _OVERLAP, stop - at))
        if _COMPRESSED.search(data):
            raise bad_input(f"{name} has a compressed index.", hint="Convert it, for example with ffmpeg -c copy.")
        place = data.find(b"elst", 4)
        while 0 <= place < _PIECE + 4:
            size = _HEAD.unpack_from(data, place - 4)[0]
            found += min(size or stop, stop - at - place) // _EDIT_BYTES
            place = data.find(b"elst", place + 4)
    return found
