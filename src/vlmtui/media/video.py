"""Videos: containers (MP4, MKV, …) read with PyAV, animations with Pillow; checked and stored by content hash."""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

import av
import av.error
import numpy as np
import numpy.typing as npt
from av.container import InputContainer
from PIL import Image

from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media import images
from vlmtui.media.content_store import store_copy
from vlmtui.media.notes import (
    CROPPED,
    damage,
    differs,
    ends_early,
    lost,
    missing_bytes,
    wide_colours,
    zero_tail,
    zeros_at_end,
)
from vlmtui.media.pages import most_parts
from vlmtui.media.sampling import VideoFacts, target_times
from vlmtui.media.sniff import HEAD_BYTES, FileType, Kind, sniff
from vlmtui.reading import file_name, opened, shown_name, source_text

Pixels = npt.NDArray[np.uint8]


class VideoSource(Protocol):
    """An open video. `frames_at` raises VlmtuiError for an unreadable frame."""

    @property
    def facts(self) -> VideoFacts: ...

    def frames_at(self, times_s: Sequence[float], size: tuple[int, int]) -> Iterator[tuple[float, Pixels]]:
        """Yield for each time (ascending) the frame shown at it: the frame's own time, and its pixels, `(H, W, 3)
        uint8` RGB.

        `size` is (width, height) in pixels, upright.
        """
        ...

    def damage_at(self, times_s: Sequence[float]) -> tuple[str, ...]:
        """Return notes on the frames at these times (ascending), and those that they depend on, that can't be
        decoded."""
        ...

    def close(self) -> None: ...


EDITS_MAX = 1000
"""Maximum number of entries in edit lists. libav scans the track's index for each: 100,000 entries take minutes."""
_BOXES_MAX = 1_000_000
_INDEX_BYTES_MAX = 500_000_000
_CONTENT = frozenset({b"mdat", b"free", b"skip", b"wide"})
_END = b""
_EDIT_BYTES = 12
"""Size in bytes of an edit list's entry, in the smaller of its two forms."""
_WINDOW = 65_536
_PIECE = 16_000_000
_OVERLAP = 16
_HEAD, _LONG = struct.Struct(">I4s"), struct.Struct(">Q")
_COMPRESSED = re.compile(rb"cmov....dcom", re.DOTALL)
_FRAMES = frozenset({b"mdat", b"moof"})
_BEGIN = frozenset({b"ftyp", b"moov", b"pnot", *_CONTENT})
"""Kinds of a file's first box."""
_UNCOMPRESSED = frozenset({FileType.WAV, FileType.AIFF, FileType.CAF})
"""Sounds that may end in zeros: silence."""
_SIZE_UNKNOWN = 0x7FFF0000
"""RIFF and AIFF files that were written to a pipe state a size from here on."""
_MISCOUNTED = 16
"""Bytes by which writers of RIFF files state a size too large."""
_OGG_PAGE_BYTES = 65_307
_OGG_LAST = 4
_MATROSKA_HEAD_BYTES = 65_536
_SEGMENT = b"\x18\x53\x80\x67"
_CLUSTER = b"\x1f\x43\xb6\x75"
_PIXEL_CROP = re.compile(rb"\x54[\xaa\xbb\xcc\xdd](?:\x81[^\0]|\x82(?!\0\0))", re.DOTALL)
"""A crop of at least one pixel in a Matroska file's description of a track."""
_CLAP = re.compile(rb"\0\0\0\x28clap(.{16})", re.DOTALL)


class Checked(NamedTuple):
    """Facts from a file's own bytes."""

    notes: tuple[str, ...] = ()
    """On an end that is missing."""
    crops: tuple[tuple[int, int], ...] = ()
    """Widths and heights in pixels that players crop the frames to; 0 × 0: unknown."""


