"""The results of a batch as one self-contained web page: counts, how long answers took, and how many came when."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from vlmtui.session.batch.formats import target_of
from vlmtui.session.batch.results import StoredResult, read_results
from vlmtui.session.batch.tally import DurationHistogram
from vlmtui.web_page import render_page

_BARS_MAX = 60
_SHOWN_MAX = 50
_PAUSE_S = 60.0
"""Longer pauses between two answers are another run: they are left out of the time."""
_WIDTH, _HEIGHT = 600, 160


class Bar(NamedTuple):
    """One bar of a chart, in its coordinates."""

    x: float
    y: float
    width: float
    height: float
    title: str


class _Facts:
    """What is collected in one pass over the results."""

    def __init__(self) -> None:
        self.count = self.failed = self.correct = self.expected = 0
        self.tokens = self.prompt_tokens = self.media_tokens = 0
        self.ttft, self.latency = DurationHistogram(), DurationHistogram()
        self.kinds: Counter[str] = Counter()
        self.models: Counter[str] = Counter()
        self.examples: list[StoredResult] = []
        self.ended: Counter[int] = Counter()
        """Answers by the second in which they ended."""

    def add(self, result: StoredResult) -> None:
        self.count += 1
        if result.error is not None:
            self.failed += 1
            self.kinds[result.error.kind.value] += 1
        if result.correct is not None:
            self.expected += 1
            self.correct += result.correct
        if (result.error is not None or result.correct is False) and len(self.examples) < _SHOWN_MAX:
            self.examples.append(result)
        if result.error is not None:
            return
        self.models[result.model] += 1
        self.tokens += result.usage.completion_tokens
        self.prompt_tokens += result.usage.prompt_tokens
        self.media_tokens += result.usage.image_tokens + result.usage.video_tokens
        if result.timings.total_s is not None:
            self.latency.add(result.timings.total_s)
        if result.timings.ttft_s is not None:
            self.ttft.add(result.timings.ttft_s)
        if result.ended is not None:
            self.ended[int(result.ended)] += 1


def batch_page(output: Path) -> str:
    """Return the page for an output file. Blocking. Raises OSError."""
    facts = _Facts()
    for result in read_results(output):
        facts.add(result)
    seconds, rate = _rate(facts.ended)
    numbers = [
        ("Model", ", ".join(name for name, _ in facts.models.most_common(3)) or "–"),
        ("Items", f"{facts.count:,}"),
        ("Failed", f"{facts.failed:,}"),
        ("As expected", f"{facts.correct:,} of {facts.expected:,}" if facts.expected else "nothing is expected"),
        ("Prompt tokens", f"{facts.prompt_tokens:,}, {facts.media_tokens:,} of them of media"),
        ("Tokens of answers", f"{facts.tokens:,}"),
        ("Time", f"{seconds:,} s, {(facts.count - facts.failed) / max(seconds, 1):.1f} answers a second"),
        ("First token", _percentiles(facts.ttft)),
        ("Whole answer", _percentiles(facts.latency)),
    ]
    charts = [
        ("Answers a second", rate, "0 s", f"{seconds:,} s"),
        ("Time to the first token, logarithmic", *_histogram(facts.ttft)),
        ("Time to the whole answer, logarithmic", *_histogram(facts.latency)),
    ]
    return render_page(
        "batch.html",
        title=f"Batch {output.name}",
        numbers=numbers,
        charts=[chart for chart in charts if chart[1]],
        size=(_WIDTH, _HEIGHT),
        kinds=facts.kinds.most_common(),
        examples=[_example(result) for result in facts.examples],
    )


def _example(result: StoredResult) -> dict[str, str]:
    return {
        "name": result.id or f"line {result.line}",
        "question": result.question,
        "answer": result.error.message if result.error is not None else result.answer,
        "expected": target_of(result.expect),
    }


def _rate(ended: Counter[int]) -> tuple[int, list[Bar]]:
    """Return for how many seconds answers came, and the bars of how many came when. Pauses are left out."""
    at, before = 0, None
    places: Counter[int] = Counter()
    for second in sorted(ended):
        if before is not None:
            at += second - before if second - before <= _PAUSE_S else 1
        before = second
        places[at] = ended[second]
    seconds = at + 1 if places else 0
    step = max(1, -(-seconds // _BARS_MAX))
    bins: Counter[int] = Counter()
    for place, count in places.items():
        bins[place // step] += count
    values = [(f"{n * step} s: {bins[n] / step:.1f} a second", bins[n] / step) for n in range(-(-seconds // step))]
    return seconds, _bars(values)


def _histogram(found: DurationHistogram) -> tuple[list[Bar], str, str]:
    buckets = list(found.bars())
    if not buckets:
        return [], "", ""
    step = -(-len(buckets) // _BARS_MAX)
    values = []
    for start in range(0, len(buckets), step):
        group = buckets[start : start + step]
        count = sum(count for _, count in group)
        values.append((f"up to {group[-1][0]:.3f} s: {count:,}", float(count)))
    return _bars(values), f"{buckets[0][0]:.3f} s", f"{buckets[-1][0]:.3f} s"


def _bars(values: list[tuple[str, float]]) -> list[Bar]:
    highest = max((value for _, value in values), default=0.0)
    width = _WIDTH / max(1, len(values))
    bars = []
    for number, (title, value) in enumerate(values):
        height = _HEIGHT * value / highest if highest else 0.0
        bars.append(Bar(round(number * width, 2), round(_HEIGHT - height, 2), round(width, 2), round(height, 2), title))
    return bars


def _percentiles(found: DurationHistogram) -> str:
    values = [(percent, found.percentile(percent)) for percent in (50, 90, 99)]
    return " · ".join(f"p{percent} {value:.2f} s" for percent, value in values if value is not None) or "–"
