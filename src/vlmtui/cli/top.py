"""`vlmtui top`: what a vLLM server is doing."""

from __future__ import annotations

import argparse

import msgspec

from vlmtui.cli.output import note, print_json, print_table
from vlmtui.engine.server_metrics import RankMetrics, ServerMetrics, fetch_metrics
from vlmtui.text import visible

_UNKNOWN = "?"


def top(arguments: argparse.Namespace) -> int:
    """Print a server's metrics once. Raises VlmtuiError if there is none."""
    found = fetch_metrics(arguments.address)
    if arguments.json:
        print_json(msgspec.to_builtins(found))
        return 0
    note(f"Model: {visible(', '.join(found.models)) or _UNKNOWN}")
    head = ["RANK", "RUNNING", "WAITING", "KV CACHE", "PREEMPTED", "PROMPT TOKENS", "CACHED", "GENERATED"]
    print_table(head, [_row(rank) for rank in found.ranks])
    for line in _summary(found):
        note(line)
    return 0


def _row(rank: RankMetrics) -> list[str]:
    return [
        visible(rank.rank),
        _count(rank.running),
        _count(rank.waiting),
        _UNKNOWN if rank.kv_cache is None else f"{rank.kv_cache:.1%}",
        _count(rank.preemptions),
        _count(rank.prompt_tokens),
        _count(rank.cached_tokens),
        _count(rank.generated_tokens),
    ]


def _summary(found: ServerMetrics) -> list[str]:
    lines = []
    if found.media_lookups:
        lines.append(f"Media cache: {_count(found.media_hits)} of {_count(found.media_lookups)} looked up were there.")
    for name, times in (("First token", found.first_token_s), ("Between tokens", found.between_tokens_s)):
        if any(time is not None for time in times):
            shown = " / ".join(_UNKNOWN if time is None else f"{time * 1000:.0f} ms" for time in times)
            lines.append(f"{name}: {shown} (50th, 90th, 99th percentile since its start).")
    return lines


def _count(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"
