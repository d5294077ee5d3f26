"""Video containers (MP4, MKV, WebM, MOV, AVI, …) read with PyAV: by seeking, one decoded frame at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import av
import av.error
import numpy as np

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.sampling import VideoFacts
from vlmtui.media.sniff import FileType
from vlmtui.media.video_source import Pixels
from vlmtui.reading import shown_name

_DEMUXERS = "mov,mp4,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,ogg,asf"
"""The formats libav may take a file for; no playlists (HLS, DASH, concat), which open other files and URLs."""
_ERRORS = (av.error.FFmpegError, OSError, ValueError, LookupError, RuntimeError, MemoryError)
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
"""Pixels of one frame: 8K has 33 million. Decoders keep several at a time."""
_FPS_MAX = 1000.0
_FAR = 2**62
_STRETCH_MAX = 4.0
"""Pixels more oblong than this are a damaged mark, not a film's."""
_NEARLY_SQUARE = 0.01
_SLACK_S = 0.004
"""Containers that count in milliseconds round the times of frames."""
_IO_BUFFER = 256 * 1024
_SEEK_GAP_S = 4.0
"""Where the file has no index, decoding on is taken to be cheaper than seeking up to this distance."""
_RETRY_BACK_S = (2.0, 10.0, 60.0)
"""How much earlier to seek when an inexact index led past the wanted frame."""
_BEFORE_START_S = 10.0
_TAIL_S = 2.0
"""Longer than any reordering of frames."""
_WHOLE = 0.9
"""A file that ends before this part of its promised length is cut off."""
_WHOLE_SLACK_S = 0.5


class _Tail(NamedTuple):
    """What the packets up to the end of the file tell. Times are seconds from the video's first frame."""

    last: float | None
    """When the last picture appears; None where no picture was found."""
    end: float
    """When the last packet of any track ends."""
    pictures: int


class _Timed(NamedTuple):
    time: float
    """Seconds from the video's first frame."""
    frame: av.VideoFrame


