"""Videos on their way in, and the one function that turns a video into frames.

`sample_frames` serves the contact sheet and the model alike, so that what is shown is what is sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.media.files import file_name, opened, shown, store_copy
from vlmtui.media.kept import require_kept, source_text
from vlmtui.media.sniff import HEAD_BYTES, Kind, sniff

BYTES_MAX = 16_000_000_000
"""Bytes of one video file."""
FRAMES_PIXELS_MAX = 256_000_000
"""Pixels of all sampled frames together (768 MB as RGB); beyond that the frames are scaled down evenly."""
FRAMES_MAX = 4096
"""The most frames that may be asked for."""

_ROUNDING = 1e-6
"""Of a step: what floating point may take off the last one."""

Pixels = npt.NDArray[np.uint8]


class VideoFacts(NamedTuple):
    """What is known of a video before its frames are read. Times are seconds from its first frame."""

    format: str
    """The container's name: `MP4`, `GIF`."""
    suffix: str
    """The ending of the stored copy: `.mp4`."""
    width: int
    """Pixels, upright."""
    height: int
    fps: float
    """Mean frames a second; above 0."""
    last_s: float
    """When the last frame appears."""
    total_frames: int
    """At least 1. Counted from the times where the container does not say."""
    notes: tuple[str, ...] = ()

    @property
    def duration_s(self) -> float:
        """From the first frame's appearance to the last one's end."""
        return self.last_s + 1.0 / self.fps


class VideoSource(Protocol):
    """An open video."""

    @property
    def facts(self) -> VideoFacts: ...

    def frames_at(self, times_s: Sequence[float], size: tuple[int, int]) -> Iterator[tuple[float, Pixels]]:
        """For each time (ascending) the frame that is on screen then: its own time, and `(H, W, 3) uint8` RGB.

        `size` is (width, height) in pixels, upright.
        """
        ...

    def close(self) -> None: ...


class Frames(msgspec.Struct, frozen=True, eq=False):
    """Frames of a video, in order, each source frame at most once.

    frames: `(T, H, W, 3) uint8`, RGB, upright. times_s: when each appears, seconds from the video's first frame.
    indices: each frame's number at a steady `fps`, so that `index / fps` is its time: in a video of constant frame
    rate that is its number in the file. duration_s, total_frames: of the whole video.
    """

    frames: Pixels
    times_s: tuple[float, ...]
    indices: tuple[int, ...]
    fps: float
    duration_s: float
    total_frames: int

    def vllm_metadata(self) -> dict[str, Any]:
        """What goes with the frames as vLLM's `(frames, metadata)` video item (transformers' `VideoMetadata`)."""
        return {
            "fps": self.fps,
            "duration": self.duration_s,
            "total_num_frames": self.total_frames,
            "frames_indices": list(self.indices),
            "video_backend": "pyav",
            "do_sample_frames": False,
        }


def stage_video(path: Path, store: Path, sampling: VideoSampling | None = None) -> Attachment:
    """Check a video file and keep a copy of it in `store`. Blocking: call it in a thread.

    Its first frame is decoded, its end is looked for. Raises VlmtuiError (BAD_INPUT) naming the file and the reason.
    """
    sampling = sampling or VideoSampling()
    with opened(path, bytes_max=BYTES_MAX) as file:
        with _source(file, path) as source:
            facts = source.facts
            target_times(facts, sampling, shown(path))
        stored = store_copy(file, store, facts.suffix, name=shown(path))
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
        notes=facts.notes,
        duration_s=facts.duration_s,
        fps=facts.fps,
        sampling=sampling,
        source=source_text(path),
    )


