"""`vlmtui batch --on ray`: Ray Data maps items over actors, each with an engine of its own.

Ray has the items (as text; media are read where they are answered) and gives some at a time to each actor, which does
with them what a batch on this machine does with all. An actor that is lost is started again by Ray, and has its items
again; what it had answered of them was told to nobody. This process alone writes the output.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from vlmtui.cli.ask_engine import AskSetup, open_loaded, prepare
from vlmtui.cli.ray_watch import in_own_thread, read_counter, stalled, start_counter, until_still
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.batch.answered import AnsweredIndex, name_of
from vlmtui.session.batch.feeding import Feeder, MetItem, meet_item
from vlmtui.session.batch.item import BadItem, BatchItem
from vlmtui.session.batch.keys import engine_parts
from vlmtui.session.batch.media_desk import MediaDesk
from vlmtui.session.batch.output import OutputFile, ResultLine
from vlmtui.session.batch.places import EnginePlace
from vlmtui.session.batch.requests import ItemRequests
from vlmtui.session.batch.runner import BatchRun, Progress
from vlmtui.session.batch.tally import Tally
from vlmtui.session.batch.work import LineWriter
from vlmtui.text import one_line

RAY = "ray"
"""What `--on` takes for it."""
_ROUNDS, _AT_ONCE = 8, 256
"""Items that an actor is given at a time, and what is asked again if it dies: so many times what its engine runs
together, or where the record does not say that, so many."""
_ACTOR_CPUS = 0.5
"""Of the cluster's processors, unless told otherwise. With whole ones, two actors on two processors would leave none
for the tasks that read the items, and Ray would wait for ever."""
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a call after the end would begin another Ray
}
_LOCAL_CPUS = 4
"""At least so many for a Ray of this machine, for the same reason."""
_READING_CPUS = 2
"""And so many more than the actors take."""
_ENDING_S = 20.0
"""How long Ray may take to end when the batch is given up."""


class RayPlan(NamedTuple):
    """What every actor needs."""

    arguments: dict[str, Any]
    """Of the command line."""
    requests: ItemRequests
    writer: LineWriter
    num_frames: int
    at_once: int
    """Items that an actor is given at a time."""


class RayRun:
    """One run of a batch on Ray."""

    def __init__(self, plan: RayPlan, *, limit_s: float | None) -> None:
        """limit_s: seconds after which it is given up if no actor does anything. Raises VlmtuiError if Ray is not
        installed."""
        for name, value in _ENVIRONMENT.items():  # some are read as Ray is imported
            os.environ.setdefault(name, value)
        try:
            import ray.data
        except ImportError as error:
            raise VlmtuiError(
                ErrorKind.UNSUPPORTED,
                "Ray is not installed here.",
                detail=str(error),
                hint="Install it beside vlmtui: pip install 'vlmtui[ray]'",
            ) from error
        self._ray: Any = ray
        self._plan = plan
        self._limit_s = limit_s
        self._is_stopped = False
        self._counter: Any = None
        self._steps = 0
        """How often this process has handed something to Ray, or got something back."""

    async def answer(
        self, items: Iterator[BatchItem | BadItem], output: OutputFile, tally: Tally, progress: Progress
    ) -> None:
        """Answer all items. Raises VlmtuiError. If it is cancelled, what the actors had not handed over is not
        answered."""
        answering = in_own_thread(partial(self._answer, items, output, tally, progress))
        watching = asyncio.ensure_future(self._until_still())
        try:
            await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise stalled(self._limit_s or 0)
            await answering
        finally:
            watching.cancel()
            if not answering.done():
                self._is_stopped = True
                if self._counter is not None:  # to end Ray while it begins ends this process
                    ending = in_own_thread(self._ray.shutdown)
                    await asyncio.wait({answering, ending}, timeout=_ENDING_S)

    async def _until_still(self) -> None:
        if self._limit_s is None:
            await asyncio.Event().wait()
        else:
            await until_still(self._progress, self._limit_s)

    def _progress(self) -> tuple[int, int | None]:
        """Return what changes as long as something goes on. Blocking."""
        counter = self._counter
        return self._steps, None if counter is None else read_counter(self._ray, counter)

    def _answer(
        self, items: Iterator[BatchItem | BadItem], output: OutputFile, tally: Tally, progress: Progress
    ) -> None:
        self._connect()
        self._counter = start_counter(self._ray)
        try:
            blocks = list(self._blocks(items, output.index))
            for results in self._mapped(blocks) if blocks else ():
                if self._is_stopped:
                    return
                self._steps += 1
                for lines, counts in map(pickle.loads, results):
                    if lines:
                        output.append(lines)
                    tally.add(counts)
                progress(tally)
        except self._ray.exceptions.RayError as error:
            if not self._is_stopped:
                raise _lost(error) from error
        finally:
            self._ray.shutdown()
        if not self._is_stopped:
            output.tidy(is_input_read=True)

    def _connect(self) -> None:
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        address = self._plan.arguments["ray_address"]
        options: dict[str, object] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            cpus = local_cpus(self._plan.arguments)
            options |= {"num_cpus": cpus, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        try:
            self._ray.init(address=address or "local", **options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise _lost(error) from error

    def _blocks(self, items: Iterator[BatchItem | BadItem], index: AnsweredIndex) -> Iterator[Any]:
        """Put the items into Ray's object store, which uses the disk for what does not fit; yield references."""
        import pyarrow

        while chunk := list(islice(items, self._plan.at_once)):
            self._steps += 1
            rows = [pickle.dumps(meet_item(index, item)) for item in chunk]
            yield self._ray.put(pyarrow.table({"item": pyarrow.array(rows, pyarrow.large_binary())}))

    def _mapped(self, blocks: Sequence[Any]) -> Iterator[list[bytes]]:
        """Yield what the actors return, as it comes."""
        data, arguments = self._ray.data, self._plan.arguments
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_no_progress_timeout_s = -1  # it counts blocks alone, and one may take longer
        has_gpus = bool(self._ray.cluster_resources().get("GPU"))
        gpus = arguments["tensor_parallel_size"] or 1 if has_gpus else 0
        gpus = gpus if arguments["actor_gpus"] is None else arguments["actor_gpus"]
        if arguments["ray_address"] is None:  # a cluster may grow
            require_gpus(arguments["actors"], gpus, self._ray.cluster_resources().get("GPU", 0))
        mapped = data.from_arrow_refs(list(blocks)).map_batches(
            ItemMapper,
            fn_constructor_args=(self._plan, self._counter),
            batch_size=None,
            batch_format="pyarrow",
            compute=data.ActorPoolStrategy(size=arguments["actors"]),
            num_cpus=_actor_cpus(arguments),
            num_gpus=gpus,
        )
        for batch in mapped.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield batch["result"].to_pylist()