def check_boxes(file: BinaryIO, name: str) -> Checked:
    """Reject MP4 and MOV files whose index is cut off, or would block libav for minutes. Other files are accepted.
    Moves to the start of the file.

    Raises VlmtuiError if the index has too many edits or too many bytes, is compressed or cut off, or if the file has
    too many boxes (the parts of an MP4 file).
    """
    head, end = file.read(_MATROSKA_HEAD_BYTES), file.seek(0, 2)
    start, looked_at, edits = 0, 0, 0
    crops: list[tuple[int, int]] = []
    last = (_END, 0, 0)
    for number, (kind, at, stop) in enumerate(_boxes(file, end)):
        if number == _BOXES_MAX:
            raise bad_input(f"{name} has more than {_BOXES_MAX:,} parts.")
        if kind == _END or kind in _CONTENT:
            looked_at += at - start
            edits += _edits(file, start, at, name, crops) if looked_at <= _INDEX_BYTES_MAX else 0
            start = min(stop, end)
        if edits > EDITS_MAX or looked_at > _INDEX_BYTES_MAX:
            raise bad_input(f"{name} has a damaged index: it is larger than that of any video.")
        last = last if kind == _END else (kind, at, stop)
    if head[4:8] not in _BEGIN:
        checked = _check_other(file, head, end)
    else:
        kind, _, stop = last
        if kind == b"moov" and stop > end:
            raise _damaged(name, f"is cut off: {stop - end:,} bytes of its index are missing", EOFError("moov"))
        # Zeros may stand where the next box should begin; inside a box they may be padding. Cameras append other data.
        notes = missing_bytes(stop - end) if kind in _FRAMES else ()
        checked = Checked(notes if kind.strip(b"\0") else zero_tail(zeros_at_end(file)), tuple(crops))
    file.seek(0)
    return checked


def _check_other(file: BinaryIO, head: bytes, end: int) -> Checked:
    found = sniff(head[:HEAD_BYTES])
    if head[:4] in (b"RIFF", b"FORM"):
        size = int.from_bytes(head[4:8], "little" if head[:4] == b"RIFF" else "big")
        missing = size + 8 - end
        notes = missing_bytes(missing) if size < _SIZE_UNKNOWN and missing > _MISCOUNTED else ()
        if notes or found in _UNCOMPRESSED:
            return Checked(notes)
    notes = () if found in _UNCOMPRESSED else zero_tail(zeros_at_end(file))
    if found is FileType.OGG and not notes:
        file.seek(max(0, end - _OGG_PAGE_BYTES))
        tail = file.read(_OGG_PAGE_BYTES)
        flags = tail[max(0, tail.rfind(b"OggS")) :][5:6]
        notes = () if flags and flags[0] & _OGG_LAST else (damage("its end mark is missing, perhaps cut off"),)
    if found is not FileType.MATROSKA:
        return Checked(notes)
    is_cropped = _PIXEL_CROP.search(head[: head.find(_CLUSTER)])
    return Checked(notes or missing_bytes(_end_of_matroska(head, end) - end), ((0, 0),) if is_cropped else ())


def _end_of_matroska(head: bytes, end: int) -> int:
    """Return where a Matroska file's segment ends by its own size (RFC 8794); `end` if it states none."""
    at = head.find(_SEGMENT) + len(_SEGMENT)
    length = 9 - head[at].bit_length() if len(_SEGMENT) <= at < len(head) else 9
    size = int.from_bytes(head[at : at + length], "big") & ((1 << 7 * length) - 1)
    is_stated = length < 9 and size < (1 << 7 * length) - 1
    return at + length + size if is_stated else end


