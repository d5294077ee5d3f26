"""Tokens per second and time to first token through the worker and a server, against a bare HTTP client of that server.

`python -m benchmarks.remote_overhead [--rounds N] [--server unix:/PATH]`. Starts a `vllm serve` of the bundled model,
or uses a running one. Both send the same request in turn, since a machine's speed changes. Prints medians, and the
medians of the ratios and differences of the pairs. Budget: at least 0.97 of the tokens per second; the first token at
most 10 ms later.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.engine_overhead import TOKENS, Round, compare, through_the_worker
from tests.support.vllm_server import VllmServer
from vlmtui.domain.conversation import Turn, user_turn
from vlmtui.domain.engine import LoadFailed
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.remote_models import find_remote_model
from vlmtui.media.stage import stage
from vlmtui.paths import Paths, sample_image
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.worker.backends.remote.bodies import messages_of, read_media

BUDGET = 0.97
SETTLE_S = 1.0
"""Seconds to wait before each round: vLLM's processes spin for a second after their last token."""
START_S = 600.0


async def measure(address: str, rounds: int) -> list[tuple[Round, Round]]:
    """Measure a round through the worker, with this process as client, and a round of a bare HTTP client, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths.below(Path(folder))
        registry = Registry.bundled()
        model = await asyncio.to_thread(find_when_ready, registry, address)
        engine = await WorkerHost(paths).open(model.spec, client="benchmark", keep_alive_s=0)
        async for loaded in engine.load():
            assert not isinstance(loaded, LoadFailed), loaded
        turn = user_turn("What is in this image?", [stage(sample_image(), paths.media)])
        transport = httpx2.AsyncHTTPTransport(uds=address.removeprefix("unix:"))
        found = []
        async with httpx2.AsyncClient(transport=transport, timeout=120, trust_env=False) as client:
            for _ in range(rounds + 1):
                await asyncio.sleep(SETTLE_S)
                through = await through_the_worker(engine, model, turn)
                await asyncio.sleep(SETTLE_S)
                found.append((through, await bare(client, turn)))
        await engine.shutdown()
    return found[1:]


def find_when_ready(registry: Registry, address: str) -> Model:
    """Wait until the server listens, and return its model."""
    from vlmtui.worker.backends.remote.http_api import NothingListens

    end = time.monotonic() + START_S
    while True:
        try:
            return find_remote_model(registry, {}, address)
        except NothingListens:
            if time.monotonic() > end:
                raise
            time.sleep(1)


async def bare(client: httpx2.AsyncClient, turn: Turn) -> Round:
    """Send the same request, and only read its events."""
    started, first, tokens = time.monotonic(), 0.0, 0
    body: dict[str, Any] = {"model": "shapes", "messages": messages_of([turn], await read_media(turn.attachments))}
    body |= {"temperature": 0, "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    body |= {"return_token_ids": True, "return_prompt_text": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", "http://localhost/v1/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            choices = json.loads(line[6:])["choices"]
            found = choices[0].get("token_ids") if choices else None
            if found and not first:
                first = time.monotonic() - started
            tokens += len(found or ())
    assert tokens == TOKENS, tokens
    return Round(first, time.monotonic() - started)


@contextmanager
def server() -> Iterator[str]:
    """A server of the bundled model, which may still be loading."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp") as folder:
        path = Path(folder) / "socket"
        started = VllmServer(resolve(Registry.bundled(), "shapes").spec.model, Path(folder), ["--uds", str(path)])
        try:
            yield f"unix:{path}"
        finally:
            started.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--server", metavar="unix:/PATH", help="one that runs, with the bundled model as `shapes`")
    args = parser.parse_args()
    if args.server:
        pairs = asyncio.run(measure(args.server, args.rounds))
    else:
        with server() as address:
            pairs = asyncio.run(measure(address, args.rounds))
    return compare(pairs, "bare client", BUDGET)


if __name__ == "__main__":
    sys.exit(main())
