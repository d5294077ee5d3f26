"""Times as the store has them: milliseconds since 1970, UTC."""

from __future__ import annotations

from datetime import datetime

LAST_MS = 253_402_300_799_999
"""The end of the year 9999, the last one that every clock and calendar knows."""
_DAY_MS = 86_400_000


def local_time(milliseconds: int) -> datetime:
    """The moment in this machine's time zone. Never raises: what lies outside of the years 1970 to 9999 is shown as
    their first or last day."""
    return datetime.fromtimestamp(min(max(milliseconds, _DAY_MS), LAST_MS - _DAY_MS) / 1000)
