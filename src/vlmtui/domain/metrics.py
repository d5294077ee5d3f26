"""An engine's metrics (load, caches, latencies), parsed from vLLM's Prometheus text.

The names are those of vLLM 0.32. A metric that an engine does not report is None.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice

import msgspec

from vlmtui.text import one_line

_SAMPLES_MAX = 200_000
_SAMPLE = re.compile(r'(vllm:\w+)\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\} (\S+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_FIRST, _BETWEEN = "time_to_first_token_seconds", "inter_token_latency_seconds"
_READ = (
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "num_preemptions_total",
    "prompt_tokens_total",
    "prefix_cache_hits_total",
    "generation_tokens_total",
    "mm_cache_queries_total",
    "mm_cache_hits_total",
    f"{_FIRST}_bucket",
    f"{_BETWEEN}_bucket",
)
METRIC_NAMES = tuple(f"vllm:{name}" for name in _READ)
"""The Prometheus samples that are parsed: one in seven of those that vLLM reports."""
_Buckets = dict[float, float]
"""The buckets of a histogram: the number of samples up to each value."""

Percentiles = tuple[float | None, float | None, float | None]
"""The 50th, 90th and 99th percentile; None: no samples yet, or beyond the histogram's last bucket."""
_UNCOUNTED: Percentiles = (None, None, None)


class RankMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one data-parallel rank, and its counts since it started."""

    rank: str
    running: int | None = None
    """Requests that are being answered."""
    waiting: int | None = None
    kv_cache: float | None = None
    """The used share of the KV cache, 0 to 1."""
    preemptions: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Prompt tokens found in the prefix cache."""
    generated_tokens: int | None = None
    first_token_s: Percentiles = _UNCOUNTED
    """Seconds to the first token."""


class EngineMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics that an engine reports. Times are in seconds. Percentiles cover all ranks and the time since the
    engine's start."""

    models: tuple[str, ...]
    ranks: tuple[RankMetrics, ...]
    media_lookups: int | None
    """Lookups in the media cache, summed over all ranks: vLLM may count all of them at the first rank."""
    media_hits: int | None
    first_token_s: Percentiles
    """Times to the first token."""
    between_tokens_s: Percentiles


class MetricsSample(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    """Seconds since 1970, by the clock of the worker's machine."""
    metrics: EngineMetrics


def parse_metrics(text: str) -> EngineMetrics:
    """Read Prometheus text. Lines without a vLLM metric are skipped."""
    values: dict[tuple[str, str], float] = {}
    buckets: dict[tuple[str, str], _Buckets] = defaultdict(dict)
    models: set[str] = set()
    samples = (found for line in text.splitlines() if (found := _SAMPLE.match(line)))
    for sample in islice(samples, _SAMPLES_MAX):
        name, labels = sample[1].removeprefix("vllm:"), dict(_LABEL.findall(sample[2]))
        value = _number(sample[3])
        if value is None or "engine" not in labels:
            continue
        models |= {one_line(labels["model_name"])} if "model_name" in labels else set()
        rank, upper = one_line(labels["engine"]), _number(labels.get("le", ""), infinite=True)
        if name in (f"{_FIRST}_bucket", f"{_BETWEEN}_bucket") and upper is not None:
            histogram = buckets[name.removesuffix("_bucket"), rank]
            histogram[upper] = histogram.get(upper, 0.0) + value
        else:
            values[name, rank] = values.get((name, rank), 0.0) + value
    return EngineMetrics(
        models=tuple(sorted(models)),
        ranks=_ranks(values, buckets),
        media_lookups=_total(values, "mm_cache_queries_total"),
        media_hits=_total(values, "mm_cache_hits_total"),
        first_token_s=_percentiles(_of_all_ranks(buckets, _FIRST)),
        between_tokens_s=_percentiles(_of_all_ranks(buckets, _BETWEEN)),
    )


def _ranks(
    values: Mapping[tuple[str, str], float], buckets: Mapping[tuple[str, str], _Buckets]
) -> tuple[RankMetrics, ...]:
    by_rank: dict[str, dict[str, float]] = defaultdict(dict)
    for (name, rank), value in values.items():
        by_rank[rank][name] = value
    known = {rank: found for rank, found in by_rank.items() if "num_requests_running" in found}
    return tuple(
        RankMetrics(
            rank=rank,
            running=_count(found, "num_requests_running"),
            waiting=_count(found, "num_requests_waiting"),
            kv_cache=found.get("kv_cache_usage_perc"),
            preemptions=_count(found, "num_preemptions_total"),
            prompt_tokens=_count(found, "prompt_tokens_total"),
            cached_tokens=_count(found, "prefix_cache_hits_total"),
            generated_tokens=_count(found, "generation_tokens_total"),
            first_token_s=_percentiles(buckets.get((_FIRST, rank), {})),
        )
        for rank, found in sorted(known.items(), key=lambda item: (len(item[0]), item[0]))
    )


def _of_all_ranks(buckets: Mapping[tuple[str, str], _Buckets], name: str) -> _Buckets:
    found: _Buckets = {}
    for (one, _), histogram in buckets.items():
        for upper, count in histogram.items() if one == name else ():
            found[upper] = found.get(upper, 0.0) + count
    return found


def _count(found: Mapping[str, float], name: str) -> int | None:
    return int(found[name]) if name in found else None


def _total(values: Mapping[tuple[str, str], float], name: str) -> int | None:
    found = [value for (one, _), value in values.items() if one == name]
    return int(sum(found)) if found else None


def _percentiles(buckets: Mapping[float, float]) -> Percentiles:
    return _percentile(buckets, 0.5), _percentile(buckets, 0.9), _percentile(buckets, 0.99)


def _percentile(buckets: Mapping[float, float], share: float) -> float | None:
    """Return a percentile from cumulative bucket counts, interpolated within a bucket as Prometheus'
    `histogram_quantile` does."""
    wanted = max(buckets.values(), default=0.0) * share
    lower, below = 0.0, 0.0
    for upper in sorted(buckets):
        count = buckets[upper]
        if wanted > 0 and count >= wanted:
            if math.isinf(upper) or count <= below:
                return None
            return lower + (upper - lower) * (wanted - below) / (count - below)
        lower, below = upper, count
    return None


def _number(text: str, *, infinite: bool = False) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e18 or (infinite and value == math.inf) else None
