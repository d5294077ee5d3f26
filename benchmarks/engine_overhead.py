"""Tokens a second and time to first token through the worker, against AsyncLLM alone.

`python -m benchmarks.engine_overhead [--rounds N]`. Both load the bundled model with the same arguments in turn, and
answer the same requests; prints medians and ratios. Budget: at least 0.97 of the tokens a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import Delta, EngineReady
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.host import WorkerHost
from vlmtui.engine.process import worker_environment
from vlmtui.engine.session import make_request
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.worker.engine_args import CPU_ENVIRONMENT, ENVIRONMENT, engine_arguments

TOKENS = 1000
BUDGET = 0.97


async def through_the_worker(rounds: int) -> list[tuple[float, float]]:
    """(time to first token, total) in seconds of every round, in this process as the client."""
    model = resolve(Registry.bundled(), "shapes")
    with tempfile.TemporaryDirectory() as folder:
        engine = await WorkerHost(Paths.below(Path(folder))).open(model.spec, client="benchmark", keep_alive_s=0)
        async for loaded in engine.load():
            if isinstance(loaded, EngineReady):
                print(f"worker loaded in {loaded.info.load_s:.0f} s")
        sampling = Sampling(max_tokens=TOKENS, extra={"ignore_eos": True})
        found = []
        for _ in range(rounds + 1):
            started, first = time.monotonic(), 0.0
            request = make_request(model.family, [user_turn("hello")], sampling)
            request = msgspec.structs.replace(request, sampling=sampling)
            async for event in engine.generate(request):
                if isinstance(event, Delta) and not first:
                    first = time.monotonic() - started
            found.append((first, time.monotonic() - started))
        await engine.shutdown()
    return found[1:]


async def alone(rounds: int) -> list[tuple[float, float]]:
    """The same with AsyncLLM in this process and nothing around it."""
    from dataclasses import fields

    from vllm import AsyncEngineArgs, SamplingParams
    from vllm.platforms import current_platform
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    spec = resolve(Registry.bundled(), "shapes").spec
    known = {field.name for field in fields(AsyncEngineArgs)}
    arguments: dict[str, Any] = engine_arguments(spec, known=known, on_cpu=current_platform.is_cpu())
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    parameters = SamplingParams(
        temperature=0.0, max_tokens=TOKENS, ignore_eos=True, output_kind=RequestOutputKind.DELTA
    )
    prompt: Any = {"prompt": "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"}
    found = []
    for number in range(rounds + 1):
        started, first = time.monotonic(), 0.0
        async for _ in llm.generate(prompt, parameters, str(number)):
            first = first or time.monotonic() - started
        found.append((first, time.monotonic() - started))
    llm.shutdown()
    return found[1:]


def alone_in_a_child(rounds: int) -> list[tuple[float, float]]:
    """`alone`, in a process with the environment that the worker's has."""
    with tempfile.TemporaryDirectory() as folder:
        endpoint = Endpoint.named(Paths.below(Path(folder)), "benchmark")
        environment = {**ENVIRONMENT, **CPU_ENVIRONMENT, **worker_environment(os.environ, endpoint)}
        result = Path(folder) / "rounds.json"
        command = [sys.executable, "-m", "benchmarks.engine_overhead", "--rounds", str(rounds), "--alone", str(result)]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        return [(first, total) for first, total in json.loads(result.read_bytes())]


def summary(name: str, rounds: list[tuple[float, float]]) -> tuple[float, float]:
    """Print and return the medians: seconds to first token, tokens a second."""
    first = statistics.median(first for first, _ in rounds)
    rate = statistics.median(TOKENS / total for _, total in rounds)
    print(f"{name:12} first token {first * 1000:6.1f} ms, {rate:7.1f} tokens/s (medians of {len(rounds)})")
    return first, rate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        args.alone.write_text(json.dumps(asyncio.run(alone(args.rounds))))
        return 0
    worker = summary("worker", asyncio.run(through_the_worker(args.rounds)))
    bare = summary("AsyncLLM", alone_in_a_child(args.rounds))
    ratio = worker[1] / bare[1]
    later_ms = (worker[0] - bare[0]) * 1000
    print(f"ratio        {ratio:.3f} of the tokens/s (budget {BUDGET}); first token {later_ms:+.1f} ms")
    return 0 if ratio >= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
