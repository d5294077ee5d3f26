"""A ring buffer with the newest lines of a log, for several readers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice


class LogRing:
    """Keeps the newest lines of a log, which are untrusted text. A reader stores `total` after reading, and passes it
    to `since` to get only the lines added later."""

    def __init__(self, capacity: int) -> None:
        self._lines: deque[str] = deque(maxlen=capacity)
        self.total = 0
        """Number of lines ever added."""
        self.generation = 0
        """Incremented by each `clear`."""

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
        """Return the last `count` lines, or fewer if the ring holds fewer."""
        return self.since(max(0, self.total - count))

    def since(self, total: int) -> list[str]:
        """Return the lines added after the first `total` lines, unless newer lines have replaced them."""
        new = min(self.total - total, len(self._lines))
        return list(islice(self._lines, len(self._lines) - new, None)) if new > 0 else []
