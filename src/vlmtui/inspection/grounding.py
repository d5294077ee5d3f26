"""Find boxes, polygons, points and time ranges in an answer, and convert coordinates to pixels of the image."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from vlmtui.registry.schema import CoordinateScale, Grounding, GroundingFormat

MARKS_MAX = 1_000
"""The most marks, and the most time ranges, that are read from an answer."""
_TEXT_MAX = 1_000_000
_NUMBER_MAX = 1e9
_LABEL_MAX = 200
_NUMBER = r"-?\d{1,9}(?:\.\d{1,9})?"
_OBJECT = re.compile(r"\{[^{}]{0,4000}\}")
_PAIRS = re.compile(
    rf"(?:<(?:ref|\|object_ref_start\|)>(?P<label>[^<]{{0,{_LABEL_MAX}}})<(?:/ref|\|object_ref_end\|)>\s{{0,20}})?"
    r"(?:<(?:box|\|box_start\|)>)?"
    rf"\(\s?(?P<a>{_NUMBER}),\s?(?P<b>{_NUMBER})\s?\),\s?\(\s?(?P<c>{_NUMBER}),\s?(?P<d>{_NUMBER})\s?\)"
    r"(?:<(?:/box|\|box_end\|)>)?"
)
_FOUR = re.compile(rf"\[\s?({_NUMBER}),\s?({_NUMBER}),\s?({_NUMBER}),\s?({_NUMBER})\s?\]")
_DET = re.compile(
    rf"<\|ref\|>(?P<label>[^<]{{0,{_LABEL_MAX}}})<\|/ref\|>\s{{0,20}}<\|det\|>(?P<boxes>[^<]{{0,100000}})<\|/det\|>"
)
_LOCS = re.compile(r"(?:<loc_?\d{1,4}>){1,400}")
_LOC = re.compile(r"<loc_?(\d{1,4})>")
_POINT = re.compile(r"<points?\s(?P<inside>[^<>]{0,20000})>(?P<label>[^<]{0,200})")
_COORDS = re.compile(
    r'<(?:points|tracks)\s[^<>]{0,200}?coords\s?=\s?"(?P<inside>[^"<>]{0,100000})"[^<>]{0,400}>(?P<label>[^<]{0,200})'
)
_GROUPS = re.compile(r"[;:,\t]")
_COORDINATE = re.compile(rf'\b(?P<axis>[xy])(?P<number>\d{{0,4}})\s?=\s?"\s?(?P<value>{_NUMBER})\s?"')
_SECONDS_MAX = 1e6
_TIME_KEYS = (("start_time", "end_time"), ("start", "end"))
_TIME_LABELS = ("description", "label", "caption", "event", "event_caption", "query")
_CLOCK = re.compile(r"(?:(\d{1,3}):)?(?:(\d{1,4}):)?(\d{1,7}(?:\.\d{1,6})?)\s?s?")
_WHOLE: dict[CoordinateScale, float] = {"unit": 1, "percent": 100, "thousand": 1000, "to_999": 999, "to_1024": 1024}

Size = tuple[int, int]
XY = tuple[float, float]
MarkKind = Literal["box", "polygon", "point"]


class GroundingMark(msgspec.Struct, frozen=True, kw_only=True):
    """A box, polygon or point in an answer, with the answer's numbers; x before y."""

    kind: MarkKind
    label: str
    """Hostile text."""
    points: tuple[XY, ...]
    """The points; for a box, two opposite corners."""
    start: int
    """`start:end` is the mark's range of characters in the answer."""
    end: int
    where: float | None = None
    """The number of its image in the prompt, from 1, or its time in a video in seconds; None if the format has
    neither."""


class PlacedMark(msgspec.Struct, frozen=True, kw_only=True):
    """A mark in pixels of the image, clipped at its edges. A box has its left top corner first."""

    mark: GroundingMark
    points: tuple[XY, ...]
    is_clipped: bool
    """True if a part of the mark lies outside of the image."""

    @property
    def xyxy(self) -> tuple[float, float, float, float]:
        """The bounding box: left, top, right, bottom."""
        across, down = zip(*self.points, strict=True)
        return min(across), min(down), max(across), max(down)


class FoundMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The marks in an answer."""

    marks: tuple[GroundingMark, ...]
    unreadable: tuple[tuple[int, int], ...]
    """The ranges of characters that look like a mark but have no valid coordinates."""


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """A time range of a video in an answer, in seconds from the first frame."""

    label: str
    """Hostile text."""
    start_s: float
    end_s: float
    start: int
    """`start:end` is the range of characters of the time range in the answer."""
    end: int


class FoundRanges(msgspec.Struct, frozen=True, kw_only=True):
    """The time ranges in an answer."""

    ranges: tuple[TimeRange, ...] = ()
    unreadable: tuple[tuple[int, int], ...] = ()
    """The ranges of characters that look like a time range but have no valid times."""


def find_marks(answer: str, grounding: Grounding) -> FoundMarks:
    """Find the first MARKS_MAX marks in an answer, which may be incomplete."""
    marks: list[GroundingMark] = []
    unreadable: list[tuple[int, int]] = []
    for start, end, label, numbers, where in _READERS[grounding.format](answer[:_TEXT_MAX]):
        if len(marks) + len(unreadable) == MARKS_MAX:
            break
        points = _points(numbers, grounding)
        if points is None:
            unreadable.append((start, end))
            continue
        kind: MarkKind = "point" if len(points) == 1 else "box" if len(points) == 2 else "polygon"
        marks.append(GroundingMark(kind=kind, label=_label(label), points=points, start=start, end=end, where=where))
    return FoundMarks(marks=tuple(marks), unreadable=tuple(unreadable))


def likeliest_format(answer: str) -> GroundingFormat | None:
    """Return the format that finds the most marks in an answer; None if no format finds any."""
    counts: dict[GroundingFormat, int] = {
        format: len(find_marks(answer, Grounding(format=format, scale="thousand", source="")).marks)
        for format in _READERS
    }
    best = max(counts, key=lambda format: counts[format])
    return best if counts[best] else None


def place_mark(mark: GroundingMark, scale: CoordinateScale, size: Size, resized: Size | None = None) -> PlacedMark:
    """Return a box, polygon or point in pixels of the image, whose `size` is (width, height).

    `resized`: the size after the processor's resizing, needed only if `scale` is `resized`. Raises ValueError if it
    is needed and None.
    """
    whole = resized if scale == "resized" else size if scale == "pixels" else None
    if scale == "resized" and whole is None:
        raise ValueError("the resized picture's size is unknown")

    def pixels(value: float, axis: Literal[0, 1]) -> float:
        if scale == "bins":
            return (value + 0.5) / 1000 * size[axis]
        return value / (whole[axis] if whole is not None else _WHOLE[scale]) * size[axis]

    exact = [(pixels(x, 0), pixels(y, 1)) for x, y in mark.points]
    if mark.kind == "box":
        (left, top), (right, bottom) = exact
        exact = [(min(left, right), min(top, bottom)), (max(left, right), max(top, bottom))]
    clipped = tuple((min(max(x, 0.0), float(size[0])), min(max(y, 0.0), float(size[1]))) for x, y in exact)
    return PlacedMark(mark=mark, points=clipped, is_clipped=clipped != tuple(exact))


def find_time_ranges(answer: str) -> FoundRanges:
    """Find the first MARKS_MAX time ranges in an answer, which may be incomplete. Reversed times are swapped."""
    ranges: list[TimeRange] = []
    unreadable: list[tuple[int, int]] = []
    for found in _OBJECT.finditer(answer[:_TEXT_MAX]):
        if len(ranges) + len(unreadable) == MARKS_MAX:
            break
        if not any(f'"{first}"' in found[0] and f'"{last}"' in found[0] for first, last in _TIME_KEYS):
            continue
        times = None
        try:
            table = json.loads(found[0])
            times = _times(table)
        except (ValueError, RecursionError):
            table = {}
        if times is None:
            unreadable.append(found.span())
            continue
        label = _label(next((table[key] for key in _TIME_LABELS if isinstance(table.get(key), str)), ""))
        start, end = found.span()
        ranges.append(TimeRange(label=label, start_s=min(times), end_s=max(times), start=start, end=end))
    return FoundRanges(ranges=tuple(ranges), unreadable=tuple(unreadable))


def _label(text: str) -> str:
    """Shorten a label, and replace halves of surrogate pairs, which cannot be encoded, by `?`."""
    return text.strip()[:_LABEL_MAX].encode(errors="replace").decode()


class _Read(NamedTuple):
    """A possible mark that one format's parser found: its range of characters, and its numbers before they are
    checked."""

    start: int
    end: int
    label: str
    numbers: list[object]
    where: float | None = None


_Reading = Iterator[_Read]


def _points(numbers: list[object], grounding: Grounding) -> tuple[XY, ...] | None:
    """Return the numbers as (x, y) pairs; None if they are not coordinates."""
    if len(numbers) < 2 or len(numbers) % 2:
        return None
    values: list[float] = []
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float) or not -_NUMBER_MAX <= number <= _NUMBER_MAX:
            return None
        values.append(float(number))
    pairs = list(zip(values[::2], values[1::2], strict=True))
    return tuple((second, first) if grounding.order == "yx" else (first, second) for first, second in pairs)


def _json_objects(text: str) -> _Reading:
    for found in _OBJECT.finditer(text):
        if not any(key in found[0] for key in ('"bbox_2d"', '"point_2d"')):
            continue
        try:
            table = json.loads(found[0])
        except (ValueError, RecursionError):
            yield _Read(found.start(), found.end(), "", [])
            continue
        label = table.get("label", "")
        box = table.get("bbox_2d")
        values = box if box is not None else table.get("point_2d")
        wanted = 4 if box is not None else 2
        numbers = values if isinstance(values, list) and len(values) == wanted else []
        yield _Read(found.start(), found.end(), label if isinstance(label, str) else "", numbers)


def _box_tags(text: str) -> _Reading:
    for found in _PAIRS.finditer(text):
        yield _Read(found.start(), found.end(), found["label"] or "", [float(found[name]) for name in "abcd"])


def _brackets(text: str) -> _Reading:
    for found in _FOUR.finditer(text):
        yield _Read(found.start(), found.end(), "", [float(number) for number in found.groups()])


def _det_tags(text: str) -> _Reading:
    for found in _DET.finditer(text):
        boxes = list(_FOUR.finditer(found["boxes"]))
        if not boxes:
            yield _Read(found.start(), found.end(), found["label"], [])
        for box in boxes:
            yield _Read(found.start(), found.end(), found["label"], [float(number) for number in box.groups()])


def _loc_before(text: str) -> _Reading:
    """Read a label before location tokens (`cat<loc_1><loc_2>…`). Several boxes may share a label."""
    label, last = "", 0
    for found in _LOCS.finditer(text):
        label = re.sub(r"<[^<>]{0,40}>", "", text[last : found.start()][-_LABEL_MAX:]).strip() or label
        last = found.end()
        yield from _boxes_of(found, label)


def _loc_after(text: str) -> _Reading:
    """Read a label after location tokens (`<loc_1><loc_2>… cat`), up to a semicolon or the next token."""
    for found in _LOCS.finditer(text):
        after = re.split(r"[;<\n]", text[found.end() : found.end() + _LABEL_MAX + 1], maxsplit=1)[0]
        yield from _boxes_of(found, after)


def _boxes_of(found: re.Match[str], label: str) -> _Reading:
    """Read every four tokens as a box. Florence-2's `<OCR_WITH_REGION>` writes quadrilaterals, eight tokens each, which
    become two boxes."""
    numbers: list[object] = [float(number) for number in _LOC.findall(found[0])]
    if len(numbers) % 4:
        yield _Read(found.start(), found.end(), label, [])
        return
    for at in range(0, len(numbers), 4):
        yield _Read(found.start(), found.end(), label, numbers[at : at + 4])


def _point_tags(text: str) -> _Reading:
    for found in _POINT.finditer(text):
        pairs: dict[str, dict[str, float]] = {}
        for one in _COORDINATE.finditer(found["inside"]):
            pairs.setdefault(one["number"], {})[one["axis"]] = float(one["value"])
        if not pairs:
            yield _Read(found.start(), found.end(), found["label"], [])
        for pair in pairs.values():
            yield _Read(found.start(), found.end(), found["label"], [pair[axis] for axis in "xy" if axis in pair])


def _coords_tags(text: str) -> _Reading:
    for found in _COORDS.finditer(text):
        for group in _GROUPS.split(found["inside"]):
            values = group.split()
            numbers = [float(value) for value in values if re.fullmatch(_NUMBER, value)]
            if len(numbers) != len(values) or len(numbers) % 3 != 1 or len(numbers) < 4:
                yield _Read(found.start(), found.end(), found["label"], [])
                continue
            for at in range(1, len(numbers), 3):
                point: list[object] = [*numbers[at + 1 : at + 3]]
                yield _Read(found.start(), found.end(), found["label"], point, numbers[0])


def _times(table: Mapping[str, object]) -> tuple[float, float] | None:
    for first, last in _TIME_KEYS:
        if first in table and last in table:
            start, end = _seconds(table[first]), _seconds(table[last])
            return (start, end) if start is not None and end is not None else None
    return None


def _seconds(value: object) -> float | None:
    """Return the seconds of a number, `12.5`, `00:12.50` or `1:02:03`; None for any other value."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if 0 <= value <= _SECONDS_MAX else None
    found = _CLOCK.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return None
    parts = [float(part) for part in found.groups() if part is not None]
    seconds = sum(part * 60**power for power, part in enumerate(reversed(parts)))
    return seconds if seconds <= _SECONDS_MAX else None


_READERS: dict[GroundingFormat, Callable[[str], _Reading]] = {
    "json": _json_objects,
    "box_tags": _box_tags,
    "brackets": _brackets,
    "det_tags": _det_tags,
    "loc_before": _loc_before,
    "loc_after": _loc_after,
    "point_tags": _point_tags,
    "coords_tags": _coords_tags,
}