class ContainerVideo:
    """A `VideoSource` over a video container. `file` must stay open as long as this is used."""

    def __init__(self, file: BinaryIO, path: Path, file_type: FileType) -> None:
        # Given a file and no name, libav can open nothing else, and the name may hold any bytes.
        self._name = shown_name(path)
        av.logging.set_level(None)
        try:
            self._container = av.open(
                file, "r", options={"format_whitelist": _DEMUXERS}, metadata_errors="replace", buffer_size=_IO_BUFFER
            )
        except _ERRORS as error:
            raise self._damaged(
                f"is cut off or damaged: it begins like {file_type.title}, but cannot be opened", error
            ) from error
        try:
            self._stream = self._video_stream(file_type)
            self._time_base = float(self._stream.time_base or 1 / 90000)
            self._first_pts = 0
            self._packets = self._decoded()
            self._current: _Timed | None = None
            self._next: _Timed | None = None
            self._facts = self._read_facts(file_type)
        except _ERRORS as error:
            self.close()
            raise self._damaged("is damaged: its frames cannot be read", error) from error
        except VlmtuiError:
            self.close()
            raise

    @property
    def facts(self) -> VideoFacts:
        return self._facts

    def close(self) -> None:
        self._container.close()

    def frames_at(self, times_s: Sequence[float], size: tuple[int, int]) -> Iterator[tuple[float, Pixels]]:
        """As `VideoSource.frames_at`. A part that cannot be decoded is passed over."""
        self._seek(times_s[0])
        for time in times_s:
            found = self._frame_at(time)
            for back in _RETRY_BACK_S:
                if found is not None and found.time <= time + self._slack:
                    break
                self._seek(time - back)
                found = self._frame_at(time)
            if found is not None:
                yield found.time, self._to_rgb(found.frame, size)

    def _video_stream(self, file_type: FileType) -> av.VideoStream:
        covers = av.stream.Disposition.attached_pic
        streams = [stream for stream in self._container.streams.video if not stream.disposition & covers]
        if not streams:
            sound = self._container.streams.audio
            raise bad_input(
                f"{self._name} is {file_type.title} without a picture track{', only sound' if sound else ''}."
            )
        stream = streams[0]
        if getattr(stream, "codec_context", None) is None:
            raise bad_input(
                f"{self._name} holds video in a codec that is not known here.", hint="Convert it to H.264 in MP4."
            )
        stream.thread_type = "AUTO"
        if stream.codec_context.width * stream.codec_context.height > FRAME_PIXELS_MAX:
            size = f"{stream.codec_context.width} × {stream.codec_context.height}"
            raise bad_input(f"{self._name} has frames that are far too large: {size} pixels.")
        return stream

    def _read_facts(self, file_type: FileType) -> VideoFacts:
        first = next(self._packets, None)
        if first is None:
            raise bad_input(
                f"{self._name} has a picture track, but no frame in it can be decoded: it is cut off or damaged.",
                hint="Copy or download it again; if it is still being written, wait.",
            )
        self._first_pts = _pts(first.frame) or 0
        self._turns = round(first.frame.rotation / 90) % 4
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
            width=height if self._turns % 2 else width,
            height=width if self._turns % 2 else height,
            fps=fps,
            last_s=last_s,
            total_frames=max(self._stream.frames, 1) if self._stream.frames else round(last_s * fps) + 1,
            notes=(*stretched, *(("turned upright by its rotation mark",) if self._turns else ())),
        )

    def _display_size(self, frame: av.VideoFrame) -> tuple[int, int, tuple[str, ...]]:
        """Width and height with square pixels, before any turn; nothing is made smaller. A note when stretched."""
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
        """When the last frame appears, found by reading the packets (not decoding them) after the last keyframe."""
        tail = self._tail(_FAR)
        if tail.last is not None:
            # Where seeking is not bound to keyframes, the last picture may have come before the last packet, and
            # MPEG counts wrongly for a while after the seek: the second look starts early enough for both.
            again = self._tail(self._pts_at(tail.last - _TAIL_S))
            tail = tail if again.last is None else again
        if tail.last is None or self._is_short(tail.end):
            tail = self._tail(None)
        if self._is_short(tail.end):
            promised = self._promised_s() or 0.0
            raise bad_input(
                f"{self._name} is cut off: it says that it is {promised:.1f} s long, but ends after {tail.end:.1f} s.",
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
            # Not `demux()`: PyAV stumbles over tracks that appear in the midst of the file.
            for packet in self._container.demux(tuple(self._container.streams)):
                pts = packet.pts if packet.pts is not None else packet.dts
                if pts is None or packet.time_base is None:
                    continue
                start = pts * float(packet.time_base) - self._first_pts * self._time_base
                end = max(end, start + (packet.duration or 0) * float(packet.time_base))
                if packet.stream_index == self._stream.index and not packet.is_discard:
                    last = start if last is None else max(last, start)
                    pictures += 1
        except _ERRORS:
            pass  # What a damaged end leaves unread is found out by comparing with the promised length.
        return _Tail(last, end, pictures)

    def _promised_s(self) -> float | None:
        return self._container.duration / 1_000_000 if self._container.duration else None

    def _is_short(self, end: float) -> bool:
        promised = self._promised_s()
        return promised is not None and end < promised * _WHOLE - _WHOLE_SLACK_S

    def _decoded(self) -> Iterator[_Timed]:
        """Frames from where the file stands; packets that cannot be decoded are passed over."""
        for packet in self._packets_in_order():
            try:
                frames = self._stream.decode(packet)
            except _ERRORS:
                continue
            for frame in frames:
                pts = _pts(frame)
                if pts is not None:
                    yield _Timed((pts - self._first_pts) * self._time_base, frame)

    def _packets_in_order(self) -> Iterator[av.Packet[av.VideoStream]]:
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets, None)
            except _ERRORS:
                return
            if packet is None:
                return
            yield packet

    def _frame_at(self, time: float) -> _Timed | None:
        """The frame that is on screen at `time`; after an inexact seek maybe a later one; None at a damaged place."""
        if self._keyframe_between(time):
            self._seek(time)
        while True:
            if self._next is None:
                self._next = next(self._packets, None)
            if self._next is None or (self._current is not None and self._next.time > time + self._slack):
                return self._current
            self._current, self._next = self._next, None

    def _keyframe_between(self, time: float) -> bool:
        """Whether seeking to `time` lands after the frame at hand, so that decoding on would be a waste."""
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
        # Some demuxers reach their first frame only when asked for what is before it, others refuse just that.
        for wanted in (time,) if time > 0 else (-_BEFORE_START_S, 0.0):
            try:
                self._container.seek(self._pts_at(wanted), backward=True, stream=self._stream)
            except _ERRORS:
                continue
            self._current = self._next = None
            self._packets = self._decoded()
            return

    def _to_rgb(self, frame: av.VideoFrame, size: tuple[int, int]) -> Pixels:
        width, height = (size[1], size[0]) if self._turns % 2 else size
        pixels = cast(Any, frame.to_ndarray(format="rgb24", width=width, height=height))
        return cast(Pixels, np.ascontiguousarray(np.rot90(pixels, self._turns)))

    def _damaged(self, state: str, error: BaseException) -> VlmtuiError:
        return bad_input(
            f"{self._name} {state}.",
            detail=f"{type(error).__name__}: {error}",
            hint="Copy or download it again; if it is still being written, wait.",
        )


def _pts(frame: av.VideoFrame) -> int | None:
    """AVI and raw streams have decoding times only."""
    return frame.pts if frame.pts is not None else frame.dts
