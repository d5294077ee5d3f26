"""Find boxes, polygons, points and time ranges in an answer, and convert coordinates to pixels of the image."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from vlmtui.registry.schema import CoordinateScale, Grounding, GroundingFormat

MARKS_MAX = 1_000
"""The most marks, and the most time ranges, that are read from an answer."""
_TEXT_MAX = 1_000_000
_NUMBER_MAX = 1e9
_LABEL_MAX = 200
_NUMBER = r"-?\d{1,9}(?:\.\d{1,20})?"
_PAIR = rf"\(\s?({_NUMBER}),\s?({_NUMBER})\s?\)"
_NUMBERS = re.compile(_NUMBER)
_ALL_NUMBERS = re.compile(rf"\s*{_NUMBER}(?:[\s,]+{_NUMBER})*\s*")
_ALL_PAIRS = re.compile(rf"\s*{_PAIR}(?:\s{{0,9}},?\s{{0,9}}{_PAIR})*\s*")
_LISTS = re.compile(r"\[([^\[\]]{0,4000})\]")
_TAGGED = re.compile(
    r"(?:<(?:ref|\|ref\||\|object_ref_start\|)>(?P<label>(?:(?!</?(?:ref|\|)).){0,2000})"
    r"<(?:/ref|\|/ref\||\|object_ref_end\|)>\s{0,20})?"
    r"(?:<(?P<tag>box|bbox|point|quad|poly|\|det\||\|(?:box|quad)_start\||\|begin_of_box\|)>(?P<inside>[^<]{0,100000})"
    r"(?P<close><(?:/(?:box|bbox|point|quad|poly)|\|/det\||\|(?:box|quad)_end\||\|end_of_box\|)>)?"
    r"|\b(?:start|end)_box\s?=\s?['\"](?P<argument>[^'\"<]{1,400})['\"])",
    re.DOTALL,
)
"""Coordinates between tags, after a label between tags, or in an argument of an action (`start_box='(246,113)'`)."""
_BARE_PAIRS = re.compile(rf"{_PAIR},\s?{_PAIR}")
_BARE_LIST = re.compile(rf"\[\s?{_NUMBER}(?:,\s?{_NUMBER}){{3}}(?:;\s?{_NUMBER}(?:,\s?{_NUMBER}){{3}}){{0,400}}\s?\]")
_JSON_TOKEN = re.compile(r'"(?:[^"\\\n]|\\[^\n]?)*+(?:"|(?=\n)|$)|[{}]')
"""A brace or a text; a text without its end goes to the end of its line."""
_OBJECT_MAX = 20_000
_BOX_KEYS = ("bbox_2d", "box_2d", "bbox", "box", "bounding_box")
_POINT_KEYS = ("point_2d", "point", "points", "coordinate", "coordinates")
_POLYGON_KEYS = ("polygon", "polygon_2d")
_PLACE_KEYS = frozenset({*_BOX_KEYS, *_POINT_KEYS, *_POLYGON_KEYS})
_SURE_KEYS = ("bbox_2d", "point_2d", "box_2d", "bbox")
"""Keys that always mean a place, so that another value than coordinates is unreadable."""
_SURE_KEY = re.compile(rf"""["'](?:{"|".join(_SURE_KEYS)})["']\s{{0,20}}:""")
_Y_FIRST = "box_2d"
"""Gemini's and Gemma's key, whose values have y before x."""
_SIDES = (("x1", "y1", "x2", "y2"), ("xmin", "ymin", "xmax", "ymax"), ("left", "top", "right", "bottom"), ("x", "y"))
_NAMES = ("label", "name", "text", "text_content", "object", "class", "category", "caption", "description")
_LOCS = re.compile(r"(?:<loc[^<>\s]{0,20}>){1,400}")
_LOC = re.compile(r"<loc_?(\d{1,4})>")
_MASK = re.compile(r"(?:<seg\d{3}>)*")
"""PaliGemma's tokens of a segment's mask, between its box and its label."""
_ATTRIBUTES = r"""(?:[^<>"]|"[^"\n]{0,2000}"){0,20000}+"""
_POINT = re.compile(rf"<points?\s(?P<inside>{_ATTRIBUTES})(?:>(?P<label>[^<]{{0,2000}})|$)")
_COORDS = re.compile(rf"<(?:points|tracks)\s(?P<inside>{_ATTRIBUTES})(?:>(?P<label>[^<]{{0,2000}})|$)")
_COORDS_VALUE = re.compile(r"""\bcoords\s?=\s?["'](?P<inside>[^"'<>]{0,100000})["']""")
_GROUPS = re.compile(r"[;:,\t]")
_COORDINATE = re.compile(rf"""\b(?P<axis>[xy])(?P<number>\d{{0,4}})\s?=\s?(?:["']\s?(?P<value>{_NUMBER})\s?["'])?""")
"""A point's x or y; without a value if that is no number."""
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
    is_swapped: bool = False
    """True if the answer gives a box's right or lower side first."""

    @property
    def xyxy(self) -> tuple[float, float, float, float]:
        """The bounding box: left, top, right, bottom."""
        across, down = zip(*self.points, strict=True)
        return min(across), min(down), max(across), max(down)


class FoundMarks(msgspec.Struct, frozen=True, kw_only=True):
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
    ranges: tuple[TimeRange, ...] = ()
    unreadable: tuple[tuple[int, int], ...] = ()
    """The ranges of characters that look like a time range but have no valid times."""


def find_marks(answer: str, grounding: Grounding) -> FoundMarks:
    """Find the first MARKS_MAX marks in an answer, which may be incomplete."""
    marks: list[GroundingMark] = []
    unreadable: list[tuple[int, int]] = []
    for one in _READERS[grounding.format](answer[:_TEXT_MAX]):
        if len(marks) + len(unreadable) == MARKS_MAX:
            break
        points = _points(one.numbers, y_first=one.y_first or grounding.order == "yx")
        if points is None:
            unreadable.append((one.start, one.end))
            continue
        kind: MarkKind = "point" if len(points) == 1 else "box" if len(points) == 2 else "polygon"
        mark = GroundingMark(
            kind=kind, label=_label(one.label), points=points, start=one.start, end=one.end, where=one.where
        )
        marks.append(mark)
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
        raise ValueError("the resized image's size is unknown")

    def pixels(value: float, axis: Literal[0, 1]) -> float:
        if scale == "bins":
            return (value + 0.5) / 1000 * size[axis]
        return value / (whole[axis] if whole is not None else _WHOLE[scale]) * size[axis]

    exact = [(pixels(x, 0), pixels(y, 1)) for x, y in mark.points]
    is_swapped = False
    if mark.kind == "box":
        (left, top), (right, bottom) = exact
        is_swapped = left > right or top > bottom
        exact = [(min(left, right), min(top, bottom)), (max(left, right), max(top, bottom))]
    clipped = tuple((min(max(x, 0.0), float(size[0])), min(max(y, 0.0), float(size[1]))) for x, y in exact)
    return PlacedMark(mark=mark, points=clipped, is_clipped=clipped != tuple(exact), is_swapped=is_swapped)


def find_time_ranges(answer: str) -> FoundRanges:
    """Find the first MARKS_MAX time ranges in an answer, which may be incomplete. Reversed times are swapped."""
    ranges: list[TimeRange] = []
    unreadable: list[tuple[int, int]] = []
    for start, end in _objects(answer[:_TEXT_MAX], frozenset(key for keys in _TIME_KEYS for key in keys)):
        if len(ranges) + len(unreadable) == MARKS_MAX:
            break
        written = answer[start:end]
        if not any(f'"{first}"' in written and f'"{last}"' in written for first, last in _TIME_KEYS):
            continue
        table = _loaded(written)
        if (times := _times(table)) is None:
            unreadable.append((start, end))
            continue
        label = _label(_name_in(table, _TIME_LABELS))
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
    y_first: bool = False


_Reading = Iterator[_Read]


def _points(numbers: list[object], *, y_first: bool) -> tuple[XY, ...] | None:
    """Return the numbers as (x, y) pairs; None if they are not coordinates."""
    if len(numbers) < 2 or len(numbers) % 2:
        return None
    values: list[float] = []
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | float) or not -_NUMBER_MAX <= number <= _NUMBER_MAX:
            return None
        values.append(float(number))
    pairs = list(zip(values[::2], values[1::2], strict=True))
    return tuple((second, first) if y_first else (first, second) for first, second in pairs)


