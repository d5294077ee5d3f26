"""Boxes, points, polygons and times in an answer: read from its text, and drawn on the image or video."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, get_args

import msgspec

from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.inspection.grounding import (
    XY,
    FoundRanges,
    GroundingMark,
    PlacedMark,
    Size,
    TimeRange,
    find_marks,
    find_time_ranges,
    likeliest_format,
    place_mark,
)
from vlmtui.inspection.tokens import attachment_of
from vlmtui.media.describe import clock
from vlmtui.registry.schema import CoordinateScale, Family, Grounding, PatchTokens
from vlmtui.session.prompt_report import PromptReport
from vlmtui.text import one_line

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

_SCALE_NAMES: Mapping[CoordinateScale, str] = {
    "pixels": "pixels of the image",
    "resized": "pixels of the resized image",
    "unit": "0 to 1",
    "percent": "0 to 100",
    "thousand": "0 to 1000",
    "to_999": "0 to 999",
    "to_1024": "0 to 1024",
    "bins": "1000 bins",
}
_GUESSED: CoordinateScale = "thousand"
_COLOURS = ("#e6194b", "#4363d8", "#3cb44b", "#f58231", "#911eb4", "#008080", "#9a6324", "#808000")
_LINES_PER_SIDE = 300
"""The longer side of an image divided by the width of a line."""
FRAMES_MAX = 16
"""Most frames in the image that shows a video's boxes."""
_SIDE_MAX = 640
"""Longest side of each of these frames, in pixels."""
_CAPTION = 22
"""Height of the caption below a frame, in pixels."""


class ShownMedium(NamedTuple):
    """An image, or a moment of a video."""

    medium: Attachment
    second: float = 0.0
    """The moment of a video; 0 for an image."""


def open_shown(shown: ShownMedium) -> Image:
    """Return the pixels of an image, or of the video's frame at `shown.second`; mode RGB. Blocking. Raises
    VlmtuiError."""
    if shown.medium.modality != "video":
        from vlmtui.media.images import open_prepared

        return open_prepared(shown.medium.path)
    from PIL import Image

    from vlmtui.media.frames import sample_frames  # NumPy and libav take a while to import

    frames = sample_frames(shown.medium.path, VideoSampling(num_frames=1, start_s=shown.second))
    return Image.fromarray(frames.frames[0])


class AnswerPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """An answer's boxes, points and polygons (marks), read by one coordinate convention, and its time ranges."""

    answer: str
    """Hostile text. The marks' `start` and `end` are offsets in it."""
    media: tuple[Attachment, ...]
    """The prompt's images, or its videos if it has none. A mark without an image number lies on the last."""
    grounding: Grounding
    own: Grounding | None
    """The convention in the model family's TOML record; None: unknown."""
    resized: Size | None
    """Width and height of the image after the processor's resize, in pixels; None: unknown."""
    marks: tuple[GroundingMark, ...]
    unreadable: tuple[tuple[int, int], ...]
    ranges: tuple[TimeRange, ...] = ()
    """The times that an answer about a video mentions."""

    @property
    def image(self) -> Attachment:
        """The image or video on which marks without an image number lie."""
        return self.media[-1]

    def medium_of(self, at: int) -> ShownMedium:
        """Return the image or the moment of a video for item `at`, an index into `marks` followed by `ranges`."""
        if at >= len(self.marks):
            ranges = self.ranges[at - len(self.marks) :]
            return ShownMedium(self.image, ranges[0].start_s if ranges else 0.0)
        where = self.marks[at].where
        if self.image.modality == "video":
            return ShownMedium(self.image, where or 0.0)
        number = int(where) if where is not None else len(self.media)
        return ShownMedium(self.media[number - 1] if 1 <= number <= len(self.media) else self.image)

    def marks_on(self, shown: ShownMedium) -> list[int]:
        """Return the indices of the marks that lie on an image or a moment of a video."""
        return [at for at in range(len(self.marks)) if self.medium_of(at) == shown]

    @property
    def scales(self) -> tuple[CoordinateScale, ...]:
        """The coordinate scales to try, beginning with that of the family's record."""
        known = [scale for scale in get_args(CoordinateScale) if scale != "resized" or self.resized is not None]
        first = self.own.scale if self.own is not None and self.own.scale in known else None
        return tuple(sorted(known, key=lambda scale: scale != first))

    @property
    def placed(self) -> tuple[PlacedMark, ...]:
        """The marks in pixels of the image."""
        media = [self.medium_of(at).medium for at in range(len(self.marks))]
        scale, resized = self.grounding.scale, self.resized
        return tuple(
            place_mark(mark, scale, (medium.width, medium.height), resized)
            for mark, medium in zip(self.marks, media, strict=True)
        )

    @property
    def inside(self) -> int:
        """Number of marks that lie completely within the image."""
        return sum(not one.is_clipped for one in self.placed)

    @property
    def convention(self) -> str:
        """The coordinate convention in words: `0 to 1000, x first (as the family's record says)`."""
        order = "y first" if self.grounding.order == "yx" else "x first"
        own = self.own
        if own is None:
            says = "a guess: no record says it"
        elif (own.scale, own.order) == (self.grounding.scale, self.grounding.order):
            says = "as the family's record says"
        else:
            says = f"the record says {_SCALE_NAMES[own.scale]}, {'y' if own.order == 'yx' else 'x'} first"
        return f"{_SCALE_NAMES[self.grounding.scale]}, {order} ({says})"

    def with_next_scale(self) -> AnswerPlaces:
        """Return the places with the coordinates read by the next convention."""
        scales = self.scales
        at = scales.index(self.grounding.scale) if self.grounding.scale in scales else -1
        return self._read_as(msgspec.structs.replace(self.grounding, scale=scales[(at + 1) % len(scales)]))

    def with_other_order(self) -> AnswerPlaces:
        """Return the places with x and y exchanged in each pair of coordinates."""
        order = "xy" if self.grounding.order == "yx" else "yx"
        return self._read_as(msgspec.structs.replace(self.grounding, order=order))

    def as_json(self) -> dict[str, object]:
        """Return the marks in the COCO format, in pixels of the stored image."""
        labels = list(dict.fromkeys(mark.label for mark in self.marks))
        named = [self.image, *(self.medium_of(at).medium for at in range(len(self.marks)))]
        found: dict[str, object] = {
            "images": [
                {"id": at, "file_name": medium.name, "width": medium.width, "height": medium.height}
                for at, medium in enumerate(self.media, 1)
                if medium in named
            ],
            "categories": [{"id": at, "name": label} for at, label in enumerate(labels, 1)],
            "annotations": [
                self._annotation(number, one, labels.index(one.mark.label) + 1)
                for number, one in enumerate(self.placed, 1)
            ],
            "convention": {
                "format": self.grounding.format,
                "scale": self.grounding.scale,
                "order": self.grounding.order,
            },
            "unreadable": [self.answer[start:end] for start, end in self.unreadable],
        }
        return {**found, "time_ranges": self.ranges_json()} if self.ranges else found

    def places_json(self) -> list[dict[str, object]]:
        """Return each mark with its box in pixels and the part of the answer that it was read from."""
        return [self._place_json(at, one) for at, one in enumerate(self.placed)]

    def ranges_json(self) -> list[dict[str, object]]:
        """Return each time range with the part of the answer that it was read from."""
        return [
            {"label": one.label, "start_s": one.start_s, "end_s": one.end_s, **self._span_json(one)}
            for one in self.ranges
        ]

    def _place_json(self, at: int, one: PlacedMark) -> dict[str, object]:
        medium, second = self.medium_of(at)
        return {
            "kind": one.mark.kind,
            "label": one.mark.label,
            "xyxy": [round(value, 2) for value in one.xyxy],
            **({"second": second} if medium.modality == "video" else {}),
            "clipped": one.is_clipped,
            "swapped": one.is_swapped,
            **self._span_json(one.mark),
        }

    def _span_json(self, one: GroundingMark | TimeRange) -> dict[str, object]:
        return {"text": self.answer[one.start : one.end], "span": [one.start, one.end]}

    def _annotation(self, number: int, one: PlacedMark, category: int) -> dict[str, object]:
        left, top, right, bottom = one.xyxy
        return {
            "id": number,
            "image_id": self.media.index(self.medium_of(number - 1).medium) + 1,
            "category_id": category,
            **self._place_json(number - 1, one),
            "bbox": [round(value, 2) for value in (left, top, right - left, bottom - top)],
            "area": round(_area(one), 2),
            "segmentation": [[round(value, 2) for point in _outline(one) for value in point]],
            "iscrowd": 0,
        }

    def _read_as(self, grounding: Grounding) -> AnswerPlaces:
        return read_places(self.answer, self.media, grounding, own=self.own, resized=self.resized)


def places_of(report: PromptReport, family: Family | None) -> AnswerPlaces:
    """Find the boxes, points, polygons and times in a report's answer. `family`: the family of the model that answered.

    Boxes, points and polygons lie on the last image of the prompt unless the answer gives an image number; without
    images, on its last video. Raises VlmtuiError if the answer has none of them, or the prompt has no image or
    video."""
    media = tuple(item for item in report.attachments if item.modality == "image") or tuple(
        item for item in report.attachments if item.modality == "video"
    )
    if not media:
        raise bad_input("This answer's prompt has no image.", hint="Places are drawn on an image that was sent.")
    answer, image = whole_answer(report), media[-1]
    timed = _times_of(answer, image)
    own = family.grounding if family is not None else None
    grounding = own if own is not None and find_marks(answer, own).marks else None
    if grounding is None:
        format = likeliest_format(answer)
        if format is None and own is None and not timed.ranges:
            raise bad_input("No boxes, polygons, points or times were found in this answer.")
        if format is not None:
            scale, order = (own.scale, own.order) if own is not None else (_GUESSED, "xy")
            grounding = Grounding(format=format, scale=scale, order=order, source="")
        else:
            grounding = own or Grounding(format="json", scale=_GUESSED, source="")
    spans = report.prompt.media if report.prompt is not None else ()
    own_spans = (span for span in spans if attachment_of(span, report.attachments) is image)
    resized = next((span.resized for span in own_spans if len(span.grid) == 3), None)  # otherwise it made tiles
    if resized is None and family is not None:
        used = report.info.engine_args if report.info else report.recipe.engine_args if report.recipe else {}
        resized = resized_by_rule(family, image, used.get("mm_processor_kwargs"))
    if grounding.scale == "resized" and resized is None:
        grounding = msgspec.structs.replace(grounding, scale="pixels")
    return read_places(answer, media, grounding, own=own, resized=resized)


