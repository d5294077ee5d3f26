"""`vlmtui ps`, `stop` and `top`: the models loaded on this machine, and the metrics of a vLLM server."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence

import msgspec

from vlmtui.cli.output import note, print_json, print_table
from vlmtui.config.duration import describe_duration
from vlmtui.config.settings import EngineSettings, load_settings
from vlmtui.domain.engine import LoadSpec, distinction, kind_of
from vlmtui.domain.metrics import EngineMetrics
from vlmtui.engine.local.host import WorkerHost, WorkerInfo
from vlmtui.engine.remote_models import engine_settings, fetch_metrics
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.text import one_line, visible

_GIB = 2**30
_NOT_ANSWERING = "not answering"
_UNKNOWN = "?"
_NOTHING = "No model is loaded."
_OF_STATUS = (
    "clients", "running", "changed", "idle_s", "keep_alive_s", "kept", "engine_silent_s", "rss_bytes", "gpu_bytes"
)  # fmt: skip
"""The fields of an engine's status that `ps --json` prints, too."""


def fill_ps(ps: argparse.ArgumentParser) -> None:
    ps.description = "List the running workers, those of other machines that share this home folder included."
    ps.add_argument("--json", action="store_true", help="print a JSON array")


def fill_stop(stop: argparse.ArgumentParser) -> None:
    stop.description = "Stop the worker of a model and all its processes, even during a load."
    which = stop.add_mutually_exclusive_group()
    which.add_argument("model", metavar="MODEL|PID", nargs="?", help="its name or pid as listed by `vlmtui ps`")
    which.add_argument("--all", action="store_true", help="every model")
    stop.add_argument("--json", action="store_true", help="print a JSON array of the stopped models")


def fill_top(top: argparse.ArgumentParser) -> None:
    top.description = (
        "Print once what the loaded models, or a vLLM server, are doing: requests, caches and tokens of each rank, and "
        "the time that tokens take."
    )
    top.add_argument(
        "name",
        metavar="MODEL|ENGINE",
        nargs="?",
        help="a model that is loaded here (default: all), or a server: its address, such as http://127.0.0.1:8000 or "
        "unix:/PATH, or its name in config.toml",
    )
    top.add_argument("--key-env", metavar="NAME", help="the environment variable with the server's key")
    top.add_argument("--json", action="store_true", help="print one JSON object")


def ps(arguments: argparse.Namespace) -> int:
    found = asyncio.run(WorkerHost(Paths.default()).find_all())
    if arguments.json:
        print_json([_as_json(worker) for worker in found])
    elif not found:
        note(_NOTHING)
    else:
        head = ["MODEL", "ENGINE", "PID", "STATE", "CLIENTS", "IDLE", "STAYS", "KEPT", "MEMORY", "GPU"]
        print_table(head, [_row(worker, found) for worker in found])
    return 0


def stop(arguments: argparse.Namespace) -> int:
    if not arguments.all and arguments.model is None:
        message = "Choose which model to stop."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="`vlmtui ps` lists them; `vlmtui stop --all` stops all.")
    return asyncio.run(_stop(arguments))


def top(arguments: argparse.Namespace) -> int:
    """Print the metrics of a server, a loaded model, or all loaded models. Raises VlmtuiError if NAME is unknown."""
    if (server := _server_of(arguments)) is not None:
        found = fetch_metrics(server)
        if arguments.json:
            print_json(msgspec.to_builtins(found))
        else:
            _print_metrics(", ".join(found.models), found)
        return 0
    return asyncio.run(_top(arguments.name, as_json=arguments.json))


def _workers_named(running: Sequence[WorkerInfo], name: str) -> list[WorkerInfo]:
    """Return the workers with this model name or pid. Raises VlmtuiError if there is none."""
    if wanted := [worker for worker in running if worker.is_called(name)]:
        return wanted
    hint = f"Running: {', '.join(worker.name for worker in running) or 'none'}."
    raise VlmtuiError(ErrorKind.MODEL_UNKNOWN, f"No running model is called {name!r}.", hint=hint)


async def _stop(arguments: argparse.Namespace) -> int:
    host = WorkerHost(Paths.default())
    running = await host.find_all()
    wanted = running if arguments.all else _workers_named(running, arguments.model)
    here = _of_this_machine(wanted)
    for worker in here:
        await host.stop(worker.endpoint)
        note(f"{worker.name} (pid {worker.pid or _UNKNOWN}) was stopped.")
    if arguments.json:
        print_json([{"model": worker.name, "pid": worker.pid} for worker in here])
    if not wanted:
        note(_NOTHING)
    return int(len(here) < len(wanted))


