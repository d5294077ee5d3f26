"""Conversion of stored times: milliseconds since 1970-01-01 UTC."""

from __future__ import annotations

from datetime import datetime

LAST_MS = 253_402_300_799_999
"""The end of the year 9999, the last that `datetime` supports."""
_DAY_MS = 86_400_000


def local_time(milliseconds: int) -> datetime:
    """Convert to local time. Never raises: times outside the years 1970 to 9999 are clamped."""
    return datetime.fromtimestamp(min(max(milliseconds, _DAY_MS), LAST_MS - _DAY_MS) / 1000)
