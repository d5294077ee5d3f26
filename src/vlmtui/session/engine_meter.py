"""What an engine did in the last minutes, from samples of its metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from vlmtui.domain.failure import Failure
from vlmtui.domain.metrics import EngineMetrics, MetricsSample

_SPAN_S = 300.0
"""Seconds that are looked back."""
_SAMPLES_MAX = 1000


class EngineMeter:
    """Collects samples, of one engine after another."""

    def __init__(self) -> None:
        self._samples: deque[MetricsSample] = deque(maxlen=_SAMPLES_MAX)
        self.failure: Failure | None = None
        """Why there is no newer sample."""

    def clear(self) -> None:
        """Start over for another engine."""
        self._samples.clear()
        self.failure = None

    def add(self, told: MetricsSample | Failure) -> None:
        """Add a sample. A failure ends with the next one."""
        if isinstance(told, Failure):
            self.failure = told
            return
        self.failure = None
        self._samples.append(told)

    @property
    def newest(self) -> EngineMetrics | None:
        return self._samples[-1].metrics if self._samples else None

    @property
    def speed(self) -> float | None:
        """Tokens a second between the last two samples; None before there are two."""
        return _speed(self._samples[-2], self._samples[-1]) if len(self._samples) > 1 else None

    def speeds(self, columns: int) -> list[float]:
        """Return the tokens a second of the last five minutes, in as many equal parts; the newest is the last."""
        values = [(after.at, _speed(before, after) or 0.0) for before, after in pairwise(self._samples)]
        return self._parts(columns, values)

    def _parts(self, columns: int, values: Sequence[tuple[float, float]]) -> list[float]:
        """The largest value of each part; 0 where there is none."""
        found = [0.0] * columns
        end = self._samples[-1].at if self._samples else 0.0
        for at, value in values:
            place = columns - 1 - int((end - at) / _SPAN_S * columns)
            if 0 <= place < columns:
                found[place] = max(found[place], value)
        return found


def _speed(before: MetricsSample, after: MetricsSample) -> float | None:
    """Tokens a second between two samples; None where the engine does not count them, or restarted its counters."""
    first, last, seconds = _generated(before.metrics), _generated(after.metrics), after.at - before.at
    return None if first is None or last is None or last < first or seconds <= 0 else (last - first) / seconds


def _generated(metrics: EngineMetrics) -> int | None:
    counts = [rank.generated_tokens for rank in metrics.ranks if rank.generated_tokens is not None]
    return sum(counts) if counts else None
