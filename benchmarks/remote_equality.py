"""A server's reports against those of the worker's own engine, for the same prompts.

`python -m benchmarks.remote_equality [--server unix:/PATH]`. Starts a `vllm serve` of the bundled model, or uses a
running one, and loads the worker's own engine; requests to both go through workers, as the app's do. Prints for each
prompt whether the prompt's tokens, the places of its media, the answer's tokens and its text are the same, and the
largest difference of a sampled token's log-probability. Exit code 1: there is a difference.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.remote_overhead import find_when_ready, server
from tests.support.equality import Report, compare, logprob_difference, prompts, report_of
from tests.support.hosts import patient_host
from vlmtui.domain.engine import EngineReady
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.host import WorkerHost
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve

COLUMNS = ("prompt ids", "media", "answer ids", "answer")

Row = tuple[str, Report, Report]


async def ask_both(address: str) -> list[Row]:
    """Return each prompt's name, and the reports of the worker's own engine and of the server."""
    registry = Registry.bundled()
    served = await asyncio.to_thread(find_when_ready, registry, address)
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            host = patient_host(Paths.below(Path(folder)))
            engines = [await loaded(host, model, stack) for model in (resolve(registry, "shapes"), served)]
            rows = []
            for number, (name, prompt) in enumerate(prompts(Path(folder)), 1):
                here, there = [await report_of(engine, prompt, number) for engine in engines]
                rows.append((name, here, there))
    return rows


async def loaded(host: WorkerHost, model: Model, stack: AsyncExitStack) -> WorkerClient:
    """Return a worker that ends with the stack."""
    client = await host.open(model.spec, client="benchmark", keep_alive_s=0)
    stack.push_async_callback(client.shutdown)
    events = [event async for event in client.load()]
    assert isinstance(events[-1], EngineReady), events[-1]
    info = events[-1].info
    print(f"{info.engine} {info.engine_version}, {info.device}", flush=True)
    return client


def table(rows: list[Row]) -> Iterator[str]:
    """Return the lines of a Markdown table."""
    yield "| prompt | tokens | answer | " + " | ".join(COLUMNS) + " | log-probabilities |"
    yield "| --- " * (len(COLUMNS) + 4) + "|"
    for name, here, there in rows:
        same = compare(here, there)
        said = ["=" if same[column] else "**differs**" for column in COLUMNS]
        tokens = [str(len(here.prompt_ids)), str(len(here.ids))]
        yield f"| {' | '.join([name, *tokens, *said])} | {logprob_difference(here, there):.0e} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", metavar="unix:/PATH", help="one that runs, with the bundled model as `shapes`")
    args = parser.parse_args()
    if args.server:
        rows = asyncio.run(ask_both(args.server))
    else:
        with server() as address:
            rows = asyncio.run(ask_both(address))
    print("\n".join(table(rows)))
    differing = [name for name, here, there in rows if not all(compare(here, there).values())]
    worst = max(logprob_difference(here, there) for _, here, there in rows)
    print(f"{len(rows)} prompts, {len(differing)} differ; log-probabilities by {worst:.1e} at most")
    for name, here, there in rows:
        for told_by in (here, there):
            if told_by.failure:
                print(f"{name}: {told_by.failure.failure.message}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
