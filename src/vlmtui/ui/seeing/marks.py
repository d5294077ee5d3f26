"""Images with the boxes and points of an answer, frames and grids on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from vlmtui.inspection.grounding import PlacedMark
from vlmtui.session.answer_places import Badge, badges_of, draw_marks
from vlmtui.ui.terminal.graphics import Drawing, Graphics
from vlmtui.ui.terminal.painter import CELLS_MAX

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

    from vlmtui.media.thumbnails import Viewport

_CRISP = 3.0
"""Above this magnification, pixels are shown as squares instead of being smoothed."""
_GRID = "#808080"


class MarkedDrawing(Drawing, frozen=True):
    """A part of an image with its marks, drawn by `draw_marked`."""

    box: tuple[float, float, float, float]
    """Left, top, right and bottom of the part, in pixels of the whole image."""


class Marks(NamedTuple):
    """What is drawn over an image: marks (boxes, points) with numbers and colours, frames around parts, and a grid."""

    placed: Sequence[PlacedMark] = ()
    badges: Sequence[Badge] | None = None
    """A number and a colour for each mark; None: numbers from 1."""
    chosen: int | None = None
    """The index of the mark to draw last and with a thicker line."""
    framed: tuple[float, float, float, float] | None = None
    """The part of the image to draw a frame around: left, top, right and bottom in its pixels."""
    grid: tuple[int, int] | None = None
    """Rows and columns of the lines over the image."""


def draw_marked(image: Image, marks: Marks, graphics: Graphics, room: tuple[int, int], view: Viewport) -> MarkedDrawing:
    """Draw the visible part of an RGB image with its marks, in at most `room` (columns, rows). A small image is
    enlarged. Blocking.

    The image is scaled first, so that lines and numbers have the right size on the screen.
    """
    from PIL.Image import Resampling

    room = min(room[0], CELLS_MAX), min(room[1], CELLS_MAX)
    within = room[0] * graphics.cell[0], room[1] * graphics.cell[1]
    scale, box = view.scale(image.size, within), view.box(image.size, within)
    left, top, wide, high = box[0], box[1], box[2] - box[0], box[3] - box[1]
    columns, rows = (
        max(1, min(most, round(side * scale / cell)))
        for most, side, cell in zip(room, (wide, high), graphics.cell, strict=True)
    )
    target = columns * graphics.pixels[0], rows * graphics.pixels[1]
    across, down = target[0] / wide, target[1] / high
    how = Resampling.NEAREST if min(across, down) > _CRISP else Resampling.BICUBIC
    scaled = image.resize(target, how, box=box, reducing_gap=2.0 if across < 1 else None)

    def moved(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
        return tuple(((x - left) * across, (y - top) * down) for x, y in points)

    all_badges = badges_of([one.mark for one in marks.placed]) if marks.badges is None else marks.badges
    order = sorted(range(len(marks.placed)), key=lambda at: at == marks.chosen)
    seen = [at for at in order if _overlap(marks.placed[at].xyxy, box)]
    placed = [msgspec.structs.replace(marks.placed[at], points=moved(marks.placed[at].points)) for at in seen]
    badges = [all_badges[at] for at in seen]
    chosen = len(seen) - 1 if seen and seen[-1] == marks.chosen else None
    drawn = draw_marks(scaled, placed, badges=badges, chosen=chosen, numbers=not graphics.draws_symbols)
    if marks.grid is not None:
        _draw_grid(drawn, marks.grid, moved([(0, 0), image.size]))
    if marks.framed is not None:
        (x, y), (right, bottom) = moved([marks.framed[:2], marks.framed[2:]])
        _pen(drawn).rectangle((x, y, max(x, right - 1), max(y, bottom - 1)), outline="white", width=_width(drawn))
    strips = graphics.draw(drawn, (columns, rows)).strips
    for one, (number, colour) in zip(placed, badges, strict=True) if strips else ():
        # Digits are written over the image: a cell has too few pixels to draw them.
        text, (x, y) = str(number), one.xyxy[:2]
        column, row = int(x / graphics.pixels[0]), int(y / graphics.pixels[1])
        row = max(0, min(row, rows - 1))
        strips[row] = _written_over(strips[row], max(0, min(column, columns - len(text))), text, colour)
    return MarkedDrawing(drawn, (columns, rows), strips, box)


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] <= other[2] and one[2] >= other[0] and one[1] <= other[3] and one[3] >= other[1]


def _pen(image: Image) -> ImageDraw:
    from PIL import ImageDraw

    return ImageDraw.Draw(image)


def _width(image: Image) -> int:
    """Return the width of a frame's line, in pixels."""
    return max(1, max(image.size) // 200)


def _draw_grid(image: Image, grid: tuple[int, int], corners: tuple[tuple[float, float], ...]) -> None:
    """Draw the inner lines of a grid. `corners`: the grid's left top and right bottom, in pixels of `image`."""
    (left, top), (right, bottom) = corners
    rows, columns = grid
    pen = _pen(image)
    for at in range(1, columns):
        x = left + (right - left) * at / columns
        pen.line((x, top, x, bottom), fill=_GRID)
    for at in range(1, rows):
        y = top + (bottom - top) * at / rows
        pen.line((left, y, right, y), fill=_GRID)


def mark_at(marks: Sequence[PlacedMark], x: float, y: float, *, reach: float) -> int | None:
    """Return the index of the mark at a place of the image: the smallest box that contains the place, or else the
    nearest mark within `reach`; None if there is none. `x`, `y` and `reach` are in pixels of the image."""
    found = []
    for at, one in enumerate(marks):
        left, top, right, bottom = one.xyxy
        away = max(left - x, x - right, 0.0) + max(top - y, y - bottom, 0.0)
        area = (right - left) * (bottom - top)
        if away <= reach:
            found.append((away if area else 0.0, area, at))  # a point within reach counts as a box around the place
    return min(found)[2] if found else None


def _written_over(strip: Strip, column: int, text: str, colour: str) -> Strip:
    end = min(column + len(text), strip.cell_length)
    middle = Strip([Segment(text[: end - column], Style(color="#ffffff", bgcolor=colour, bold=True))])
    return Strip.join([strip.crop(0, column), middle, strip.crop(end)])
