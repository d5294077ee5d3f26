"""Contact sheets: the sampled frames of a video in rows of thumbnails, sized for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.media.describe import clock

if TYPE_CHECKING:
    from PIL.Image import Image

DRAWN_MAX = 256
"""Maximum number of frames to draw; of later ones only the times are shown."""

_NARROWEST = 11
"""Minimum width of a frame and its gap in cells, so that a time fits below."""
_LOWEST = 5
"""Minimum height of a frame in cells."""
_HIGHEST = 14
"""Maximum height of a frame in cells."""

Rgb = tuple[int, int, int]


class Room(NamedTuple):
    """The space for a sheet in terminal cells; a sheet with more rows scrolls."""

    columns: int
    rows: int
    cell: tuple[int, int]
    """Width and height of a terminal cell, in pixels."""
    drawn: tuple[int, int]
    """How many pixels are drawn per cell: 1 × 2 for half-block characters."""


class Grid(NamedTuple):
    """The layout of a sheet: frames per row (`per_row`), a frame's width in cells including the gap (`column`), and its
    height in cells without the line of times (`high`)."""

    per_row: int
    column: int
    high: int


class Sheet(msgspec.Struct, frozen=True):
    """The sampled frames, drawn as one image per row. `times_s` covers all frames."""

    times_s: tuple[float, ...]
    grid: Grid
    rows: tuple[Image, ...]

    def times_of(self, row: int) -> str:
        first = row * self.grid.per_row
        names = [clock(time) for time in self.times_s[first : first + self.grid.per_row]]
        return "".join(name.ljust(self.grid.column) for name in names).rstrip()

    @property
    def lines(self) -> int:
        """Number of rows of the whole sheet. Only the first DRAWN_MAX frames are drawn."""
        return math.ceil(len(self.times_s) / self.grid.per_row)


def make_sheet(attachment: Attachment, sampling: VideoSampling, room: Room | None, gap: Rgb) -> Sheet:
    """Draw the frames that `sampling` selects, with the function that also selects the model's frames.

    If `room` is None, only the times are filled in. `gap` is the colour between the frames. Blocking. Raises
    VlmtuiError.
    """
    from vlmtui.media.frames import sample_frames  # imports NumPy and libav

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


def _grid(count: int, shape: float, room: Room) -> Grid:
    """Return the grid with the largest frames that all fit at once, or the smallest frames if they must scroll.

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
    """Return a frame's width and height in cells. The height is rounded to half a cell, so that the edges stay
    sharp."""
    width = min(grid.column - 1, grid.high * shape)
    return max(1, round(width)), max(1, round(min(width / shape, grid.high) * 2)) / 2