class ItemMapper:
    """An actor: it loads the engine, and answers what Ray gives it."""

    def __init__(self, plan: RayPlan, counter: Any) -> None:
        self._plan = plan
        self._counter = counter
        self._loop = asyncio.new_event_loop()
        self._setup = _setup_of(plan)
        self._place = EnginePlace(self._opened, self._loop.run_until_complete(self._opened()))

    def __call__(self, batch: Any) -> Any:
        """Return the lines of items, and the counts, in one row."""
        import pyarrow

        met = [pickle.loads(row) for row in batch["item"].to_pylist()]
        result = pickle.dumps(self._loop.run_until_complete(self._answered(met)))
        return pyarrow.table({"result": pyarrow.array([result], pyarrow.large_binary())})

    async def _opened(self) -> Engine:
        return await open_loaded(self._setup, client="batch", progress=self._count)

    def _count(self, *_: object) -> None:
        """Tell that something goes on here."""
        self._counter.add.remote()

    async def _answered(self, met: Sequence[MetItem]) -> tuple[list[ResultLine], Tally]:
        info = self._place.engine.info
        assert info is not None, "the engine is loaded"
        tally, lines, plan = Tally(), _Lines(), self._plan
        paths = self._setup.application.paths
        with (
            ThreadPoolExecutor(1, "output") as disk,
            closing(MediaDesk(paths.cache, num_frames=plan.num_frames)) as desk,
            closing(_index_of(met)) as index,
        ):
            feeder = Feeder(
                iter([one.item for one in met]),
                index=index,
                disk=disk,
                desk=desk,
                requests=msgspec.structs.replace(plan.requests, registry=self._setup.application.registry),
                info=info,
                engine=await asyncio.to_thread(engine_parts, info),
                tally=tally,
            )
            await BatchRun(
                feeder, lines, plan.writer, [self._place], disk=disk, tally=tally, progress=self._count
            ).run()
        return lines.found, tally


class _Lines:
    """Holds lines instead of a file."""

    def __init__(self) -> None:
        self.found: list[ResultLine] = []

    def append(self, lines: Sequence[ResultLine]) -> None:
        self.found += lines


def _index_of(met: Sequence[MetItem]) -> AnsweredIndex:
    """Return what the output has of these items."""
    index = AnsweredIndex()
    for item, row in met:
        if row is not None:
            index.put(name_of(item.id, item.line), row._replace(line=0))
    return index


def _setup_of(plan: RayPlan) -> AskSetup:
    """Return the model and an application whose workers no other actor of this machine shares. They end with it."""
    setup = prepare(argparse.Namespace(**{**plan.arguments, "keep_alive": "0", "on": None, "engine": None}))
    return msgspec.structs.replace(setup, application=setup.application.apart(f"ray-{os.getpid()}"))


def local_cpus(arguments: dict[str, Any]) -> int:
    """Return how many processors a Ray of this machine is told to have: with fewer than its actors and the tasks beside
    them take it would wait for ever."""
    actors: int = arguments["actors"]
    taken = actors * _actor_cpus(arguments)
    return max(_LOCAL_CPUS, os.cpu_count() or 1, math.ceil(taken) + _READING_CPUS)


def _actor_cpus(arguments: dict[str, Any]) -> float:
    given: float | None = arguments["actor_cpus"]
    return _ACTOR_CPUS if given is None else given


def require_gpus(actors: int, each: float, there: float) -> None:
    """Raise VlmtuiError if this machine has too few GPUs, for which Ray would wait without end."""
    if actors * each > there:
        needed = f"{actors} actors need {actors * each:g} GPUs; Ray finds {there:g} here."
        raise VlmtuiError(ErrorKind.UNSUPPORTED, needed, hint="Use fewer --actors, or less with --actor-gpus.")


def _lost(error: Exception) -> VlmtuiError:
    first = one_line(str(error).strip().rpartition("\n")[2])
    hint = "See --ray-address, --actors, --actor-cpus and --actor-gpus, and Ray's own logs."
    return VlmtuiError(ErrorKind.ENGINE_DIED, "Ray could not answer the batch.", detail=first, hint=hint)


def ray_plan(
    arguments: argparse.Namespace, setup: AskSetup, requests: ItemRequests, include: frozenset[str]
) -> RayPlan:
    """Return the plan of a command line."""
    model = setup.model
    together = model.spec.engine_args.get("max_num_seqs")
    return RayPlan(
        arguments=vars(arguments),
        requests=msgspec.structs.replace(requests, registry=None),
        writer=LineWriter(model.spec.name, requests.mode, include),
        num_frames=arguments.num_frames or model.spec.num_frames,
        at_once=_ROUNDS * together if isinstance(together, int) and together > 0 else _AT_ONCE,
    )
