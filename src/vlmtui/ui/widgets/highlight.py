"""The highlighted entry of a list that draws its own lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def entry_at(entries: Sequence[T], highlighted: int | None) -> T | None:
    """Return the entry at `highlighted`; None if nothing is highlighted or the list is shorter now."""
    return entries[highlighted] if highlighted is not None and highlighted < len(entries) else None
