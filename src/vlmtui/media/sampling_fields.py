"""Parses the form fields that select the frames of a video."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from vlmtui.domain.attachment import VideoSampling
from vlmtui.media.describe import clock
from vlmtui.media.sampling import FRAMES_MAX, most_frames

FIELDS = ("frames", "fps", "start", "end")

_TIME = re.compile(r"(?:(?:(\d{1,4}):)?(\d{1,5}):)?(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})")


class ParsedFields(NamedTuple):
    """The sampling, or None and the `problems` by field name."""

    sampling: VideoSampling | None
    problems: dict[str, str]


def read_fields(text: dict[str, str], duration_s: float | None) -> ParsedFields:
    """Parse the text of `FIELDS` and check it against the video's length."""
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
    """Format seconds so that `parse_time` returns them."""
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
