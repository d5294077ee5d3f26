"""Tokens per second and time to first token through the worker, against AsyncLLM alone.

`python -m benchmarks.engine_overhead [--rounds N]`. Both load the bundled model with the same arguments and answer the
same request in turn, since a machine's speed changes. Prints medians and the median ratio of the pairs. Budgets: at
least 0.9 of the tokens per second; the first token at most 10 ms later. On a CPU the worker lowers its priority.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import EngineReady
from vlmtui.domain.generation import Delta, Finished
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.local.launcher import worker_environment
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.generation import make_request
from vlmtui.worker.backends.vllm.engine_args import CPU_ENVIRONMENT, ENVIRONMENT, engine_arguments

TOKENS = 400
BUDGET = 0.9
BUDGET_MS = 10.0
SETTLE_S = 2.0
"""Seconds to wait before each round: vLLM's processes spin for a second after their last token."""


class Round(NamedTuple):
    """Seconds to the first token, and in total."""

    first: float
    total: float


async def measure(rounds: int) -> list[tuple[Round, Round]]:
    """Return pairs of rounds, measured in turn: through the worker with this process as client, and with AsyncLLM
    alone."""
    model = resolve(Registry.bundled(), "shapes")
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths.below(Path(folder))
        engine = await WorkerHost(paths).open(model.spec, client="benchmark", keep_alive_s=0)
        async for loaded in engine.load():
            if isinstance(loaded, EngineReady):
                print(f"worker loaded in {loaded.info.load_s:.0f} s")
        bare = Bare(Endpoint.named(paths, "benchmark"))
        await asyncio.to_thread(bare.load)
        found = []
        for _ in range(rounds + 1):
            await asyncio.sleep(SETTLE_S)
            through = await through_the_worker(engine, model)
            await asyncio.sleep(SETTLE_S)
            found.append((through, await asyncio.to_thread(bare.round)))
        bare.end()
        await engine.shutdown()
    return found[1:]


async def through_the_worker(engine: Engine, model: Model) -> Round:
    """Request an answer of `TOKENS` tokens."""
    sampling = Sampling(max_tokens=TOKENS, extra={"ignore_eos": True})
    started, first, last = time.monotonic(), 0.0, None
    request = make_request(model.family, [user_turn("hello")], sampling, keep=True)
    async for event in engine.generate(msgspec.structs.replace(request, sampling=sampling)):
        if isinstance(event, Delta) and not first:
            first = time.monotonic() - started
        last = event
    total = time.monotonic() - started
    assert isinstance(last, Finished) and last.usage.completion_tokens == TOKENS, last
    await engine.forget(request.request_id)
    return Round(first, total)


class Bare:
    """AsyncLLM in a process with the worker's environment; each line to it starts a round. Blocking."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._results, told = os.pipe()
        environment = {**ENVIRONMENT, **CPU_ENVIRONMENT, **worker_environment(os.environ, endpoint)}
        command = [sys.executable, "-m", "benchmarks.engine_overhead", "--alone", str(told)]
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=(told,),
            start_new_session=True,
        )
        os.close(told)
        self._lines = os.fdopen(self._results)

    def load(self) -> None:
        assert self._lines.readline() == "loaded\n"

    def round(self) -> Round:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return Round(*json.loads(self._lines.readline()))

    def end(self) -> None:
        self._process.communicate()
        self._lines.close()


async def alone(told: int) -> None:
    """Run AsyncLLM in this process: one round for each line from stdin."""
    from dataclasses import fields

    from vllm import AsyncEngineArgs, SamplingParams
    from vllm.platforms import current_platform
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    spec = resolve(Registry.bundled(), "shapes").spec
    known = {field.name for field in fields(AsyncEngineArgs)}
    arguments: dict[str, Any] = engine_arguments(spec, known=known, on_cpu=current_platform.is_cpu())
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    prompt: Any = {"prompt": "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"}
    os.write(told, b"loaded\n")
    parameters = SamplingParams(
        temperature=0.0, max_tokens=TOKENS, ignore_eos=True, output_kind=RequestOutputKind.DELTA
    )
    numbers = itertools.count()
    while await asyncio.to_thread(sys.stdin.readline):
        started, first = time.monotonic(), 0.0
        async for _ in llm.generate(prompt, parameters, str(next(numbers))):
            first = first or time.monotonic() - started
        os.write(told, json.dumps(Round(first, time.monotonic() - started)).encode() + b"\n")
    llm.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone is not None:
        asyncio.run(alone(args.alone))
        return 0
    pairs = asyncio.run(measure(args.rounds))
    for name, rounds in zip(("worker", "AsyncLLM"), zip(*pairs, strict=True), strict=True):
        first = statistics.median(one.first for one in rounds)
        rate = statistics.median(TOKENS / one.total for one in rounds)
        print(f"{name:12} first token {first * 1000:6.1f} ms, {rate:7.1f} tokens/s (medians of {len(rounds)})")
    ratio = statistics.median(bare.total / worker.total for worker, bare in pairs)
    later_ms = statistics.median(worker.first - bare.first for worker, bare in pairs) * 1000
    print(f"ratio        {ratio:.3f} of the tokens/s (budget {BUDGET})")
    print(f"first token  {later_ms:+.1f} ms (budget {BUDGET_MS})")
    return 0 if ratio >= BUDGET and later_ms <= BUDGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
