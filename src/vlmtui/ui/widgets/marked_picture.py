"""A picture with the places of an answer on it, for the terminal: full screen, or as a thumbnail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from vlmtui.inspection.grounding import PlacedMark
from vlmtui.session.answer_places import Badge, badges_of, draw_marks
from vlmtui.ui.terminal.graphics import Graphics

if TYPE_CHECKING:
    from PIL.Image import Image


_ENLARGED = 1000


class CellNumber(NamedTuple):
    """A number to write over a picture of characters, at a column and row."""

    column: int
    row: int
    text: str
    colour: str


class NumberedPicture(Widget):
    """A picture of characters, with numbers written over it: the pixels of a cell are too few to draw one."""

    ALLOW_SELECT = False

    def __init__(self, strips: Sequence[Strip], numbers: Sequence[CellNumber]) -> None:
        super().__init__()
        self._strips = numbered_strips(strips, numbers)

    def render_line(self, y: int) -> Strip:
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)


class MarkedDrawing(msgspec.Struct, frozen=True):
    """A drawing to make a widget of: `image` for the terminal's graphics, or `strips` and `numbers` for characters."""

    image: Image
    size: tuple[int, int]
    strips: list[Strip]
    numbers: list[CellNumber]

    def widget(self, graphics: Graphics) -> Widget | None:
        """Return the widget; None if pictures are off."""
        columns, rows = self.size
        if not self.strips:
            return graphics.widget_for(self.image, columns=columns, rows=rows)
        picture = NumberedPicture(self.strips, self.numbers)
        picture.styles.width, picture.styles.height = self.size
        return picture


def draw_marked(
    image: Image,
    marks: Sequence[PlacedMark],
    chosen: int | None,
    graphics: Graphics,
    room: tuple[int, int],
    badges: Sequence[Badge] | None = None,
) -> MarkedDrawing:
    """Draw an RGB picture with its marks into `room` (columns and rows). `badges`: one a mark; None: numbered from 1.
    Blocking.

    The picture is scaled first, so that lines and numbers are as thick as the screen needs them.
    """
    # The picture fills the room: a small one is enlarged.
    size = graphics.fit(image.width * _ENLARGED, image.height * _ENLARGED, columns=room[0], rows=room[1])
    cell = graphics.pixels
    target = max(1, size[0] * cell[0]), max(1, size[1] * cell[1])
    across, down = target[0] / image.width, target[1] / image.height
    scaled = [
        msgspec.structs.replace(one, points=tuple((x * across, y * down) for x, y in one.points)) for one in marks
    ]
    badges = badges_of([one.mark for one in marks]) if badges is None else badges
    has_pixels = not graphics.draws_symbols
    drawn = draw_marks(image.resize(target), scaled, badges=badges, chosen=chosen, numbers=has_pixels)
    if not graphics.draws_symbols:
        return MarkedDrawing(drawn, size, [], [])
    numbers = []
    for one, (number, colour) in zip(scaled, badges, strict=True):
        left, top = one.xyxy[:2]
        text = str(number)
        column, row = min(int(left / cell[0]), size[0] - len(text)), min(int(top / cell[1]), size[1] - 1)
        numbers.append(CellNumber(max(0, column), row, text, colour))
    if chosen is not None and chosen < len(numbers):
        numbers.append(numbers[chosen])  # on top
    return MarkedDrawing(drawn, size, graphics.strips(drawn, size), numbers)


def mark_at(marks: Sequence[PlacedMark], x: float, y: float, *, reach: float) -> int | None:
    """Return the index of the mark at a place of the picture: the smallest box that holds it, or else the nearest
    within `reach`, all in pixels; None if there is none."""
    found = []
    for at, one in enumerate(marks):
        left, top, right, bottom = one.xyxy
        away = max(left - x, x - right, 0.0) + max(top - y, y - bottom, 0.0)
        area = (right - left) * (bottom - top)
        if away <= reach:
            found.append((away if area else 0.0, area, at))  # a point is as good as a box around the place
    return min(found)[2] if found else None


def numbered_strips(strips: Sequence[Strip], numbers: Sequence[CellNumber]) -> list[Strip]:
    """Return the lines of a picture of characters with the numbers written over them."""
    return [_written_over(strip, [one for one in numbers if one.row == y]) for y, strip in enumerate(strips)]


def _written_over(strip: Strip, numbers: Sequence[CellNumber]) -> Strip:
    for one in numbers:
        end = min(one.column + len(one.text), strip.cell_length)
        style = Style(color="#ffffff", bgcolor=one.colour, bold=True)
        middle = Strip([Segment(one.text[: end - one.column], style)])
        strip = Strip.join([strip.crop(0, one.column), middle, strip.crop(end)])
    return strip
