"""How much of a batch is under way: what is prepared ahead of the engine, and how many requests it has at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

FIRST_LEVEL = 8
LEVEL_MAX = 2048
"""Most requests at once where the engine does not say how many it runs together."""
_FEW = 32
"""At first at most so many, if that is more than twice as many as the engine runs together."""
_GAIN = 1.05
"""How much faster a higher level must be to be worth it."""
_WINDOWS_UNTIL_NEXT_TRY = 8


class PreparedLimit:
    """Bounds what waits prepared, by tokens and by bytes. One item is let in however large it is."""

    def __init__(self, *, tokens_max: int = 65_536, bytes_max: int = 256_000_000) -> None:
        self._tokens_max = tokens_max
        self._bytes_max = bytes_max
        self._tokens = self._bytes = self._count = 0
        self._freed = asyncio.Event()

    async def enter(self, tokens: int, size: int) -> None:
        """Wait until there is room, and take it."""
        while self._count and (self._tokens + tokens > self._tokens_max or self._bytes + size > self._bytes_max):
            self._freed.clear()
            await self._freed.wait()
        self.add(tokens, size)
        self._count += 1

    def add(self, tokens: int, size: int) -> None:
        """Take more (or, negative, less) for an item that is inside: it is known better by now."""
        self._tokens += tokens
        self._bytes += size
        if tokens < 0 or size < 0:
            self._freed.set()

    def leave(self, tokens: int, size: int) -> None:
        """Give an item's room back."""
        self._count -= 1
        self.add(-tokens, -size)
        self._freed.set()


class ConcurrencyLevel:
    """How many requests an engine has at once. Doubled as long as it answers faster for it, else taken back; tried
    again later, as items differ.

    Where the engine says how many it runs together (`max_num_seqs`) it gets twice as many at first, as answers of the
    same length end all at once, and four times as many at most. One that runs few together gets more of them: they end
    so often that it would run dry while the next are on their way.
    """

    def __init__(self, engine_args: Mapping[str, object], *, most: int | None = None) -> None:
        """`most`: the user's own limit."""
        known = engine_args.get("max_num_seqs")
        self._ceiling = LEVEL_MAX
        self.now = FIRST_LEVEL
        if isinstance(known, int) and known > 0:
            self.now = max(2 * known, min(4 * known, _FEW))
            self._ceiling = 2 * self.now
        if most is not None:
            self._ceiling = min(self._ceiling, most)
            self.now = min(self.now, most)
        self._started = -1.0
        self._tokens = self._ended = 0
        self._best = (0.0, self.now)
        """The highest rate so far, in tokens a second, and its level."""
        self._windows_left = 0

    def ended(self, tokens: int, at_s: float) -> None:
        """Count an answer that ended at a time (seconds, steady), with all its tokens, the prompt's among them."""
        if self._started < 0:
            self._started = at_s
            return
        self._tokens += tokens
        self._ended += 1
        if self._ended < max(16, 2 * self.now) or at_s <= self._started:
            return
        rate = self._tokens / (at_s - self._started)
        self._started, self._tokens, self._ended = at_s, 0, 0
        self._choose(rate)

    def reset(self) -> None:
        """Restart the measurement: the engine was not busy all the time."""
        self._started, self._tokens, self._ended = -1.0, 0, 0

    def _choose(self, rate: float) -> None:
        best, level = self._best
        if self.now == level:
            self._best = (rate, level)
            self._windows_left -= 1
            if self._windows_left <= 0 and self.now < self._ceiling:
                self.now = min(self._ceiling, 2 * self.now)
        elif rate > best * _GAIN:
            self._best = (rate, self.now)
            self._windows_left = 0
            self.now = min(self._ceiling, 2 * self.now)
            if self.now == self._best[1]:
                self._windows_left = _WINDOWS_UNTIL_NEXT_TRY
        else:
            self.now = level
            self._windows_left = _WINDOWS_UNTIL_NEXT_TRY
