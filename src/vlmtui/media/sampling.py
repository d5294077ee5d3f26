"""The frames to sample from a video: their times, and the form in which the user chooses them. No NumPy, no decoder."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from vlmtui.domain.conversation import VideoSampling
from vlmtui.errors import bad_input
from vlmtui.media.describe import clock

FRAMES_MAX = 4096
_ROUNDING = 1e-6
"""Fraction of a step: tolerance for floating-point rounding of the last one."""


class VideoFacts(NamedTuple):
    """Facts of a video that are known before its frames are read. Times are seconds from its first frame."""

    format: str
    """The container's name: `MP4`, `GIF`."""
    suffix: str
    """File extension of the stored copy: `.mp4`."""
    width: int
    """Pixels, after rotation."""
    height: int
    fps: float
    """Mean frames per second; above 0."""
    last_s: float
    total_frames: int
    """At least 1. Derived from the times if the container does not state it."""
    notes: tuple[str, ...] = ()

    @property
    def duration_s(self) -> float:
        """Seconds from the first frame's start to the last one's end."""
        return self.last_s + 1.0 / self.fps


def target_times(facts: VideoFacts, sampling: VideoSampling, name: str) -> list[float]:
    """Return the times in seconds at which to sample, from start to end; never after the last frame.

    `num_frames` times including the start and the end; or, with `fps`, start, start + 1 / fps, and so on. Raises
    VlmtuiError (BAD_INPUT) for a sampling that is invalid for this video.
    """
    start, end = sampling.start_s, sampling.end_s
    if not (math.isfinite(start) and start >= 0) or (end is not None and not end > start):
        raise bad_input(f"The range from {start} s to {end} s of {name} is empty: the end must come after the start.")
    if start >= facts.duration_s:
        raise bad_input(f"{name} is only {facts.duration_s:.2f} s long; it can't start at {start:.2f} s.")
    if sampling.fps is not None:
        return _at_rate(facts, sampling.fps, start, end, name)
    last = min(facts.last_s, facts.last_s if end is None else end)
    start = min(start, last)
    count = sampling.num_frames
    if not 1 <= count <= FRAMES_MAX:
        raise bad_input(f"Can't sample {count} frames of {name}: choose 1 to {FRAMES_MAX}.")
    count = 1 if last <= start else min(count, facts.total_frames) if facts.total_frames > 1 else count
    step = (last - start) / max(count - 1, 1)
    return [start + step * number for number in range(count)]


def _at_rate(facts: VideoFacts, fps: float, start: float, end: float | None, name: str) -> list[float]:
    """Return the times from start to end at `fps` frames per second. Includes the end, unless that is the end of the
    video."""
    if not (math.isfinite(fps) and fps > 0):
        raise bad_input(f"Can't sample {fps:g} frames per second of {name}: choose a number above 0.")
    inside = end is not None and end < facts.duration_s
    length = (end if end is not None and inside else facts.duration_s) - start
    steps = length * fps + (_ROUNDING if inside else -_ROUNDING)
    if steps >= FRAMES_MAX:
        raise bad_input(
            f"{fps:g} frames per second of {name} is too many: more than {FRAMES_MAX} in {length:.1f} s.",
            hint="Choose fewer frames per second, or a shorter range.",
        )
    return [min(start + number / fps, facts.last_s) for number in range(max(math.floor(steps) + 1, 1))]


def most_frames(sampling: VideoSampling, duration_s: float) -> int:
    """Return the maximum number of frames that the sampling yields; the video may have fewer."""
    if sampling.fps is None:
        return sampling.num_frames
    end = sampling.end_s
    inside = end is not None and end < duration_s
    steps = min(sampling.fps * max(0.0, (end if end is not None and inside else duration_s) - sampling.start_s), 1e9)
    return math.floor(steps) + 1 if inside else max(1, math.ceil(steps))


FIELDS = ("frames", "fps", "start", "end")

_TIME = re.compile(r"(?:(?:(\d{1,4}):)?(\d{1,5}):)?(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})")


class ParsedFields(NamedTuple):
    """The sampling, or None and the `problems` by field name."""

    sampling: VideoSampling | None
    problems: dict[str, str]


def read_fields(text: dict[str, str], duration_s: float | None) -> ParsedFields:
    """Parse what the user typed into the form's fields (`FIELDS`), and check it against the video's length."""
    problems: dict[str, str] = {}
    text = {name: text[name].strip() for name in FIELDS}
    count = _read_count(text["frames"], {} if text["fps"] else problems)
    fps = _read_fps(text["fps"], problems)
    start, end = (_read_time(text[name], name, problems) for name in ("start", "end"))
    if start is not None and duration_s is not None and start >= duration_s:
        problems["start"] = f"the video ends at {clock(duration_s)}"
    if end is not None and "start" not in problems and end <= (start or 0.0):
        problems["end"] = "must come after the start"
    if problems:
        return ParsedFields(None, problems)
    sampling = VideoSampling(num_frames=count or VideoSampling().num_frames, fps=fps, start_s=start or 0.0, end_s=end)
    if fps is not None and duration_s is not None and most_frames(sampling, duration_s) > FRAMES_MAX:
        return ParsedFields(None, {"fps": f"more than {FRAMES_MAX:,} frames"})
    return ParsedFields(sampling, {})


def parse_time(text: str) -> float | None:
    """Parse `12.5`, `1:30` or `1:02:03.5` to seconds; None for anything else."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = match.groups()
    if (minutes is not None and float(seconds) >= 60) or (hours is not None and int(minutes) >= 60):
        return None
    return int(hours or 0) * 3600.0 + int(minutes or 0) * 60.0 + float(seconds)


def time_text(seconds: float) -> str:
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


def _read_count(text: str, problems: dict[str, str]) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= FRAMES_MAX and len(text) < 10):
        problems["frames"] = f"a number from 1 to {FRAMES_MAX:,}"
        return 0
    return int(text)


def _read_fps(text: str, problems: dict[str, str]) -> float | None:
    if not text:
        return None
    try:
        fps = float(text)
    except ValueError:
        fps = math.nan
    if not (math.isfinite(fps) and fps > 0):
        problems["fps"] = "a number above 0, or empty"
        return None
    return fps


def _read_time(text: str, name: str, problems: dict[str, str]) -> float | None:
    seconds = parse_time(text) if text else None
    if text and seconds is None:
        problems[name] = "a time: 12.5 or 1:02:03"
    return seconds