def _objects(text: str, keys: AbstractSet[str]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the complete JSON objects that have one of these keys, not counting those of inner objects.
    Braces in their texts do not count."""
    open_at: list[int] = []
    has_key: list[bool] = []
    position = 0
    while True:
        if not open_at and (position := text.find("{", position)) < 0:
            return
        if (found := _JSON_TOKEN.search(text, position)) is None:
            return
        position = found.end()
        match found[0]:
            case "{":
                open_at.append(found.start())
                has_key.append(False)
            case "}":
                start, is_wanted = open_at.pop(), has_key.pop()
                if is_wanted and position - start <= _OBJECT_MAX:
                    yield start, position
            case key if key[1:-1] in keys and text[position : position + 20].lstrip().startswith(":"):
                has_key[-1] = True


def _loaded(written: str) -> Mapping[str, object]:
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _name_in(table: Mapping[str, object], keys: Sequence[str]) -> str:
    return next((value for key in keys if isinstance(value := table.get(key), str)), "")


def _json_objects(text: str) -> _Reading:
    """Read every place of every object, and tell each key of a place that belongs to no complete object."""
    read: list[tuple[int, int]] = []
    for start, end in _objects(text, _PLACE_KEYS):
        read.append((start, end))
        table = _loaded(text[start:end])
        label = _name_in(table, _NAMES)
        groups = [(key, one) for key in table if key in _PLACE_KEYS for one in _groups(key, table[key])]
        for key, numbers in groups:
            yield _Read(start, end, label, numbers, y_first=key == _Y_FIRST)
        if not groups and _SURE_KEY.search(text, start, end):
            yield _Read(start, end, label, [])
    read.sort(reverse=True)
    told = 0
    for lost in _SURE_KEY.finditer(text):
        at = lost.start()
        while read and read[-1][0] <= at:
            told = max(told, read.pop()[1])
        if at >= told:
            begin, close = text.rfind("{", told, at), text.find("}", at)
            told = close + 1 if close >= 0 else len(text)
            yield _Read(begin if begin >= 0 else at, told, "", [])


def _groups(key: str, value: object) -> Iterator[list[object]]:
    """Yield the numbers of each place that is the value of a key: of a box, a point or a polygon, or of several."""
    if isinstance(value, dict):
        value = next(([value[side] for side in sides] for sides in _SIDES if all(one in value for one in sides)), [])
    if not isinstance(value, list):
        return
    nested = bool(value) and all(isinstance(one, list) for one in value)
    if key in _POINT_KEYS:
        groups = value if nested else [value]
        yield from (one for one in groups if len(one) == 2)
    elif nested and all(len(one) == 2 for one in value):
        yield from (one for one in [[number for pair in value for number in pair]] if _fits(key, one))
    else:
        yield from (one for one in (value if nested else [value]) if _fits(key, one))


def _fits(key: str, numbers: list[object]) -> bool:
    return len(numbers) == 4 if key in _BOX_KEYS else len(numbers) >= 6


def _in_tags(text: str, bare: re.Pattern[str] | None) -> _Reading:
    """Read coordinates between tags and, outside of them, those that match `bare`. Adjacent places share a label."""
    last, label = 0, ""
    for found in _TAGGED.finditer(text):
        if bare is not None:
            yield from _bare(text, last, found.start(), bare)
        if found["label"] is not None or text[last : found.start()].strip(" ,\n"):
            label = found["label"] or ""
        last = found.end()
        yield from _between_tags(found, label)
    if bare is not None:
        yield from _bare(text, last, len(text), bare)


def _bare(text: str, start: int, end: int, pattern: re.Pattern[str]) -> _Reading:
    for found in pattern.finditer(text, start, end):
        for part in found[0].split(";"):
            yield _Read(found.start(), found.end(), "", _floats(part))


def _between_tags(found: re.Match[str], label: str) -> _Reading:
    start, end = found.span()
    inside, is_closed = found["argument"] or found["inside"] or "", found["argument"] or found["close"]
    lists = list(_LISTS.finditer(inside))
    if lists:
        at = found.start("argument" if found["argument"] else "inside")
        for one in lists:
            is_alone = len(lists) == 1
            span = (start, end) if is_alone else (at + one.start(), at + one.end())
            for part in one[1].split(";"):
                yield _Read(*span, label, _floats(part) if _ALL_NUMBERS.fullmatch(part) else [])
        if _NUMBERS.search(_LISTS.sub("", inside)):
            yield _Read(start, end, label, [])
    elif found["tag"] != "|begin_of_box|" or "(" in inside:  # GLM's tags hold any short answer
        numbers = _floats(inside) if _ALL_PAIRS.fullmatch(inside) or _ALL_NUMBERS.fullmatch(inside) else []
        yield _Read(start, end, label, numbers if is_closed or len(numbers) >= 4 else [])


def _floats(text: str) -> list[object]:
    return [float(number) for number in _NUMBERS.findall(text)]


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
        mask = _MASK.match(text, found.end())
        end = mask.end() if mask is not None else found.end()
        after = re.split(r"[;<\n]", text[end : end + _LABEL_MAX + 1], maxsplit=1)[0]
        yield from _boxes_of(found, after)


def _boxes_of(found: re.Match[str], label: str) -> _Reading:
    """Read every four tokens as a box. Florence-2's `<OCR_WITH_REGION>` writes quadrilaterals, eight tokens each, which
    become two boxes."""
    numbers: list[object] = [float(number) for number in _LOC.findall(found[0])]
    if len(numbers) % 4 or len(numbers) != found[0].count("<"):
        yield _Read(found.start(), found.end(), label, [])
        return
    for at in range(0, len(numbers), 4):
        yield _Read(found.start(), found.end(), label, numbers[at : at + 4])


def _point_tags(text: str) -> _Reading:
    for found in _POINT.finditer(text):
        pairs: dict[str, dict[str, float]] = {}
        for one in _COORDINATE.finditer(found["inside"]):
            pair = pairs.setdefault(one["number"], {})
            if one["value"]:
                pair[one["axis"]] = float(one["value"])
        for pair in pairs.values() or [{}]:
            yield _Read(found.start(), found.end(), found["label"] or "", [pair[axis] for axis in "xy" if axis in pair])


def _coords_tags(text: str) -> _Reading:
    for found in _COORDS.finditer(text):
        label, coords = found["label"] or "", _COORDS_VALUE.search(found["inside"])
        for group in _GROUPS.split(coords["inside"] if coords is not None else ""):
            values = group.split()
            numbers = [float(value) for value in values if re.fullmatch(_NUMBER, value)]
            if len(numbers) != len(values) or len(numbers) % 3 != 1 or len(numbers) < 4:
                yield _Read(found.start(), found.end(), label, [])
                continue
            for at in range(1, len(numbers), 3):
                point: list[object] = [*numbers[at + 1 : at + 3]]
                yield _Read(found.start(), found.end(), label, point, numbers[0])


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
    "box_tags": partial(_in_tags, bare=_BARE_PAIRS),
    "brackets": partial(_in_tags, bare=_BARE_LIST),
    "det_tags": partial(_in_tags, bare=None),
    "loc_before": _loc_before,
    "loc_after": _loc_after,
    "point_tags": _point_tags,
    "coords_tags": _coords_tags,
}
