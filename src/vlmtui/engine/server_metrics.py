"""Reads the metrics of a `vllm serve` from its `/metrics`: Prometheus text, which vLLM serves without a key.

Names of the metrics as in vLLM 0.32. A metric that a server does not have is None. Imports httpx2 only when it asks.
"""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.text import one_line

if TYPE_CHECKING:
    import httpx2

_BYTES_MAX = 16_000_000
_WAIT_S = 10.0
_TOTAL_S = 30.0
_SAMPLES_MAX = 200_000
_SAMPLE = re.compile(r'(vllm:\w+)\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\} (\S+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


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


class ServerMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What a server tells about itself. Times in seconds, since its start, over all ranks."""

    models: tuple[str, ...]
    ranks: tuple[RankMetrics, ...]
    media_lookups: int | None
    """Of all ranks: vLLM counts them for the first rank where it likes."""
    media_hits: int | None
    first_token_s: tuple[float | None, float | None, float | None]
    """The 50th, 90th and 99th percentile of the time to the first token; None: no request yet, or beyond the last
    bucket of the histogram."""
    between_tokens_s: tuple[float | None, float | None, float | None]


def fetch_metrics(address: str) -> ServerMetrics:
    """Ask a server, given by `http://host:port`, with or without `/v1`. Blocks for up to half a minute. Redirects
    are not followed. Raises VlmtuiError."""
    import httpx2

    url = _metrics_url(address)
    try:
        with httpx2.Client(timeout=_WAIT_S, follow_redirects=False) as client, client.stream("GET", url) as response:
            if response.status_code != 200:
                message = f"{url} answers with status {response.status_code}, not with metrics."
                raise bad_input(message, hint="Give the address of a vLLM server, such as http://127.0.0.1:8000.")
            text = _text_of(response, url)
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
        hint = "Check address and port; a server that still loads a model does not listen yet."
        raise VlmtuiError(
            ErrorKind.BAD_INPUT,
            f"{url} cannot be read.",
            detail=one_line(str(error) or type(error).__name__),
            hint=hint,
        ) from error
    found = parse_metrics(text)
    if not found.ranks:
        raise bad_input(f"{url} has no metrics of vLLM.", hint="Other servers and proxies are not supported.")
    return found


def _metrics_url(address: str) -> str:
    try:
        parts = urlsplit(address)
        secret, host = parts.username is not None or parts.password is not None or parts.query, parts.hostname
    except ValueError:
        secret, host, parts = "", None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        shown = "What is given" if "@" in address else repr(one_line(address)[:200])
        raise bad_input(f"{shown} is no address of a server.", hint="Write http://host:port.")
    if secret:
        raise bad_input("An address with a name, a key or a query is not taken.", hint="Metrics need no key.")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}/metrics"


def _text_of(response: httpx2.Response, url: str) -> str:
    """Read a body of limited size in a limited time."""
    body, end = bytearray(), time.monotonic() + _TOTAL_S
    for part in response.iter_bytes():
        body += part
        if len(body) > _BYTES_MAX or time.monotonic() > end:
            raise bad_input(f"{url} sends too much, or too slowly, for metrics.", hint="Check the address.")
    return body.decode(errors="replace")


def parse_metrics(text: str) -> ServerMetrics:
    """Read Prometheus text. Lines that are none of vLLM's metrics are skipped."""
    values: dict[tuple[str, str], float] = {}
    buckets: dict[str, dict[float, float]] = {"time_to_first_token_seconds": {}, "inter_token_latency_seconds": {}}
    models: set[str] = set()
    samples = (found for line in text.splitlines() if (found := _SAMPLE.match(line)))
    for sample in islice(samples, _SAMPLES_MAX):
        name, labels = sample[1].removeprefix("vllm:"), dict(_LABEL.findall(sample[2]))
        value = _number(sample[3])
        if value is None or "engine" not in labels:
            continue
        models |= {one_line(labels["model_name"])} if "model_name" in labels else set()
        histogram = buckets.get(name.removesuffix("_bucket")) if name.endswith("_bucket") else None
        upper = _number(labels.get("le", ""), infinite=True)
        if histogram is not None and upper is not None:
            histogram[upper] = histogram.get(upper, 0.0) + value
        else:
            key = name, one_line(labels["engine"])
            values[key] = values.get(key, 0.0) + value
    return ServerMetrics(
        models=tuple(sorted(models)),
        ranks=_ranks(values),
        media_lookups=_total(values, "mm_cache_queries_total"),
        media_hits=_total(values, "mm_cache_hits_total"),
        first_token_s=_percentiles(buckets["time_to_first_token_seconds"]),
        between_tokens_s=_percentiles(buckets["inter_token_latency_seconds"]),
    )


def _ranks(values: Mapping[tuple[str, str], float]) -> tuple[RankMetrics, ...]:
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
        )
        for rank, found in sorted(known.items(), key=lambda item: (len(item[0]), item[0]))
    )


def _count(found: Mapping[str, float], name: str) -> int | None:
    return int(found[name]) if name in found else None


def _total(values: Mapping[tuple[str, str], float], name: str) -> int | None:
    found = [value for (one, _), value in values.items() if one == name]
    return int(sum(found)) if found else None


def _percentiles(buckets: Mapping[float, float]) -> tuple[float | None, float | None, float | None]:
    return _percentile(buckets, 0.5), _percentile(buckets, 0.9), _percentile(buckets, 0.99)


def _percentile(buckets: Mapping[float, float], share: float) -> float | None:
    """Interpolate within the bucket of cumulative counts, as Prometheus' `histogram_quantile` does."""
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
