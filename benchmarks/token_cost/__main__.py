"""What a token costs on its way through worker, socket and client: processor time, against a loop without them.

`python -m benchmarks.token_cost [--rounds N] [--only steps|vllm] [--equal-priority]`. With 1, 8 and 64 requests at
once, in turn with a bare loop: first an engine whose tokens cost nothing and come one by one, 100 a second, against
iterating that engine; then the bundled model in vLLM, against AsyncLLM alone in its own process (with
`--equal-priority` as low in priority as the worker). Prints medians in ms of processor time per
token: of the worker's process (without the engine core), of this one, which is the client, and of the bare loop; what
the first two add to the last; in the first part how often worker and client are woken, in the second the share of
AsyncLLM's tokens a second. Budgets: 0.15 ms added, and 0.98 of the rate of one request.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.engine_overhead import SETTLE_S, Bare, through_the_worker
from benchmarks.token_cost.engine import SteppingEngine
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import EngineReady
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.local.launcher import Launcher, WorkerProgram
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.generation import make_request
from vlmtui.worker.backends.contract import HostedEngine

BUDGET_MS, BUDGET_RATE = 0.15, 0.98
STEPS_TOKENS = {1: 200, 8: 200, 64: 200}
"""Tokens of each request, by the number of requests at once."""
VLLM_TOKENS = {1: 400, 8: 150, 64: 60}


class Cost(NamedTuple):
    """Of one token: ms of processor time, and how often the worker and the client were woken."""

    worker: float
    client: float
    bare: float
    worker_wakes: float = 0.0
    client_wakes: float = 0.0
    rate: float = 1.0
    """Tokens a second, against the bare loop's."""

    @property
    def added(self) -> float:
        return self.worker + self.client - self.bare


class Watch:
    """Processor time and voluntary context switches of a process since this was made."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._seconds, self._switches = self._seconds_now(), self._switches_now()

    @property
    def ms(self) -> float:
        return (self._seconds_now() - self._seconds) * 1000

    @property
    def wakes(self) -> int:
        return self._switches_now() - self._switches

    def _seconds_now(self) -> float:
        return time.clock_gettime(
            ~self._process.pid << 3 | 2
        )  # the kernel's clock of another process (`CPUCLOCK_SCHED`)

    def _switches_now(self) -> int:
        statuses = (path.read_text() for path in Path(f"/proc/{self._process.pid}/task").glob("*/status"))
        lines = (line for status in statuses for line in status.splitlines())
        return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


@asynccontextmanager
async def worker(model: Model, *words: str) -> AsyncIterator[tuple[WorkerClient, psutil.Process, Paths]]:
    """A loaded worker, and its server's process; the worker is what the interpreter runs with `words`, if given."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths.below(Path(folder))
        host = WorkerHost(paths, Launcher(lambda spec: WorkerProgram(words))) if words else WorkerHost(paths)
        client = await host.open(model.spec, client="benchmark", keep_alive_s=0)
        async for loaded in client.load():
            if isinstance(loaded, EngineReady):
                print(f"{loaded.info.engine} loaded in {loaded.info.load_s:.0f} s", flush=True)
        [server] = psutil.Process(client.pid).children()
        yield client, server, paths
        await client.shutdown()


async def measure_steps(model: Model, rounds: int) -> dict[int, list[Cost]]:
    """One token at a time from an engine that costs nothing."""
    found: dict[int, list[Cost]] = {count: [] for count in STEPS_TOKENS}
    async with worker(model, "-m", "benchmarks.token_cost.engine") as (client, server, _):
        alone = SteppingEngine(model.spec)
        for _ in range(rounds + 1):
            for count, tokens in STEPS_TOKENS.items():
                there, here = Watch(server), Watch(psutil.Process())
                await asyncio.gather(*(answer(client, model, tokens) for _ in range(count)))
                numbers = [there.ms, here.ms, 0.0, there.wakes, here.wakes]
                here = Watch(psutil.Process())
                await asyncio.gather(*(answer(alone, model, tokens) for _ in range(count)))
                numbers[2] = here.ms
                found[count].append(Cost(*(number / count / tokens for number in numbers)))
    return {count: costs[1:] for count, costs in found.items()}


async def answer(engine: Engine | HostedEngine, model: Model, tokens: int) -> None:
    request = make_request(model.family, [user_turn("hello")], Sampling(max_tokens=tokens), keep=True)
    events = [event async for event in engine.generate(request)]
    assert len(events) == tokens + 2, events[-1]
    if isinstance(engine, WorkerClient):
        await engine.forget(request.request_id)


async def measure_vllm(model: Model, rounds: int, *, equal_priority: bool) -> dict[int, list[Cost]]:
    """The bundled model, through the worker and in AsyncLLM alone."""
    found: dict[int, list[Cost]] = {count: [] for count in VLLM_TOKENS}
    async with worker(model) as (client, server, paths):
        alone = Bare(Endpoint.named(paths, "benchmark"), equal_priority=equal_priority)
        await asyncio.to_thread(alone.load)
        for _ in range(rounds + 1):
            for count, tokens in VLLM_TOKENS.items():
                await asyncio.sleep(SETTLE_S)
                there = Watch(server)
                through = await through_the_worker(client, model, count, tokens)
                used = there.ms
                await asyncio.sleep(SETTLE_S)
                bare = await asyncio.to_thread(alone.round, count, tokens)
                each = 1 / count / tokens
                cost = Cost(used * each, through.cpu * 1000 * each, bare.cpu * 1000 * each)
                found[count].append(cost._replace(rate=bare.total / through.total))
        alone.end()
    return {count: costs[1:] for count, costs in found.items()}


def print_table(title: str, costs: dict[int, list[Cost]], *, with_rate: bool) -> bool:
    """Print the medians. Return whether they are within the budgets."""
    print(f"\n{title}: ms of processor time per token, medians of {len(costs[1])}")
    further = f"rate (budget {BUDGET_RATE} at 1)" if with_rate else "wake-ups of worker, client"
    print(f"requests  worker  client  bare loop  added (budget {BUDGET_MS})  {further}")
    is_within = True
    for count, rounds in costs.items():
        middle = Cost(*map(statistics.median, zip(*rounds, strict=True)))
        added = statistics.median(one.added for one in rounds)
        is_within &= added <= BUDGET_MS and (count > 1 or not with_rate or middle.rate >= BUDGET_RATE)
        last = f"{middle.rate:.3f}" if with_rate else f"{middle.worker_wakes:.2f}, {middle.client_wakes:.2f}"
        print(f"{count:8}  {middle.worker:6.3f}  {middle.client:6.3f}  {middle.bare:9.3f}  {added:19.3f}  {last}")
    return is_within


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["steps", "vllm"])
    parser.add_argument("--equal-priority", action="store_true", help="AsyncLLM's as low as the worker's")
    args = parser.parse_args()
    model = resolve(Registry.bundled(), "shapes")
    is_within = True
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # for the worker, which runs elsewhere
    if args.only != "vllm":
        costs = asyncio.run(measure_steps(model, args.rounds))
        is_within &= print_table("An engine without cost, a token at a time", costs, with_rate=False)
    if args.only != "steps":
        costs = asyncio.run(measure_vllm(model, args.rounds, equal_priority=args.equal_priority))
        is_within &= print_table("The bundled model in vLLM", costs, with_rate=True)
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