def _of_this_machine(workers: Sequence[WorkerInfo]) -> list[WorkerInfo]:
    """Return the workers of this machine, and say what can be done with the others."""
    here = [worker for worker in workers if worker.elsewhere is None]
    for worker in workers:
        if worker.elsewhere is not None:
            where, file = one_line(worker.elsewhere), worker.endpoint.record
            text = f"{worker.name} runs, or ran, on another machine: {where}. Stop it there."
            note(f"{text} If {where} no longer exists, delete {one_line(str(file))}.")
    return here


def _row(worker: WorkerInfo, others: Sequence[WorkerInfo]) -> list[str]:
    status = worker.status
    if status is None:
        state = _NOT_ANSWERING if worker.elsewhere is None else f"on {one_line(worker.elsewhere)}"
        return [worker.name, "", str(worker.pid or _UNKNOWN), state, "", "", "", "", "", ""]
    specs = [other.status.spec for other in others if other.status is not None]
    return [
        worker.name,
        _engine(status.spec, specs),
        str(worker.pid),
        f"{status.state}, files changed" if status.changed else status.state,
        str(status.clients),
        f"{status.idle_s:.0f} s" if status.state == "idle" else "",
        "forever" if status.keep_alive_s is None else describe_duration(status.keep_alive_s),
        str(len(status.kept)) if status.kept else "",
        f"{status.rss_bytes / _GIB:.1f} GiB",
        f"{status.gpu_bytes / _GIB:.1f} GiB" if status.gpu_bytes is not None else "",
    ]


def _engine(spec: LoadSpec, specs: Sequence[LoadSpec]) -> str:
    """Return the kind of engine, and how it differs from the other loaded ones: `Transformers, device=cpu`."""
    kind, told = kind_of(spec), distinction(spec, specs)
    return told if told.startswith(kind) else f"{kind}, {told}" if told else kind


def _as_json(worker: WorkerInfo) -> dict[str, object]:
    status = worker.status
    about: dict[str, object] = {
        "model": worker.name,
        "engine": kind_of(status.spec) if status else None,
        "pid": worker.pid,
        "machine": worker.elsewhere,
        "state": status.state if status else _NOT_ANSWERING,
        "started_at": worker.record.started_at if worker.record else None,
        "log": str(worker.endpoint.log),
    }
    return about | {name: getattr(status, name, None) for name in _OF_STATUS}


def _server_of(arguments: argparse.Namespace) -> EngineSettings | None:
    """Return the server that NAME means; None if NAME is a model of this machine. Raises VlmtuiError."""
    name = arguments.name
    if name is None:
        return None
    engines = load_settings(Paths.default(), os.environ).engines
    if name not in engines and "/" not in name and ":" not in name:
        return None
    return engine_settings(engines, name, key_env=arguments.key_env)


async def _top(name: str | None, *, as_json: bool) -> int:
    host = WorkerHost(Paths.default())
    running = await host.find_all()
    wanted = running if name is None else _workers_named(running, name)
    told: list[dict[str, object]] = []
    for worker in _of_this_machine(wanted):
        about: dict[str, object] = {"model": worker.name, "pid": worker.pid}
        try:
            found = await host.metrics(worker.endpoint)
        except (OSError, VlmtuiError) as error:
            said = error.message if isinstance(error, VlmtuiError) else one_line(str(error))
            note(f"{worker.name}: {said}")
            told.append({**about, "error": said})
            continue
        told.append({**about, "metrics": msgspec.to_builtins(found)})
        if not as_json:
            _print_metrics(worker.name, found)
    if as_json:
        print_json(told)
    elif not wanted:
        note(_NOTHING)
    return 0


def _print_metrics(name: str, found: EngineMetrics) -> None:
    note(f"Model: {visible(name) or _UNKNOWN}")
    head = ["RANK", "RUNNING", "WAITING", "KV CACHE", "PREEMPTED", "PROMPT TOKENS", "CACHED", "GENERATED"]
    rows = [
        [
            visible(rank.rank),
            _count_text(rank.running),
            _count_text(rank.waiting),
            _UNKNOWN if rank.kv_cache is None else f"{rank.kv_cache:.1%}",
            _count_text(rank.preemptions),
            _count_text(rank.prompt_tokens),
            _count_text(rank.cached_tokens),
            _count_text(rank.generated_tokens),
        ]
        for rank in found.ranks
    ]
    print_table(head, rows)
    if found.media_lookups:
        counts = f"{_count_text(found.media_hits)} of {_count_text(found.media_lookups)}"
        note(f"{counts} images and videos came from the media cache.")
    for what, times in (("First token", found.first_token_s), ("Between tokens", found.between_tokens_s)):
        if any(time is not None for time in times):
            shown = " / ".join(_UNKNOWN if time is None else f"{time * 1000:.0f} ms" for time in times)
            note(f"{what}: {shown} (50th, 90th, 99th percentile since its start).")


def _count_text(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"
