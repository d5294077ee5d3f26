"""`vlmtui batch --on ray`: Ray Data spreads the items of a batch over actors.

Each actor asks the server of --engine, or the worker of its own machine, and reads the media there. Ray restarts a lost
actor and gives it the same items again. Only this process writes the output.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from vlmtui.cli.engine import open_loaded, prepare
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.batch.results import MatchedItem, OutputFile
from vlmtui.session.batch.run import BatchEngine, BatchJob, Tally, answer_items
from vlmtui.text import one_line

_Answered = tuple[list[bytes], Tally]
_AT_ONCE = 64
"""Items that an actor gets at a time. If it dies, all of them are asked again."""
_ACTOR_CPUS = 0.1
"""An actor waits for its engine most of the time, and Ray needs whole processors for the tasks that read the items."""
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # so that an engine that an actor starts sees the GPUs
}


async def answer_on_ray(
    arguments: argparse.Namespace,
    job: BatchJob,
    items: Iterator[MatchedItem],
    output: OutputFile,
    tally: Tally,
    progress: Callable[[], None],
) -> None:
    """Answer the items and append the answers to the output. Raises VlmtuiError."""
    ray = _connected(arguments)  # in this thread: stopping Ray while it starts would end this process
    found: asyncio.Queue[_Answered | VlmtuiError | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def answer() -> None:
        end: VlmtuiError | None = VlmtuiError(ErrorKind.INTERNAL, "Ray ended without an answer.")
        with suppress(RuntimeError):  # the loop is closed
            try:
                for result in _mapped(ray, arguments, job, items):
                    loop.call_soon_threadsafe(found.put_nowait, result)
                end = None
            except (ray.exceptions.RayError, RuntimeError, ValueError, OSError) as error:
                end = _lost(error)
            finally:
                loop.call_soon_threadsafe(found.put_nowait, end)

    try:
        threading.Thread(target=answer, name="ray", daemon=True).start()  # Ray may never answer
        while (got := await found.get()) is not None:
            if isinstance(got, VlmtuiError):
                raise got
            lines, counts = got
            await asyncio.to_thread(output.append, lines)
            tally.add(counts)
            progress()
    finally:
        await asyncio.to_thread(ray.shutdown)


def _connected(arguments: argparse.Namespace) -> Any:
    """Return the `ray` module, connected to the cluster of --ray-address, or to a new cluster on this machine. Raises
    VlmtuiError."""
    for name, value in _ENVIRONMENT.items():  # Ray reads some of them when it is imported
        os.environ.setdefault(name, value)
    try:
        import ray.data
    except ImportError as error:
        hint = "Install it beside vlmtui, in its checkout: pip install '.[ray]'"
        raise VlmtuiError(ErrorKind.UNSUPPORTED, "Ray is not installed here.", detail=str(error), hint=hint) from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    options: dict[str, object] = {"log_to_driver": False, "logging_level": "ERROR"}
    if arguments.ray_address is None:
        cpus = (os.cpu_count() or 1) + 2 + arguments.actors * _ACTOR_CPUS
        options |= {"num_cpus": round(cpus), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        with chdir(os.sep):  # Ray puts the current folder on its processes' import path
            ray.init(address=arguments.ray_address or "local", **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise _lost(error) from error
    return ray


def _mapped(
    ray: Any, arguments: argparse.Namespace, job: BatchJob, items: Iterator[MatchedItem]
) -> Iterator[_Answered]:
    """Yield the answer lines and counts of each actor's items, as they arrive. Blocking."""
    import pyarrow

    blocks = []
    while chunk := list(islice(items, _AT_ONCE)):
        rows = pyarrow.array([pickle.dumps(matched) for matched in chunk], pyarrow.large_binary())
        blocks.append(ray.put(pyarrow.table({"item": rows})))
    if not blocks:
        return
    ray.data.DataContext.get_current().enable_progress_bars = False
    mapped = ray.data.from_arrow_refs(blocks).map_batches(
        _Actor,
        fn_constructor_args=(arguments, job, str(Path.cwd())),
        batch_size=None,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=arguments.actors),
        num_cpus=_ACTOR_CPUS,
    )
    for batch in mapped.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        yield from map(pickle.loads, batch["result"].to_pylist())


class _Actor:
    """Opens the engine of its machine, and answers the items that Ray gives it."""

    def __init__(self, arguments: argparse.Namespace, job: BatchJob, folder: str) -> None:
        """`folder`: the command's working directory, if this machine has it too: file names may be relative to it."""
        with suppress(OSError):
            os.chdir(folder)
        setup = prepare(arguments)
        self._job = msgspec.structs.replace(job, cache=setup.application.paths.cache)
        self._loop = asyncio.new_event_loop()
        engine = self._loop.run_until_complete(open_loaded(setup, client="batch"))
        most = arguments.max_concurrency
        self._engine = BatchEngine(lambda: open_loaded(setup, client="batch"), engine, most=most)

    def __call__(self, batch: Any) -> Any:
        """Answer a batch of items; return one row with the pickled answer lines and counts."""
        import pyarrow

        matched = [pickle.loads(row) for row in batch["item"].to_pylist()]
        lines: list[bytes] = []
        tally = Tally()
        self._loop.run_until_complete(answer_items(self._job, iter(matched), self._engine, lines.extend, tally))
        return pyarrow.table({"result": pyarrow.array([pickle.dumps((lines, tally))], pyarrow.large_binary())})


def _lost(error: Exception) -> VlmtuiError:
    first = one_line(str(error).strip().rpartition("\n")[2])
    hint = "See --ray-address and --actors, and Ray's own logs."
    return VlmtuiError(ErrorKind.ENGINE_DIED, "Ray could not answer the batch.", detail=first, hint=hint)
