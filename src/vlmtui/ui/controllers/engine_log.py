"""The engine's log as the app keeps it."""

from __future__ import annotations

from collections import deque
from itertools import islice

CAPACITY = 5000
"""Lines that are kept; the worker's log file has them all."""


class EngineLog:
    """The newest lines. Hostile text: a widget shows it through `vlmtui.ui.text`."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._lines: deque[str] = deque(maxlen=capacity)
        self.total = 0
        """Lines that ever came; with it a reader knows what it has not shown yet."""
        self.generation = 0
        """Grows with each `clear`."""

    def append(self, line: str) -> None:
        self._lines.append(line)
        self.total += 1

    def clear(self) -> None:
        self._lines.clear()
        self.total = 0
        self.generation += 1

    def since(self, total: int) -> list[str]:
        """The lines that came after the first `total` ones, as far as they are still kept."""
        new = min(self.total - total, len(self._lines))
        return list(islice(self._lines, len(self._lines) - new, None)) if new > 0 else []
