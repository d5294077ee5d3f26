"""Draw the places of an answer on the picture: numbered, one colour a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from vlmtui.inspection.grounding import GroundingMark, PlacedMark

_COLOURS = ("#e6194b", "#4363d8", "#3cb44b", "#f58231", "#911eb4", "#008080", "#9a6324", "#808000")
_LINES_PER_SIDE = 300
"""A line is a three-hundredth of the longer side wide, so that it is seen in a large picture, too."""


class Badge(NamedTuple):
    """What a mark is told by: its number in the list, and its colour as `#rrggbb`."""

    number: int
    colour: str


def badges_of(marks: Sequence[GroundingMark]) -> list[Badge]:
    """Number the marks from 1; the colour is the same for the same label."""
    return [Badge(number, colour) for number, colour in enumerate(_colours_of(marks), 1)]


def _colours_of(marks: Sequence[GroundingMark]) -> list[str]:
    labels = list(dict.fromkeys(mark.label for mark in marks))
    colours = {label: _COLOURS[at % len(_COLOURS)] for at, label in enumerate(labels)}
    return [colours[mark.label] for mark in marks]


def draw_marks(
    picture: Image.Image,
    marks: Sequence[PlacedMark],
    *,
    badges: Sequence[Badge] | None = None,
    chosen: int | None = None,
    numbers: bool = True,
) -> Image.Image:
    """Return a copy of an RGB picture with the marks on it. `badges`: one a mark, by default those of `badges_of`.
    `chosen`: the index of the mark to draw last and with a thicker line. `numbers`: whether to write the numbers."""
    drawn = picture.copy()
    brush = ImageDraw.Draw(drawn)
    thin = max(1, max(picture.size) // _LINES_PER_SIDE)
    font = ImageFont.load_default(size=max(10, max(picture.size) // 50))
    badges = badges_of([placed.mark for placed in marks]) if badges is None else badges
    across, down = (side - 1 for side in picture.size)
    for at in sorted(range(len(marks)), key=lambda at: at == chosen):
        placed, (number, colour) = marks[at], badges[at]
        width = 2 * thin if at == chosen else thin
        points = [(min(x, across), min(y, down)) for x, y in placed.points]
        left, top = (min(axis) for axis in zip(*points, strict=True))
        right, bottom = (max(axis) for axis in zip(*points, strict=True))
        if placed.mark.kind == "point":
            brush.ellipse((left - 3 * width, top - 3 * width, left + 3 * width, top + 3 * width), fill=colour)
        elif placed.mark.kind == "polygon":
            brush.polygon(points, outline=colour, width=width)
        else:
            brush.rectangle((left, top, right, bottom), outline=colour, width=width)
        if numbers:
            _write_number(brush, number, (left, top), colour, font, picture.size)
    return drawn


def _write_number(
    brush: ImageDraw.ImageDraw,
    number: int,
    at: tuple[float, float],
    colour: str,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    size: tuple[int, int],
) -> None:
    """Write the number at a place, moved so far that it is inside of the picture."""
    box = brush.textbbox(at, str(number), font=font)
    at = at[0] - max(0, box[2] + 2 - size[0]), at[1] - max(0, box[3] + 2 - size[1])
    box = brush.textbbox(at, str(number), font=font)
    brush.rectangle((box[0] - 1, box[1] - 1, box[2] + 1, box[3] + 1), fill=colour)
    brush.text(at, str(number), fill="white", font=font)