def read_places(
    answer: str, media: tuple[Attachment, ...], grounding: Grounding, *, own: Grounding | None, resized: Size | None
) -> AnswerPlaces:
    """Return the places in an answer, read by the coordinate convention `grounding`. `own`, `resized`: as in
    `AnswerPlaces`."""
    found, timed = find_marks(answer, grounding), _times_of(answer, media[-1])
    return AnswerPlaces(
        answer=answer,
        media=media,
        grounding=grounding,
        own=own,
        resized=resized,
        marks=found.marks,
        unreadable=(*found.unreadable, *timed.unreadable),
        ranges=timed.ranges,
    )


def _times_of(answer: str, medium: Attachment) -> FoundRanges:
    """Return the time ranges in an answer about a video; none for an image."""
    return find_time_ranges(answer) if medium.modality == "video" else FoundRanges()


def whole_answer(report: PromptReport) -> str:
    """Return the answer with its special tokens, if known: some families write coordinates as such tokens."""
    known = [report.vocabulary.get(token) for token in report.answer_ids]
    if not any(token is not None and token.special for token in known):
        return report.answer
    text = "".join(token.text for token in known if token is not None)
    return text if None not in known and re.search(r"\d", text) else report.answer


def resized_by_rule(family: Family, image: Attachment, settings: object = None) -> Size | None:
    """Return an image's size after the processor's resize by the record's rule; None: unknown. `settings`: the engine
    argument `mm_processor_kwargs`."""
    takes = family.takes.get("image")
    rule = takes.tokens if takes is not None else None
    settings = {} if settings is None else settings
    if not isinstance(rule, PatchTokens) or not isinstance(settings, dict):
        return None
    return rule.resized(image.width, image.height, settings) if settings.keys() <= rule.knows | {"fps"} else None


def _outline(one: PlacedMark) -> tuple[XY, ...]:
    if one.mark.kind != "box":
        return one.points
    left, top, right, bottom = one.xyxy
    return (left, top), (right, top), (right, bottom), (left, bottom)


def _area(one: PlacedMark) -> float:
    """Return the area in square pixels, by the shoelace formula; 0 for a point."""
    points = _outline(one)
    following = (*points[1:], points[0])
    return abs(sum(x * below - across * y for (x, y), (across, below) in zip(points, following, strict=True))) / 2


class Badge(NamedTuple):
    """A mark's number and its colour as `#rrggbb`."""

    number: int
    colour: str


def badges_of(marks: Sequence[GroundingMark]) -> list[Badge]:
    """Number the marks from 1; marks with the same label have the same colour."""
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
    """Return a copy of an RGB image with the marks drawn on it, mark `chosen` last and with a thicker line."""
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
    """Write the number at a position, shifted so that it lies within the image."""
    box = brush.textbbox(at, str(number), font=font)
    at = at[0] - max(0, box[2] + 2 - size[0]), at[1] - max(0, box[3] + 2 - size[1])
    box = brush.textbbox(at, str(number), font=font)
    brush.rectangle((box[0] - 1, box[1] - 1, box[2] + 1, box[3] + 1), fill=colour)
    brush.text(at, str(number), fill="white", font=font)


def draw_places(places: AnswerPlaces) -> Image:
    """Return the image with its marks, mode RGB. For a video, return a sheet of at most FRAMES_MAX frames, at the times
    in the answer; the frame is grey if the video does not have that time. Blocking. Raises VlmtuiError."""
    if places.image.modality != "video":
        return draw_marks(open_shown(ShownMedium(places.image)), places.placed)
    named = {places.medium_of(at) for at in range(len(places.marks) + len(places.ranges))}
    shown = sorted(named, key=lambda one: one.second)[:FRAMES_MAX]
    return _sheet([_frame(places, one) for one in shown or [ShownMedium(places.image)]])


def range_line(start_s: float, end_s: float, label: str) -> str:
    """Return `0.50 s – 2.00 s a red circle` with visible control characters."""
    return f"{clock(start_s)} – {clock(end_s)} {one_line(label)}".rstrip()


def _frame(places: AnswerPlaces, shown: ShownMedium) -> tuple[Image, str]:
    """Return a frame with its marks, reduced to `_SIDE_MAX`, and its caption."""
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
