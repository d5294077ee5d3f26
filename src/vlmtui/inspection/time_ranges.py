"""Find the time ranges in an answer about a video: JSON with a start and an end, as QwenLM's cookbooks ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import msgspec

RANGES_MAX = 1_000
"""Most ranges found in one answer."""
_TEXT_MAX = 1_000_000
_LABEL_MAX = 200
_SECONDS_MAX = 1e6
_OBJECT = re.compile(r"\{[^{}]{0,4000}\}")
_KEYS = (("start_time", "end_time"), ("start", "end"))
_LABELS = ("description", "label", "caption", "event", "event_caption", "query")
_CLOCK = re.compile(r"(?:(\d{1,3}):)?(?:(\d{1,4}):)?(\d{1,7}(?:\.\d{1,6})?)\s?s?")


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a video that an answer names, in seconds from its first frame."""

    label: str
    """Hostile text."""
    start_s: float
    end_s: float
    start: int
    """The part of the answer that it was read from, in characters."""
    end: int


class FoundRanges(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer says about times."""

    ranges: tuple[TimeRange, ...] = ()
    unreadable: tuple[tuple[int, int], ...] = ()
    """Parts of the answer that look like a range, but are none."""


def find_time_ranges(answer: str) -> FoundRanges:
    """Find at most RANGES_MAX ranges in an answer, complete or not. One that ends before it starts is turned round."""
    ranges: list[TimeRange] = []
    unreadable: list[tuple[int, int]] = []
    for found in _OBJECT.finditer(answer[:_TEXT_MAX]):
        if len(ranges) + len(unreadable) == RANGES_MAX:
            break
        if not any(f'"{first}"' in found[0] and f'"{last}"' in found[0] for first, last in _KEYS):
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
        label = next((table[key] for key in _LABELS if isinstance(table.get(key), str)), "")
        # JSON may name half of a surrogate pair, which no file and no terminal can be given.
        name = label.strip()[:_LABEL_MAX].encode(errors="replace").decode()
        start, end = found.span()
        ranges.append(TimeRange(label=name, start_s=min(times), end_s=max(times), start=start, end=end))
    return FoundRanges(ranges=tuple(ranges), unreadable=tuple(unreadable))


def _times(table: Mapping[str, object]) -> tuple[float, float] | None:
    for first, last in _KEYS:
        if first in table and last in table:
            start, end = _seconds(table[first]), _seconds(table[last])
            return (start, end) if start is not None and end is not None else None
    return None


def _seconds(value: object) -> float | None:
    """Return the seconds of a number, `12.5`, `00:12.50` or `1:02:03`; None if it is no time."""
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
