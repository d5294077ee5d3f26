"""Counts what became of the items of a batch, in bounded memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from vlmtui.session.batch.item import BatchItem
from vlmtui.session.batch.work import ItemResult

_STEP = 1.05
"""Width of a histogram's bucket: each ends 5 % later than it begins."""
_EXAMPLES = 5
_SUMS = (
    "answered", "failed", "skipped", "failed_before", "unchecked", "expected", "correct", "prompt_tokens",
    "completion_tokens", "media_tokens", "media", "media_repeated",
)  # fmt: skip


class DurationHistogram:
    """Durations in buckets; a percentile is exact to 5 %."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0

    def add(self, seconds: float) -> None:
        self._buckets[math.floor(math.log(max(seconds, 1e-4), _STEP))] += 1
        self.count += 1

    def add_all(self, other: DurationHistogram) -> None:
        """Add the durations of another."""
        self._buckets.update(other._buckets)
        self.count += other.count

    def percentile(self, percent: float) -> float | None:
        """Return a duration in seconds, or None if there are none."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return float(_STEP ** (bucket + 0.5))
        return None

    def bars(self) -> Iterator[tuple[float, int]]:
        """Yield the upper bounds of the buckets in seconds, and their counts, from the first to the last that is not
        empty."""
        for bucket in range(min(self._buckets, default=0), max(self._buckets, default=-1) + 1):
            yield _STEP ** (bucket + 1), self._buckets[bucket]


class Tally:
    """Counts of this run."""

    def __init__(self) -> None:
        self.read = 0
        """Items of the input that were read, ahead of those that are done; 0: not counted."""
        self.answered = 0
        self.failed = 0
        self.skipped = 0
        """Answered by an earlier run."""
        self.failed_before = 0
        """Failed in an earlier run, and not tried again."""
        self.unchecked = 0
        """Answered by an earlier run; whether they have changed can't be told, as a file is gone."""
        self.changed: Counter[str] = Counter()
        """Items that were answered before and have changed, by what has."""
        self.changed_ids: list[str] = []
        """Some of them."""
        self.kinds: Counter[str] = Counter()
        self.expected = 0
        self.correct = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.media_tokens = 0
        self.media = 0
        self.media_repeated = 0
        """Media that an item shortly before had as well."""
        self.ttft = DurationHistogram()
        self.latency = DurationHistogram()
        self._recent: dict[str, None] = {}

    @property
    def done(self) -> int:
        """Items that this run is through with."""
        return self.answered + self.failed + self.skipped + self.failed_before + self.unchecked

    @property
    def score(self) -> float | None:
        """The share of the answers with an expectation that are right; None if nothing is expected."""
        return self.correct / self.expected if self.expected else None

    def count(self, result: ItemResult) -> None:
        """Count a result of this run."""
        if result.correct is not None:
            self.expected += 1
            self.correct += result.correct
        if result.work is not None:
            for attachment in result.work.attachments:
                self._count_medium(attachment.sha256)
        if result.failure is not None:
            self.failed += 1
            self.kinds[result.failure.kind.value] += 1
            return
        self.answered += 1
        if (answer := result.answer) is None:
            return
        self.prompt_tokens += answer.usage.prompt_tokens
        self.completion_tokens += answer.usage.completion_tokens
        self.media_tokens += answer.usage.media_tokens
        if timings := answer.timings:
            self.latency.add(timings.total_s)
            if timings.ttft_s is not None:
                self.ttft.add(timings.ttft_s)

    def add(self, other: Tally) -> None:
        """Add the counts of other items."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.changed.update(other.changed)
        self.kinds.update(other.kinds)
        self.changed_ids += other.changed_ids[: _EXAMPLES - len(self.changed_ids)]
        self.ttft.add_all(other.ttft)
        self.latency.add_all(other.latency)

    def note_changed(self, item: BatchItem, parts: list[str]) -> None:
        """Count an item that was answered before and has changed."""
        self.changed.update(parts)
        if len(self.changed_ids) < _EXAMPLES:
            self.changed_ids.append(item.id)

    def _count_medium(self, sha256: str) -> None:
        self.media += 1
        if self._recent.pop(sha256, self) is None:
            self.media_repeated += 1
        self._recent[sha256] = None
        if len(self._recent) > 4096:
            del self._recent[next(iter(self._recent))]