def _boxes(file: BinaryIO, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield (kind, start, end) of each outermost box of the file, the end as the box itself says; the last kind is
    `_END`."""
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
        stop = at + size if size >= 8 else end
        yield kind, at, stop
        at = stop
    yield _END, min(at, end), end


def require_end(file: BinaryIO, name: str) -> None:
    """Raise VlmtuiError if a file ends in zeros, which explains why a part of it can't be read."""
    zeros = zeros_at_end(file)
    if zero_tail(zeros):
        raise _damaged(name, f"is cut off: its last {zeros:,} bytes are zeros", EOFError("zeros"))


def _edits(file: BinaryIO, start: int, stop: int, name: str, crops: list[tuple[int, int]]) -> int:
    """Return how many edit list entries the bytes between two offsets can hold at most, and append the sizes of clean
    apertures to `crops`. Raises VlmtuiError if the index is compressed."""
    found = 0
    for at in range(start, stop, _PIECE):
        file.seek(at)
        data = file.read(min(_PIECE + _OVERLAP, stop - at))
        if _COMPRESSED.search(data):
            raise bad_input(f"{name} has a compressed index.", hint="Convert it, for example with ffmpeg -c copy.")
        for match in _CLAP.finditer(data):
            wide, wide_parts, high, high_parts = struct.unpack(">4I", match[1])
            crops.append((round(wide / max(1, wide_parts)), round(high / max(1, high_parts))))
        place = data.find(b"elst", 4)
        while 0 <= place < _PIECE + 4:
            size = _HEAD.unpack_from(data, place - 4)[0]
            found += min(size or stop, stop - at - place) // _EDIT_BYTES
            place = data.find(b"elst", place + 4)
    return found


_DEMUXERS = "mov,mp4,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,ogg,asf,wav,mp3,flac,aac,aiff,amr,caf,w64"
"""Formats that libav may detect. Playlists (HLS, DASH, concat) are excluded, as they open other files and URLs."""
_METADATA: Mapping[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
"""Makes PyAV replace invalid UTF-8 in titles instead of failing; PyAV 19 has no such option any more."""
AV_ERRORS = (av.error.FFmpegError, OSError, ValueError, LookupError, RuntimeError, MemoryError)
_CONTAINERS = {
    "matroska,webm": ("MKV", ".mkv"),
    "avi": ("AVI", ".avi"),
    "mpegts": ("MPEG-TS", ".ts"),
    "mpeg": ("MPEG", ".mpg"),
    "mpegvideo": ("MPEG", ".mpg"),
    "flv": ("FLV", ".flv"),
    "ogg": ("Ogg", ".ogv"),
    "asf": ("WMV", ".wmv"),
}
FRAME_PIXELS_MAX = 40_000_000
"""Maximum pixels per frame; 8K has 33 million. Decoders keep several frames in memory."""
_FPS_MAX = 1000.0
_FAR = 2**62
_STRETCH_MAX = 4.0
"""Highest plausible pixel aspect ratio; beyond that the value is considered damaged."""
_NEARLY_SQUARE = 0.01
_SLACK_S = 0.004
"""Seconds of tolerance, as containers with millisecond timestamps round the times of frames."""
_IO_BUFFER = 256 * 1024
_SEEK_GAP_S = 4.0
"""Without an index, decoding forward is assumed to be cheaper than seeking up to this distance."""
_RETRY_BACK_S = (2.0, 10.0, 60.0)
"""Seconds to seek back further if an inexact index led to a frame after the wanted one."""
_BEFORE_START_S = 10.0
_FRUITLESS_MAX = 50_000
"""Maximum number of packets without a frame, a second's work; beyond that, the rest counts as damaged."""
_TAIL_S = 2.0
"""Seconds; longer than any decoder reorders frames."""
_WHOLE = 0.9
"""A file that ends before this share of its declared length is considered cut off; smaller losses have a note."""
_SHORT_S = 0.25
"""Seconds: less is the rounding of containers."""
_UNSPECIFIED = 2
"""The code of an unknown colour matrix in ITU-T H.273."""
_HD_WIDTH, _SD_HEIGHT = 1280, 576
_WITHOUT_ZEROS = frozenset(
    ("h264", "hevc", "vp8", "vp9", "libdav1d", "av1", "mpeg4", "flv", "h263", "msmpeg4v2", "msmpeg4", "wmv1", "wmv2")
)
"""Decoders of codecs whose packets have no long runs of zeros."""
_LENGTH_SIZE_AT = {"h264": 4, "hevc": 21}
"""Where the headers of MP4 and Matroska state how many bytes the length of a packet's part takes (ISO 14496-15)."""
_HOLE = bytes(256)
_CHECKED_MAX = 8
"""Of how many frames at most staging checks that they can be decoded."""
_WHOLE_SLACK_S = 0.5


def open_container(file: BinaryIO, name: str) -> tuple[InputContainer, Checked]:
    """Open a video or audio file, and check its bytes. `name`: the file's name in errors. Raises VlmtuiError."""
    av.logging.set_level(None)
    checked = check_boxes(file, name)
    try:
        # With a file object instead of a name, libav cannot open other files, and any file name works.
        options = {"format_whitelist": _DEMUXERS}
        container: InputContainer = av.open(file, "r", options=options, buffer_size=_IO_BUFFER, **_METADATA)
    except AV_ERRORS as error:
        raise _damaged(name, "is cut off or damaged: it cannot be opened", error) from error
    return container, checked


def pictures_in(container: InputContainer) -> list[av.VideoStream]:
    """Return the video tracks, the one that players choose first, without cover images."""
    covers, chosen = av.stream.Disposition.attached_pic, av.stream.Disposition.default
    found = [stream for stream in container.streams.video if not stream.disposition & covers]
    return sorted(found, key=lambda stream: not stream.disposition & chosen)


def _damaged(name: str, state: str, error: BaseException) -> VlmtuiError:
    return bad_input(
        f"{name} {state}.",
        detail=f"{type(error).__name__}: {error}",
        hint="Copy or download it again; if it is still being written, wait.",
    )


class _Tail(NamedTuple):
    """Facts from the packets at the end of the file. Times are seconds from the video's first frame."""

    last: float | None
    """When the last frame appears; None if no frame was found."""
    end: float
    """When the last packet of any track ends."""
    pictures: int


class _Timed(NamedTuple):
    time: float
    """Seconds from the video's first frame."""
    frame: av.VideoFrame


class ContainerVideo:
    """A `VideoSource` for a video container. `file` must stay open while it is used."""

    def __init__(self, file: BinaryIO, path: Path, file_type: FileType) -> None:
        self._name = shown_name(path)
        self._container, self._checked = open_container(file, self._name)
        self._lost: set[float] = set()
        try:
            self._stream = self._video_stream(file, file_type)
            self._time_base = float(self._stream.time_base or 1 / 90000)
            self._first_pts = 0
            self._fruitless = 0
            self._packets = self._decoded()
            self._current: _Timed | None = None
            self._next: _Timed | None = None
            self._facts = self._read_facts(file_type)
        except AV_ERRORS as error:
            self.close()
            raise _damaged(self._name, "is damaged: its frames cannot be read", error) from error
        except VlmtuiError:
            self.close()
            raise

    @property
    def facts(self) -> VideoFacts:
        return self._facts

    def close(self) -> None:
        self._container.close()

    def frames_at(self, times_s: Sequence[float], size: tuple[int, int]) -> Iterator[tuple[float, Pixels]]:
        """See `VideoSource.frames_at`. Parts that cannot be decoded are skipped."""
        for found in self._found_at(times_s):
            yield found.time, self._to_rgb(found.frame, size)

    def _found_at(self, times_s: Sequence[float]) -> Iterator[_Timed]:
        self._seek(times_s[0])
        for time in times_s:
            found = self._frame_at(time)
            for back in _RETRY_BACK_S:
                if found is not None and found.time <= time + self._slack:
                    break
                self._seek(time - back)
                found = self._frame_at(time)
            if found is not None:
                yield found

    def _video_stream(self, file: BinaryIO, file_type: FileType) -> av.VideoStream:
        streams = pictures_in(self._container)
        if not streams or getattr(streams[0], "codec_context", None) is None:
            require_end(file, self._name)
        if not streams:
            sound = self._container.streams.audio
            raise bad_input(
                f"{self._name} is {file_type.title} without an image track{', only sound' if sound else ''}."
            )
        stream = streams[0]
        if getattr(stream, "codec_context", None) is None:
            raise bad_input(f"{self._name} uses an unknown video codec.", hint="Convert it to H.264 in MP4.")
        stream.thread_type = "AUTO"
        if stream.codec_context.width * stream.codec_context.height > FRAME_PIXELS_MAX:
            size = f"{stream.codec_context.width} × {stream.codec_context.height}"
            raise bad_input(f"The frames of {self._name} are too large: {size} pixels.")
        return stream

    def _read_facts(self, file_type: FileType) -> VideoFacts:
        first = next(self._packets, None)
        if first is None:
            raise bad_input(
                f"{self._name} is cut off or damaged: none of its frames can be decoded.",
                hint="Copy or download it again; if it is still being written, wait.",
            )
        self._first_pts = _pts(first.frame) or 0
        self._turn, turned = _display_turn(first.frame)
        width, height, stretched = self._display_size(first.frame)
        last_s = self._measure_end()
        fps = self._fps(last_s)
        self._slack = min(0.1 / fps, _SLACK_S)
        label, suffix = _CONTAINERS.get(self._container.format.name, ("MP4", ".mp4"))
        if file_type is FileType.QUICKTIME:
            label, suffix = "MOV", ".mov"
        return VideoFacts(
            format=label,
            suffix=suffix,
            width=height if self._turn.is_transposed else width,
            height=width if self._turn.is_transposed else height,
            fps=fps,
            last_s=last_s,
            total_frames=max(self._stream.frames, 1) if self._stream.frames else round(last_s * fps) + 1,
            notes=(*stretched, *turned, *self._untaken(first.frame), *self._damage()),
        )

    def damage_at(self, times_s: Sequence[float]) -> tuple[str, ...]:
        """See `VideoSource.damage_at`. If packets tell whether they are whole, only those before the last time are
        decoded."""
        self._lost.clear()
        tells = self._length_size() > 0
        for time in times_s[:-1] if tells else ():
            self._seek(time)
            for packet in self._packets_in_order():
                if self._is_broken(packet):
                    self._note_loss(packet)
                if packet.dts is not None and packet.dts > self._pts_at(time):
                    break
        for _ in self._found_at(times_s[-1:] if tells else times_s):
            pass
        return lost(self._lost, "frame", are_all=False)

    def _damage(self) -> tuple[str, ...]:
        promised = self._declared_s()
        is_stated = self._container.format.name.startswith(("mov", "matroska"))  # of others, libav guesses it
        is_short = is_stated and promised is not None and self._end_s < promised - _SHORT_S
        early = (ends_early(promised, self._end_s),) if is_short and promised is not None else ()
        return (*self._checked.notes, *early)

    def _untaken(self, frame: av.VideoFrame) -> tuple[str, ...]:
        """Return notes on features of the file that a player may follow and the frames do not show."""
        notes = wide_colours(int(frame.color_primaries), int(frame.color_trc))
        if any(crop != (frame.width, frame.height) for crop in self._checked.crops):
            notes += (CROPPED,)
        if frame.interlaced_frame:
            notes += (differs("interlaced, each frame shows two moments"),)
        if any(component.is_alpha for component in frame.format.components):
            notes += ("transparency over white",)
        elif self._stream.metadata.get("alpha_mode") == "1":
            notes += (differs("its transparency not applied"),)
        shown = av.stream.Disposition.default | av.stream.Disposition.forced
        if any(stream.disposition & shown for stream in self._container.streams.subtitles):
            notes += (differs("its subtitles not drawn"),)
        return notes

    def _display_size(self, frame: av.VideoFrame) -> tuple[int, int, tuple[str, ...]]:
        """Return the width and height with square pixels, before rotation, and a note if they differ from the stored
        size. Only ever makes an image larger."""
        width, height = frame.width, frame.height
        ratio = float(self._stream.sample_aspect_ratio or 1)
        if not 1 / _STRETCH_MAX <= ratio <= _STRETCH_MAX or abs(ratio - 1) < _NEARLY_SQUARE:
            return width, height, ()
        wide, high = (round(width * ratio), height) if ratio > 1 else (width, round(height / ratio))
        return wide, high, (f"stretched from {width} × {height} to square pixels",)

    def _fps(self, last_s: float) -> float:
        for rate in (self._stream.average_rate, self._stream.guessed_rate, self._stream.base_rate):
            if rate and 0 < float(rate) <= _FPS_MAX:
                return float(rate)
        pictures = self._stream.frames or self._tail(None).pictures
        return (pictures - 1) / last_s if pictures > 1 and last_s > 0 else 1.0

    def _measure_end(self) -> float:
        """Return when the last frame appears, by reading (not decoding) the packets after the last keyframe."""
        tail = self._tail(_FAR)
        if tail.last is not None:
            # If seeking is not bound to keyframes, the last frame may precede the last packet, and MPEG timestamps are
            # wrong for a while after a seek: the second read starts early enough for both.
            again = self._tail(self._pts_at(tail.last - _TAIL_S))
            tail = tail if again.last is None else again
        if tail.last is None or self._is_short(tail.end):
            tail = self._tail(None)
        self._end_s = tail.end
        if self._is_short(tail.end):
            promised = self._declared_s() or 0.0
            raise bad_input(
                f"{self._name} is cut off: its header says {promised:.1f} s, but it ends after {tail.end:.1f} s.",
                hint="Copy or download it again; if it is still being written, wait.",
            )
        return max(0.0, tail.last or 0.0)

    def _tail(self, after_pts: int | None) -> _Tail:
        """Read the packets from `after_pts` (None: from the start) to the end of the file."""
        last: float | None = None
        end, pictures = 0.0, 0
        try:
            if after_pts is None:
                self._container.seek(0)
            else:
                self._container.seek(after_pts, backward=True, stream=self._stream)
            # Not plain `demux()`: PyAV fails on tracks that first appear in the middle of the file.
            for packet in self._container.demux(tuple(self._container.streams)):
                pts = packet.pts if packet.pts is not None else packet.dts
                if pts is None or packet.time_base is None:
                    continue
                start = pts * float(packet.time_base) - self._first_pts * self._time_base
                end = max(end, start + (packet.duration or 0) * float(packet.time_base))
                if packet.stream_index == self._stream.index and not packet.is_discard:
                    last = start if last is None else max(last, start)
                    pictures += 1
        except AV_ERRORS:
            pass  # A damaged end is detected by comparing with the declared length.
        return _Tail(last, end, pictures)

    def _declared_s(self) -> float | None:
        """Return the end of the file by its header, in seconds after the first decodable frame; None: unknown."""
        if not self._container.duration:
            return None
        start = self._container.start_time
        first = self._first_pts * self._time_base
        return self._container.duration / av.time_base + (start / av.time_base - first if start is not None else 0.0)

    def _is_short(self, end: float) -> bool:
        promised = self._declared_s()
        return promised is not None and end < promised * _WHOLE - _WHOLE_SLACK_S

    def _decoded(self) -> Iterator[_Timed]:
        """Yield frames from the current position; packets that cannot be decoded are skipped, and their times noted."""
        has_begun = False  # without a keyframe, nothing can be decoded, which is no damage
        for packet in self._packets_in_order():
            if self._fruitless > _FRUITLESS_MAX:
                return
            has_begun = has_begun or packet.is_keyframe
            is_lost = self._is_broken(packet)
            try:
                frames = self._stream.decode(packet)
            except AV_ERRORS:
                frames, is_lost = [], True
            if is_lost and has_begun:
                self._note_loss(packet)
            self._fruitless += not frames
            for frame in frames:
                pts = _pts(frame)
                if pts is not None:
                    yield _Timed((pts - self._first_pts) * self._time_base, frame)

    def _note_loss(self, packet: av.Packet[av.VideoStream]) -> None:
        at = packet.pts if packet.pts is not None else packet.dts
        if at is not None:
            self._lost.add((at - self._first_pts) * self._time_base)

    def _is_broken(self, packet: av.Packet[av.VideoStream]) -> bool:
        """Return True if a packet is marked as damaged, has zeros where its codec writes none, or its parts do not add
        up to it. Some decoders hide that."""
        if packet.is_corrupt or self._stream.codec_context.name not in _WITHOUT_ZEROS:
            return packet.is_corrupt
        data, size, at = bytes(packet), self._length_size(), 0
        if _HOLE in data or (data and not data.strip(b"\0")):
            return True
        while size and at < len(data):
            at += size + int.from_bytes(data[at : at + size], "big")
        return at > len(data)

    def _length_size(self) -> int:
        """Return how many bytes state the length of each part of a packet; 0 if none do, as in a transport stream."""
        codec = self._stream.codec_context
        header, place = bytes(codec.extradata or b""), _LENGTH_SIZE_AT.get(codec.name, 0)
        return (header[place] & 3) + 1 if header[:1] == b"\1" and 0 < place < len(header) else 0

    def _packets_in_order(self) -> Iterator[av.Packet[av.VideoStream]]:
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets, None)
            except AV_ERRORS:
                return
            if packet is None:
                return
            yield packet

    def _frame_at(self, time: float) -> _Timed | None:
        """Return the frame shown at `time`. After an inexact seek it may be a later frame. None if this part of the
        file is damaged."""
        if self._keyframe_between(time):
            self._seek(time)
        while True:
            if self._next is None:
                self._next = next(self._packets, None)
            if self._next is None or (self._current is not None and self._next.time > time + self._slack):
                return self._current
            self._current, self._next = self._next, None

    def _keyframe_between(self, time: float) -> bool:
        """Return True if seeking to `time` saves decoding: there is a keyframe between the current frame and `time`.
        Without an index, a large distance counts as such."""
        if self._current is None:
            return False
        wanted = self._pts_at(time)
        entries = self._stream.index_entries
        number = entries.search_timestamp(wanted, backward=True) if len(entries) else -1
        if number < 0:
            return time - self._current.time > _SEEK_GAP_S
        return (entries[number].timestamp - self._first_pts) * self._time_base > self._current.time + self._slack

    def _pts_at(self, time: float) -> int:
        return self._first_pts + math.floor(time / self._time_base)

    def _seek(self, time: float) -> None:
        # Some demuxers only reach their first frame with a seek to before it; others refuse such a seek.
        for wanted in (time,) if time > 0 else (-_BEFORE_START_S, 0.0):
            try:
                self._container.seek(self._pts_at(wanted), backward=True, stream=self._stream)
            except AV_ERRORS:
                continue
            self._current = self._next = None
            self._packets = self._decoded()
            return

    def _to_rgb(self, frame: av.VideoFrame, size: tuple[int, int]) -> Pixels:
        width, height = (size[1], size[0]) if self._turn.is_transposed else size
        how: dict[str, Any] = {"width": width, "height": height}
        if frame.colorspace == _UNSPECIFIED and (frame.width >= _HD_WIDTH or frame.height > _SD_HEIGHT):
            how["src_colorspace"] = "ITU709"  # as players assume; libav assumes the matrix of small videos
        if any(component.is_alpha for component in frame.format.components):
            layers = cast(Any, frame.to_ndarray(format="rgba", **how))
            pixels = np.array(images.to_rgb(Image.fromarray(layers)).pixels)
        else:
            pixels = cast(Any, frame.to_ndarray(format="rgb24", **how))
        return self._turn.applied(pixels)


class _Turn(NamedTuple):
    """How frames are turned upright: transposed first, then flipped."""

    is_transposed: bool = False
    flips_columns: bool = False
    flips_rows: bool = False

    def applied(self, pixels: Pixels) -> Pixels:
        if self.is_transposed:
            pixels = pixels.swapaxes(0, 1)
        return np.ascontiguousarray(pixels[:: -1 if self.flips_rows else 1, :: -1 if self.flips_columns else 1])


_NEARLY = 0.02


def _display_turn(frame: av.VideoFrame) -> tuple[_Turn, tuple[str, ...]]:
    """Return how to turn frames upright by their display matrix, and a note if that is not to leave them.

    The matrix (ISO/IEC 14496-12) maps a pixel (x, y) to (a x + c y, b x + d y). Right angles and mirrors are honoured;
    a stretch is part of the pixel aspect ratio already.
    """
    matrix = cast(Any, frame.side_data).get("DISPLAYMATRIX")
    if matrix is None:
        return _Turn(), ()
    a, b, _, c, d = (value / 65536 for value in struct.unpack_from("=5i", bytes(matrix)))
    along, across = min(abs(a), abs(d)), min(abs(b), abs(c))
    if max(abs(b), abs(c)) <= _NEARLY * along:
        turn = _Turn(False, a < 0, d < 0)
    elif max(abs(a), abs(d)) <= _NEARLY * across:
        turn = _Turn(True, c < 0, b < 0)
    else:
        return _Turn(), (differs(f"its display matrix ({a:.3g} {b:.3g} {c:.3g} {d:.3g}) not applied"),)
    if a * d - b * c < 0:
        return turn, ("mirrored by its display matrix",)
    return turn, (("turned upright by its rotation mark",) if turn != _Turn() else ())


def _pts(frame: av.VideoFrame) -> int | None:
    """Return the presentation timestamp; AVI and raw streams only have decoding timestamps."""
    return frame.pts if frame.pts is not None else frame.dts


_DEFAULT_DURATION_MS = 100
"""Browsers show a frame this long if its duration is 10 ms or less."""
_SOON = 1e-6


class AnimatedImage:
    """A `VideoSource` for an image with one or more frames."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._path = path
        data = file.read(images.BYTES_MAX)
        self._image = images.open_image(data, path)
        self._frames_max = most_parts(self._image, len(data))
        try:
            # The first image of an animated PNG may be for viewers that can't play it, and no part of the animation.
            self._first = int(getattr(self._image, "default_image", False))
            self._starts, end = self._timeline()
            notes, size = self._first_frame(data)
        except images.DECODER_ERRORS as error:
            raise bad_input(
                f"{shown_name(path)} is cut off or damaged: its frames cannot be read.",
                detail=f"{type(error).__name__}: {error}",
                hint="Copy or download it again.",
            ) from error
        kind = str(self._image.format)
        self._facts = VideoFacts(
            format=kind,
            suffix=f".{kind.lower()}",
            width=size[0],
            height=size[1],
            fps=len(self._starts) / end,
            last_s=self._starts[-1],
            total_frames=len(self._starts),
            notes=notes,
        )

    @property
    def facts(self) -> VideoFacts:
        return self._facts

    def frames_at(self, times_s: Sequence[float], size: tuple[int, int]) -> Iterator[tuple[float, Pixels]]:
        """See `VideoSource.frames_at`. Transparency becomes white."""
        for time in times_s:
            number = max(bisect_right(self._starts, time + _SOON) - 1, 0)
            try:
                self._image.seek(self._first + number)
                frame = images.to_rgb(self._image.copy()).pixels
            except images.DECODER_ERRORS as error:
                raise bad_input(
                    f"Frame {number + 1} of {shown_name(self._path)} is damaged.",
                    detail=f"{type(error).__name__}: {error}",
                ) from error
            if frame.size != size:
                frame = frame.resize(size, Image.Resampling.BICUBIC)
            yield self._starts[number], np.array(frame)

    def damage_at(self, times_s: Sequence[float]) -> tuple[str, ...]:
        """See `VideoSource.damage_at`. The timeline has decoded each frame."""
        return ()

    def close(self) -> None:
        self._image.close()

    def _first_frame(self, data: bytes) -> tuple[tuple[str, ...], tuple[int, int]]:
        self._image.seek(self._first)
        made = images.to_rgb(self._image.copy())
        turned = (images.TURNED,) if images.orientation_of(self._image) != 1 else ()
        return (*turned, *made.notes, *images.untaken(self._image, data)), made.pixels.size

    def _timeline(self) -> tuple[list[float], float]:
        image, starts, now_ms = self._image, list[float](), 0.0
        is_large = image.width * image.height > FRAME_PIXELS_MAX
        if is_large and getattr(image, "is_animated", False):
            raise self._too_large(2)
        # A GIF does not store its frame count: asking Pillow for it would decode all frames.
        count = None if image.format == "GIF" else getattr(image, "n_frames", 1) - self._first
        if count is not None and count > self._frames_max:
            raise self._too_large(count)
        while len(starts) != count:
            try:
                image.seek(self._first + len(starts))
            except EOFError:
                if count is None and starts:
                    break
                raise
            if len(starts) == self._frames_max:
                raise self._too_large(len(starts) + 1)
            image.load()
            starts.append(now_ms / 1000)
            shown_ms = image.info.get("duration", 0)
            now_ms += shown_ms if isinstance(shown_ms, int | float) and shown_ms > 10 else _DEFAULT_DURATION_MS
        return starts, now_ms / 1000

    def _too_large(self, frames: int) -> VlmtuiError:
        image = self._image
        return bad_input(
            f"{shown_name(self._path)} has too many frames: at least {frames} of {image.width} × {image.height} "
            f"pixels; the limit at this size is {self._frames_max}.",
            hint="Convert it to MP4.",
        )


BYTES_MAX = 16_000_000_000


def stage_video(path: Path, store: Path, sampling: VideoSampling | None = None) -> Attachment:
    """Check a video file and store a copy. Blocking: call it in a thread.

    Decodes the first frame and, to note damage, the last one; of some codecs, up to eight of those that are sampled.
    Raises VlmtuiError (BAD_INPUT) naming the file and the reason.
    """
    sampling = sampling or VideoSampling()
    with opened(path, bytes_max=BYTES_MAX) as file:
        with open_video(file, path) as source:
            facts = source.facts
            times = target_times(facts, sampling, shown_name(path))
            damage = source.damage_at(times[:: -(-len(times) // _CHECKED_MAX)] + times[-1:])
        stored = store_copy(file, store, facts.suffix, name=shown_name(path))
        size_bytes = file.tell()
    return Attachment(
        modality="video",
        name=file_name(path),
        path=str(stored.path),
        sha256=stored.sha256,
        width=facts.width,
        height=facts.height,
        size_bytes=size_bytes,
        format=facts.format,
        notes=(*facts.notes, *damage),
        duration_s=facts.duration_s,
        fps=facts.fps,
        sampling=sampling,
        source=source_text(path),
    )


@contextmanager
def open_video(file: BinaryIO, path: Path) -> Iterator[VideoSource]:
    """Open the video in a file with the decoder for its format. `path`: the file that errors name. Raises
    VlmtuiError."""
    found = sniff(file.read(HEAD_BYTES))
    file.seek(0)
    source: VideoSource
    if found.kind in (Kind.ANIMATION, Kind.IMAGE):
        source = AnimatedImage(file, path)
    elif found.kind is Kind.VIDEO:
        source = ContainerVideo(file, path, found)
    else:
        raise bad_input(f"{shown_name(path)} is {found.title}, not a video.")
    try:
        yield source
    finally:
        source.close()