def sample_frames(path: str | Path, sampling: VideoSampling | None = None) -> Frames:
    """The frames that `sampling` asks for (default: `VideoSampling()`), uniform in time from start to end.

    Fewer than asked for where the video has fewer. Blocking; reads by seeking, in memory that does not grow with the
    video's length. Raises VlmtuiError (BAD_INPUT) when the file cannot be read or holds nothing at that time, and
    when a stored copy is no longer what was attached.
    """
    path, sampling = Path(path), sampling or VideoSampling()
    require_kept(path)
    with opened(path, bytes_max=BYTES_MAX) as file, _source(file, path) as source:
        facts = source.facts
        targets = target_times(facts, sampling, shown(path))
        size = _fitting_size(facts, len(targets))
        times: list[float] = []
        frames: list[Pixels] = []
        for time, pixels in source.frames_at(targets, size):
            if not times or time > times[-1]:
                times.append(time)
                frames.append(pixels)
    if not frames:
        raise bad_input(f"{shown(path)} has no frame that can be decoded in that part.")
    indices = _indices(times, facts.fps)
    return Frames(
        frames=np.stack(frames),
        times_s=tuple(times),
        indices=indices,
        fps=facts.fps,
        duration_s=facts.duration_s,
        total_frames=max(facts.total_frames, indices[-1] + 1),
    )


def target_times(facts: VideoFacts, sampling: VideoSampling, name: str) -> list[float]:
    """When to look, in seconds, from start to end; never after the last frame.

    `num_frames` times, the first and the last of the part among them; or, with `fps`, start, start + 1 / fps, and so
    on. Raises VlmtuiError (BAD_INPUT) for a sampling that makes no sense for this video.
    """
    start, end = sampling.start_s, sampling.end_s
    if not (math.isfinite(start) and start >= 0) or (end is not None and not end > start):
        raise bad_input(f"The part of {name} from {start} s to {end} s is empty: the end must come after the start.")
    if start >= facts.duration_s:
        raise bad_input(f"{name} is {facts.duration_s:.2f} s long: nothing is there at {start:.2f} s.")
    if sampling.fps is not None:
        return _at_rate(facts, sampling.fps, start, end, name)
    last = min(facts.last_s, facts.last_s if end is None else end)
    start = min(start, last)
    count = sampling.num_frames
    if not 1 <= count <= FRAMES_MAX:
        raise bad_input(f"{count} frames of {name} cannot be sampled: ask for 1 to {FRAMES_MAX}.")
    count = 1 if last <= start else min(count, facts.total_frames) if facts.total_frames > 1 else count
    step = (last - start) / max(count - 1, 1)
    return [start + step * number for number in range(count)]


def _at_rate(facts: VideoFacts, fps: float, start: float, end: float | None, name: str) -> list[float]:
    """`fps` times a second from start to end, the end included; the video's own end, where nothing is, is not."""
    if not (math.isfinite(fps) and fps > 0):
        raise bad_input(f"{fps:g} frames a second of {name} cannot be sampled: ask for a number above 0.")
    inside = end is not None and end < facts.duration_s
    length = (end if end is not None and inside else facts.duration_s) - start
    steps = length * fps + (_ROUNDING if inside else -_ROUNDING)
    if steps >= FRAMES_MAX:
        raise bad_input(
            f"{fps:g} frames a second of {name} are too many: more than {FRAMES_MAX} in {length:.1f} s.",
            hint="Ask for fewer frames a second, or for a shorter part of the video.",
        )
    return [min(start + number / fps, facts.last_s) for number in range(max(math.floor(steps) + 1, 1))]


@contextmanager
def _source(file: BinaryIO, path: Path) -> Iterator[VideoSource]:
    sniffed = sniff(file.read(HEAD_BYTES))
    file.seek(0)
    source: VideoSource
    if sniffed.kind in (Kind.ANIMATION, Kind.IMAGE):
        from vlmtui.media.animation import AnimatedImage

        source = AnimatedImage(file, path)
    elif sniffed.kind is Kind.VIDEO:
        from vlmtui.media.container import ContainerVideo

        source = ContainerVideo(file, path, sniffed.what)
    else:
        raise bad_input(f"{shown(path)} is {sniffed.what}, not a video.")
    try:
        yield source
    finally:
        source.close()


def _fitting_size(facts: VideoFacts, count: int) -> tuple[int, int]:
    pixels = facts.width * facts.height * count
    scale = min(1.0, math.sqrt(FRAMES_PIXELS_MAX / pixels))
    return max(1, int(facts.width * scale)), max(1, int(facts.height * scale))


def _indices(times: Sequence[float], fps: float) -> tuple[int, ...]:
    """Strictly rising, also where two frames of a varying rate come closer than 1 / fps."""
    found: list[int] = []
    for time in times:
        index = round(time * fps)
        found.append(max(index, found[-1] + 1) if found else index)
    return tuple(found)
