"""What is known of a video, and the moments at which it is looked at. Pure: no NumPy, no decoder."""

from __future__ import annotations

import math
from typing import NamedTuple

from vlmtui.domain.attachment import VideoSampling
from vlmtui.errors import bad_input

FRAMES_MAX = 4096
"""The most frames that may be asked for."""
_ROUNDING = 1e-6
"""Of a step: what floating point may take off the last one."""


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


def frames_asked(sampling: VideoSampling, duration_s: float) -> int:
    """At most so many frames; the video may have fewer."""
    if sampling.fps is None:
        return sampling.num_frames
    end = sampling.end_s
    inside = end is not None and end < duration_s
    steps = min(sampling.fps * max(0.0, (end if end is not None and inside else duration_s) - sampling.start_s), 1e9)
    return math.floor(steps) + 1 if inside else max(1, math.ceil(steps))
