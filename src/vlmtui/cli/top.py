"""`vlmtui top`: what a vLLM server, or a model that is loaded here, is doing."""

from __future__ import annotations

import argparse
import asyncio
import os

import msgspec

from vlmtui.bootstrap import build_workers
from vlmtui.cli.output import note, print_json, print_table
from vlmtui.config.engines import EngineSettings
from vlmtui.config.settings import load_settings
from vlmtui.domain.metrics import EngineMetrics, RankMetrics
from vlmtui.engine.remote_models import engine_settings
from vlmtui.engine.server_metrics import fetch_metrics
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.text import one_line, visible

_UNKNOWN = "?"


def top(arguments: argparse.Namespace) -> int:
    """Print once what a server, a model of this machine or all of them are doing. Raises VlmtuiError if there is
    none."""
    if (server := _server_of(arguments)) is not None:
        found = fetch_metrics(server)
        if arguments.json:
            print_json(msgspec.to_builtins(found))
        else:
            _print(", ".join(found.models), found)
        return 0
    return asyncio.run(_workers(arguments.name, as_json=arguments.json))


def _server_of(arguments: argparse.Namespace) -> EngineSettings | None:
    """Return how to reach the server that is named; None if the name is of a model here. Raises VlmtuiError."""
    name = arguments.name
    if name is None:
        return None
    engines = load_settings(Paths.default(), os.environ).engines
    if name not in engines and "/" not in name and ":" not in name:
        return None
    return engine_settings(engines, name, key_env=arguments.key_env)


async def _workers(name: str | None, *, as_json: bool) -> int:
    workers = build_workers()
    running = await workers.find_all()
    wanted = [worker for worker in running if name is None or worker.is_called(name)]
    if name is not None and not wanted:
        hint = f"Running: {', '.join(worker.name for worker in running) or 'none'}."
        raise VlmtuiError(ErrorKind.MODEL_UNKNOWN, f"No running model is called {name!r}.", hint=hint)
    told: list[dict[str, object]] = []
    for worker in wanted:
        about: dict[str, object] = {"model": worker.name, "pid": worker.pid}
        try:
            found = await workers.metrics(worker.endpoint)
        except (OSError, VlmtuiError) as error:
            said = error.message if isinstance(error, VlmtuiError) else one_line(str(error))
            note(f"{worker.name}: {said}")
            told.append({**about, "error": said})
            continue
        told.append({**about, "metrics": msgspec.to_builtins(found)})
        if not as_json:
            _print(worker.name, found)
    if as_json:
        print_json(told)
    elif not wanted:
        note("No model is loaded.")
    return 0


def _print(name: str, found: EngineMetrics) -> None:
    note(f"Model: {visible(name) or _UNKNOWN}")
    head = ["RANK", "RUNNING", "WAITING", "KV CACHE", "PREEMPTED", "PROMPT TOKENS", "CACHED", "GENERATED"]
    print_table(head, [_row(rank) for rank in found.ranks])
    for line in _summary(found):
        note(line)


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


def _summary(found: EngineMetrics) -> list[str]:
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
