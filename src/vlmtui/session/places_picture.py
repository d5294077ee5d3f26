"""The places of an answer as one picture: on its image, or on the frames of its video in a sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vlmtui.errors import VlmtuiError
from vlmtui.inspection.grounding_picture import badges_of, draw_marks
from vlmtui.media.describe import clock
from vlmtui.session.answer_places import AnswerPlaces, ShownMedium, open_shown
from vlmtui.text import one_line

if TYPE_CHECKING:
    from PIL.Image import Image

FRAMES_MAX = 16
"""Most frames of a sheet."""
_SIDE_MAX = 640
"""Of a frame in a sheet, in pixels."""
_CAPTION = 22
"""Height of the lines below a frame, in pixels."""


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

    here = [at for at in range(len(places.marks)) if places.medium_of(at) == shown]
    placed, badges = places.placed, badges_of(places.marks)
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
