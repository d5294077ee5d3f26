"""The newest lines of a log, for several readers at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice


class LogRing:
    """Holds the newest lines. A reader remembers `total` and asks for what came `since`. Hostile text."""

    def __init__(self, capacity: int) -> None:
        self._lines: deque[str] = deque(maxlen=capacity)
        self.total = 0
        """Lines that ever came."""
        self.generation = 0
        """Grows with each `clear`."""

    def __len__(self) -> int:
        return len(self._lines)

    def append(self, line: str) -> None:
        self._lines.append(line)
        self.total += 1

    def extend(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.append(line)

    def clear(self) -> None:
        self._lines.clear()
        self.total = 0
        self.generation += 1

    def newest(self, count: int) -> list[str]:
        """The last `count` lines, or as many as there are."""
        return self.since(max(0, self.total - count))

    def since(self, total: int) -> list[str]:
        """The lines that came after the first `total` ones, as far as they are still held."""
        new = min(self.total - total, len(self._lines))
        return list(islice(self._lines, len(self._lines) - new, None)) if new > 0 else []
