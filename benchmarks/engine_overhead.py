"""Tokens a second and time to first token through the worker, against AsyncLLM alone.

`python -m benchmarks.engine_overhead [--rounds N] [--equal-priority]`. Both load the bundled model with the same
arguments, and answer the same request in turn, for a machine changes its pace. Prints medians, and the median of the
ratios of each pair. Budget: at least 0.9 of the tokens a second. On a CPU the worker lowers its priority, and on a
busy machine that decides the ratio; `--equal-priority` lowers that of AsyncLLM alone as well.
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
from vlmtui.worker.backends.contract import CPU_NICENESS
from vlmtui.worker.backends.vllm.engine_args import CPU_ENVIRONMENT, ENVIRONMENT, engine_arguments

TOKENS = 400
BUDGET = 0.9
SETTLE_S = 2.0
"""Before each round: vLLM's processes spin for a second after their last token, which would take the other's cores."""


class Round(NamedTuple):
    """Seconds to the first token, in all, and of processor time of the process that iterates the answers."""

    first: float
    total: float
    cpu: float


async def measure(rounds: int, *, equal_priority: bool = False) -> list[tuple[Round, Round]]:
    """A round through the worker, this process being the client, and one of AsyncLLM alone, in turn."""
    model = resolve(Registry.bundled(), "shapes")
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths.below(Path(folder))
        engine = await WorkerHost(paths).open(model.spec, client="benchmark", keep_alive_s=0)
        async for loaded in engine.load():
            if isinstance(loaded, EngineReady):
                print(f"worker loaded in {loaded.info.load_s:.0f} s")
        bare = Bare(Endpoint.named(paths, "benchmark"), equal_priority=equal_priority)
        await asyncio.to_thread(bare.load)
        found = []
        for _ in range(rounds + 1):
            await asyncio.sleep(SETTLE_S)
            through = await through_the_worker(engine, model, 1, TOKENS)
            await asyncio.sleep(SETTLE_S)
            found.append((through, await asyncio.to_thread(bare.round, 1, TOKENS)))
        bare.end()
        await engine.shutdown()
    return found[1:]


async def through_the_worker(engine: Engine, model: Model, count: int, tokens: int) -> Round:
    """Have `count` requests answered at once with `tokens` tokens each."""
    sampling = Sampling(max_tokens=tokens, extra={"ignore_eos": True})
    started, used = time.monotonic(), time.process_time()

    async def first_token() -> float:
        first, last = 0.0, None
        request = make_request(model.family, [user_turn("hello")], sampling, keep=True)
        async for event in engine.generate(msgspec.structs.replace(request, sampling=sampling)):
            if isinstance(event, Delta) and not first:
                first = time.monotonic() - started
            last = event
        assert isinstance(last, Finished) and last.usage.completion_tokens == tokens, last
        await engine.forget(request.request_id)
        return first

    firsts = await asyncio.gather(*(first_token() for _ in range(count)))
    return Round(min(firsts), time.monotonic() - started, time.process_time() - used)


class Bare:
    """AsyncLLM in a process with the environment that the worker's has; a line to it is a round. Blocking."""

    def __init__(self, endpoint: Endpoint, *, equal_priority: bool = False) -> None:
        self._results, told = os.pipe()
        environment = {**ENVIRONMENT, **CPU_ENVIRONMENT, **worker_environment(os.environ, endpoint)}
        command = [sys.executable, "-m", "benchmarks.engine_overhead", "--alone", str(told)]
        command += ["--equal-priority"] if equal_priority else []
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

    def round(self, count: int, tokens: int) -> Round:
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d %d\n" % (count, tokens))
        self._process.stdin.flush()
        return Round(*json.loads(self._lines.readline()))

    def end(self) -> None:
        self._process.communicate()
        self._lines.close()


async def alone(told: int) -> None:
    """AsyncLLM in this process, and nothing around it: a round for each line from stdin."""
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
    numbers = itertools.count()
    while line := await asyncio.to_thread(sys.stdin.readline):
        count, tokens = map(int, line.split())
        parameters = SamplingParams(
            temperature=0.0, max_tokens=tokens, ignore_eos=True, output_kind=RequestOutputKind.DELTA
        )
        started, used = time.monotonic(), time.process_time()

        async def first_token(parameters: SamplingParams, started: float) -> float:
            first = 0.0
            async for _ in llm.generate(prompt, parameters, str(next(numbers))):
                first = first or time.monotonic() - started
            return first

        firsts = await asyncio.gather(*(first_token(parameters, started) for _ in range(count)))
        round_ = Round(min(firsts), time.monotonic() - started, time.process_time() - used)
        os.write(told, json.dumps(round_).encode() + b"\n")
    llm.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--equal-priority", action="store_true")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone is not None:
        if args.equal_priority:
            os.nice(CPU_NICENESS)
        asyncio.run(alone(args.alone))
        return 0
    pairs = asyncio.run(measure(args.rounds, equal_priority=args.equal_priority))
    for name, rounds in zip(("worker", "AsyncLLM"), zip(*pairs, strict=True), strict=True):
        first = statistics.median(one.first for one in rounds)
        rate = statistics.median(TOKENS / one.total for one in rounds)
        print(f"{name:12} first token {first * 1000:6.1f} ms, {rate:7.1f} tokens/s (medians of {len(rounds)})")
    ratio = statistics.median(bare.total / worker.total for worker, bare in pairs)
    later_ms = statistics.median(worker.first - bare.first for worker, bare in pairs) * 1000
    print(f"ratio        {ratio:.3f} of the tokens/s (budget {BUDGET}); first token {later_ms:+.1f} ms")
    return 0 if ratio >= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
