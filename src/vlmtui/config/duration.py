"""Durations as text: `5m`, `90s`, `1h30m`, `30d`, `0`, `forever`."""

from __future__ import annotations

import re

from vlmtui.errors import ErrorKind, VlmtuiError

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_FOREVER = ("forever", "-1")
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_NAMES = ((3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def parse_duration(text: str) -> float | None:
    """Return the seconds, or None for `forever`. A bare number is seconds. Raises VlmtuiError(BAD_USAGE)."""
    cleaned = text.strip().lower()
    if cleaned in _FOREVER:
        return None
    if re.fullmatch(_NUMBER, cleaned):
        return float(cleaned)
    if not re.fullmatch(f"(?:{_NUMBER}[dhms])+", cleaned):
        message = f"{text!r} is not a duration."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="Write 5m, 90s, 1h30m, 30d, 0 or forever.")
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(f"({_NUMBER})(.)", cleaned))


def describe_duration(seconds: float) -> str:
    """Return `5 minutes`, `1 hour 30 minutes` or `0 seconds`."""
    left = round(seconds)
    words = []
    for size, name in _NAMES:
        count, left = divmod(left, round(size))
        if count:
            words.append(f"{count} {name}{'' if count == 1 else 's'}")
    return " ".join(words) or "0 seconds"
