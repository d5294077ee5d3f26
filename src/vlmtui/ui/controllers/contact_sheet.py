"""The sampled frames of a video as rows of small pictures, and what is typed to choose them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vlmtui.domain.attachment import Attachment, VideoSampling

if TYPE_CHECKING:
    from PIL.Image import Image

FRAMES_MAX = 4096
"""As `vlmtui.media.video.FRAMES_MAX`, which brings NumPy along."""
DRAWN_MAX = 256
"""Frames that are drawn; of the ones after that only the times are shown."""
FIELDS = ("frames", "fps", "start", "end")

_TIME = re.compile(r"(?:(?:(\d{1,4}):)?(\d{1,5}):)?(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})")
_NARROWEST = 11
"""Cells of a frame with the gap beside it: a time fits."""
_LOWEST, _HIGHEST = 5, 14
"""Cells of the height of a frame."""

Rgb = tuple[int, int, int]


class Room(NamedTuple):
    """What a sheet may take. `columns` and `rows` are terminal cells; what needs more rows is scrolled."""

    columns: int
    rows: int
    cell: tuple[int, int]
    """Width and height of a terminal cell, in pixels."""
    drawn: tuple[int, int]
    """As many of its pixels are drawn: 1 × 2 where cells are halved and coloured."""


class Grid(NamedTuple):
    """Frames a row, the cells of each with the gap beside it, and of its height without the time below."""

    per_row: int
    column: int
    high: int


class Sheet(msgspec.Struct, frozen=True):
    """The frames that are sent, a picture a row of them. `times_s` are those of all frames."""

    times_s: tuple[float, ...]
    grid: Grid
    rows: tuple[Image, ...]

    def times_of(self, row: int) -> str:
        """The line below a row of frames."""
        first = row * self.grid.per_row
        names = [clock(time) for time in self.times_s[first : first + self.grid.per_row]]
        return "".join(name.ljust(self.grid.column) for name in names).rstrip()

    @property
    def lines(self) -> int:
        """Rows of frames, the ones that are not drawn included."""
        return math.ceil(len(self.times_s) / self.grid.per_row)


class Entered(NamedTuple):
    """What the fields say; `problems` by the field's name, and no sampling where there is one."""

    sampling: VideoSampling | None
    problems: dict[str, str]


def make_sheet(attachment: Attachment, sampling: VideoSampling, room: Room | None, gap: Rgb) -> Sheet:
    """The frames that `sampling` asks for, by the very function that makes them for the model.

    Without `room` nothing is drawn. `gap` is the colour between the frames. Blocking. Raises VlmtuiError.
    """
    from vlmtui.media.video import sample_frames

    sampled = sample_frames(attachment.path, sampling)
    count, height, width = sampled.frames.shape[:3]
    if room is None:
        return Sheet(sampled.times_s, Grid(1, _NARROWEST, 0), ())
    from PIL import Image

    shape = width / room.cell[0] / (height / room.cell[1])
    grid = _grid(count, shape, room)
    wide, high = room.drawn
    rows: list[Image.Image] = []
    for first in range(0, min(count, DRAWN_MAX), grid.per_row):
        row = Image.new("RGB", (grid.per_row * grid.column * wide, grid.high * high), gap)
        for place, pixels in enumerate(sampled.frames[first : first + grid.per_row]):
            size = _frame_cells(grid, shape)
            target = (round(size[0] * wide), round(size[1] * high))
            row.paste(Image.fromarray(pixels).resize(target, reducing_gap=2.0), (place * grid.column * wide, 0))
        rows.append(row)
    return Sheet(sampled.times_s, grid, tuple(rows))


def read_fields(text: dict[str, str], duration_s: float | None) -> Entered:
    """What was typed into `FIELDS`, checked against the video's length."""
    problems: dict[str, str] = {}
    text = {name: text[name].strip() for name in FIELDS}
    count = _read_count(text["frames"], {} if text["fps"] else problems)
    fps = _read_fps(text["fps"], problems)
    start, end = (_read_time(text[name], name, problems) for name in ("start", "end"))
    if start is not None and duration_s is not None and start >= duration_s:
        problems["start"] = f"it ends at {clock(duration_s)}"
    if end is not None and "start" not in problems and end <= (start or 0.0):
        problems["end"] = "must come after the start"
    if problems:
        return Entered(None, problems)
    sampling = VideoSampling(num_frames=count or VideoSampling().num_frames, fps=fps, start_s=start or 0.0, end_s=end)
    if fps is not None and duration_s is not None and frames_asked(sampling, duration_s) > FRAMES_MAX:
        return Entered(None, {"fps": f"more than {FRAMES_MAX:,} frames"})
    return Entered(sampling, {})


def frames_asked(sampling: VideoSampling, duration_s: float) -> int:
    """At most so many frames; the video may have fewer."""
    if sampling.fps is None:
        return sampling.num_frames
    end = sampling.end_s
    inside = end is not None and end < duration_s
    steps = min(sampling.fps * max(0.0, (end if end is not None and inside else duration_s) - sampling.start_s), 1e9)
    return math.floor(steps) + 1 if inside else max(1, math.ceil(steps))


def parse_time(text: str) -> float | None:
    """Seconds from `12.5`, `1:30` or `1:02:03.5`; None for anything else."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = match.groups()
    if (minutes is not None and float(seconds) >= 60) or (hours is not None and int(minutes) >= 60):
        return None
    return int(hours or 0) * 3600.0 + int(minutes or 0) * 60.0 + float(seconds)


def clock(seconds: float) -> str:
    """`1.25 s`, `1:02.50`, `1:00:05.00`."""
    hundredths = round(seconds * 100)
    if hundredths < 6000:
        return f"{hundredths / 100:.2f} s"
    minutes, rest = divmod(hundredths, 6000)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}:{minutes:02}" if hours else f"{minutes}") + f":{rest / 100:05.2f}"


def time_text(seconds: float) -> str:
    """As it would be typed: `parse_time` gives it back."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


def _grid(count: int, shape: float, room: Room) -> Grid:
    """The largest frames of which all are seen at once; the smallest, where some have to be scrolled to.

    `shape` is a frame's width by its height, in cells.
    """
    grid = Grid(1, room.columns, _LOWEST)
    for high in range(_HIGHEST, _LOWEST - 1, -1):
        ideal = max(high * shape + 1, _NARROWEST)
        per_row = max(1, min(round(room.columns / ideal), room.columns // _NARROWEST))
        column = min(room.columns // per_row, math.ceil(ideal))
        grid = Grid(per_row, column, min(high, max(1, math.ceil((column - 1) / shape))))
        if math.ceil(count / per_row) * (grid.high + 1) <= room.rows:
            break
    return grid


def _frame_cells(grid: Grid, shape: float) -> tuple[int, float]:
    """Width and height of a frame within its place, to half a cell: what ends within one would have a dim edge."""
    width = min(grid.column - 1, grid.high * shape)
    return max(1, round(width)), max(1, round(min(width / shape, grid.high) * 2)) / 2


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
