"""Draws the places of an answer on its picture, numbered, one colour a label; of a video, on a sheet of its frames."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from vlmtui.errors import VlmtuiError
from vlmtui.inspection.grounding import GroundingMark, PlacedMark
from vlmtui.media.describe import clock
from vlmtui.session.answer_places import AnswerPlaces, ShownMedium, open_shown
from vlmtui.text import one_line

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

_COLOURS = ("#e6194b", "#4363d8", "#3cb44b", "#f58231", "#911eb4", "#008080", "#9a6324", "#808000")
_LINES_PER_SIDE = 300
"""A line is a three-hundredth of the longer side wide, so that it is seen in a large picture, too."""
FRAMES_MAX = 16
"""Most frames of a sheet."""
_SIDE_MAX = 640
"""Of a frame in a sheet, in pixels."""
_CAPTION = 22
"""Height of the lines below a frame, in pixels."""


class Badge(NamedTuple):
    """What a mark is told by: its number in the list, and its colour as `#rrggbb`."""

    number: int
    colour: str


def badges_of(marks: Sequence[GroundingMark]) -> list[Badge]:
    """Number the marks from 1; the colour is the same for the same label."""
    labels = list(dict.fromkeys(mark.label for mark in marks))
    colours = {label: _COLOURS[at % len(_COLOURS)] for at, label in enumerate(labels)}
    return [Badge(number, colours[mark.label]) for number, mark in enumerate(marks, 1)]


def draw_marks(
    picture: Image,
    marks: Sequence[PlacedMark],
    *,
    badges: Sequence[Badge] | None = None,
    chosen: int | None = None,
    numbers: bool = True,
) -> Image:
    """Return a copy of an RGB picture with the marks on it. `badges`: one a mark, by default those of `badges_of`.
    `chosen`: the index of the mark to draw last and with a thicker line. `numbers`: whether to write the numbers."""
    from PIL import ImageDraw, ImageFont

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
    brush: ImageDraw,
    number: int,
    at: tuple[float, float],
    colour: str,
    font: FreeTypeFont | ImageFont,
    size: tuple[int, int],
) -> None:
    """Write the number at a place, moved so far that it is inside of the picture."""
    box = brush.textbbox(at, str(number), font=font)
    at = at[0] - max(0, box[2] + 2 - size[0]), at[1] - max(0, box[3] + 2 - size[1])
    box = brush.textbbox(at, str(number), font=font)
    brush.rectangle((box[0] - 1, box[1] - 1, box[2] + 1, box[3] + 1), fill=colour)
    brush.text(at, str(number), fill="white", font=font)


def draw_places(places: AnswerPlaces) -> Image:
    """Return the image with its marks, mode RGB. Of a video: the frame of each time that the answer names, at most
    FRAMES_MAX of them, with the time ranges that begin there, grey where it has none; without a time its first frame.

    Blocking. Raises VlmtuiError for an image that can't be read."""
    if places.image.modality != "video":
        return draw_marks(open_shown(ShownMedium(places.image)), places.placed)
    named = {places.medium_of(at) for at in range(len(places.marks) + len(places.ranges))}
    shown = sorted(named, key=lambda one: one.second)[:FRAMES_MAX]
    return _sheet([_frame(places, one) for one in shown or [ShownMedium(places.image)]])


def range_line(start_s: float, end_s: float, label: str) -> str:
    """Return `0.50 s – 2.00 s a red circle`, control characters visible."""
    return f"{clock(start_s)} – {clock(end_s)} {one_line(label)}".rstrip()


def _frame(places: AnswerPlaces, shown: ShownMedium) -> tuple[Image, str]:
    """Return a frame with its marks, small enough for a sheet, and what stands below it."""
    from PIL import Image

    here, placed, badges = places.marks_on(shown), places.placed, badges_of(places.marks)
    try:
        image = open_shown(shown)
    except VlmtuiError:  # the answer may name a time that the video does not have
        image = Image.new("RGB", (shown.medium.width, shown.medium.height), "grey")
    drawn = draw_marks(image, [placed[at] for at in here], badges=[badges[at] for at in here])
    drawn.thumbnail((_SIDE_MAX, _SIDE_MAX), Image.Resampling.LANCZOS)
    ranges = [range_line(one.start_s, one.end_s, one.label) for one in places.ranges if one.start_s == shown.second]
    return drawn, " · ".join(ranges) or clock(shown.second)


def _sheet(frames: Sequence[tuple[Image, str]]) -> Image:
    from PIL import Image, ImageDraw, ImageFont

    columns = math.ceil(math.sqrt(len(frames)))
    width, height = (max(frame.size[axis] for frame, _ in frames) for axis in (0, 1))
    height += _CAPTION
    sheet = Image.new("RGB", (columns * width, math.ceil(len(frames) / columns) * height), "white")
    font = ImageFont.load_default(size=14)
    for at, (frame, caption) in enumerate(frames):
        cell = Image.new("RGB", (width, height), "white")
        cell.paste(frame)
        ImageDraw.Draw(cell).text((4, frame.height + 2), caption, fill="black", font=font)
        sheet.paste(cell, (at % columns * width, at // columns * height))
    return sheet
