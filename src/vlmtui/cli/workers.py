"""`vlmtui ps` and `vlmtui stop`: list and stop the running workers."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from vlmtui.bootstrap import build_workers
from vlmtui.cli.output import note, print_json, print_table
from vlmtui.config.duration import describe_duration
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.engine_labels import distinction, kind_of
from vlmtui.engine.local.worker_info import WorkerInfo
from vlmtui.errors import ErrorKind, VlmtuiError

_GIB = 2**30
_DEAF = "not answering"


def ps(arguments: argparse.Namespace) -> int:
    found = asyncio.run(build_workers().find_all())
    if arguments.json:
        print_json([_as_json(worker) for worker in found])
    elif not found:
        note("No model is loaded.")
    else:
        head = ["MODEL", "ENGINE", "PID", "STATE", "CLIENTS", "IDLE", "STAYS", "KEPT", "MEMORY", "GPU"]
        print_table(head, [_row(worker, found) for worker in found])
    return 0


def stop(arguments: argparse.Namespace) -> int:
    if not arguments.all and arguments.model is None:
        message = "Choose which model to stop."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="`vlmtui ps` lists them; `vlmtui stop --all` stops all.")
    return asyncio.run(_stop(arguments))


async def _stop(arguments: argparse.Namespace) -> int:
    workers = build_workers()
    found = await workers.find_all()
    wanted = found if arguments.all else [worker for worker in found if worker.is_called(arguments.model)]
    if not wanted and not arguments.all:
        running = ", ".join(worker.name for worker in found)
        message = f"No running model is called {arguments.model!r}."
        raise VlmtuiError(ErrorKind.MODEL_UNKNOWN, message, hint=f"Running: {running or 'none'}.")
    for worker in wanted:
        await workers.stop(worker.endpoint)
        note(f"{worker.name} (pid {worker.pid}) was stopped.")
    if arguments.json:
        print_json([{"model": worker.name, "pid": worker.pid} for worker in wanted])
    if not wanted:
        note("No model is loaded.")
    return 0


def _engine(spec: LoadSpec, specs: Sequence[LoadSpec]) -> str:
    """Return what runs a model, and what tells it from others: `Transformers, device=cpu`."""
    kind, told = kind_of(spec), distinction(spec, specs)
    return told if told.startswith(kind) else f"{kind}, {told}" if told else kind


def _row(worker: WorkerInfo, others: Sequence[WorkerInfo]) -> list[str]:
    status = worker.status
    if status is None:
        return [worker.name, "", str(worker.pid), _DEAF, "", "", "", "", "", ""]
    specs = [other.status.spec for other in others if other.status is not None]
    return [
        worker.name,
        _engine(status.spec, specs),
        str(worker.pid),
        status.state,
        str(status.clients),
        f"{status.idle_s:.0f} s" if status.state == "idle" else "",
        "forever" if status.keep_alive_s is None else describe_duration(status.keep_alive_s),
        str(len(status.kept)) if status.kept else "",
        f"{status.rss_bytes / _GIB:.1f} GiB",
        f"{status.gpu_bytes / _GIB:.1f} GiB" if status.gpu_bytes is not None else "",
    ]


def _as_json(worker: WorkerInfo) -> dict[str, object]:
    status = worker.status
    return {
        "model": worker.name,
        "engine": kind_of(status.spec) if status else None,
        "pid": worker.pid,
        "state": status.state if status else _DEAF,
        "clients": status.clients if status else None,
        "running": status.running if status else None,
        "idle_s": status.idle_s if status else None,
        "keep_alive_s": status.keep_alive_s if status else None,
        "kept": list(status.kept) if status else None,
        "engine_silent_s": status.engine_silent_s if status else None,
        "rss_bytes": status.rss_bytes if status else None,
        "gpu_bytes": status.gpu_bytes if status else None,
        "started_at": worker.record.started_at if worker.record else None,
        "log": str(worker.endpoint.log),
    }
