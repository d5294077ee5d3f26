"""Tokens per second and time to first token through the worker, against AsyncLLM alone.

`python -m benchmarks.engine_overhead [--rounds N]`. Both load the bundled model with the same arguments and answer the
same request in turn, since a machine's speed changes. Prints medians and the median ratio of the pairs. Budgets: at
least 0.9 of the tokens per second; the first token at most 10 ms later. On a CPU the worker lowers its priority.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.bare_vllm import BareVllm, bundled_arguments, report
from vlmtui.domain.conversation import Turn, user_turn
from vlmtui.domain.engine import EngineReady
from vlmtui.domain.generation import Delta, Finished
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.local.host import WorkerHost
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.generation import make_request

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
        bare = BareVllm("benchmarks.engine_overhead", Endpoint.named(paths, "benchmark"))
        await asyncio.to_thread(bare.load)
        found = []
        for _ in range(rounds + 1):
            await asyncio.sleep(SETTLE_S)
            through = await through_the_worker(engine, model, user_turn("hello"), keep=True)
            await asyncio.sleep(SETTLE_S)
            found.append((through, Round(*await asyncio.to_thread(bare.round))))
        bare.end()
        await engine.shutdown()
    return found[1:]


async def through_the_worker(engine: Engine, model: Model, turn: Turn, *, keep: bool = False) -> Round:
    """Request an answer of `TOKENS` tokens. `keep`: have the worker keep it, as the app does."""
    sampling = Sampling(max_tokens=TOKENS, extra={"ignore_eos": True})
    request = make_request(model.family, [turn], sampling, keep=keep)
    started, first, last = time.monotonic(), 0.0, None
    async for event in engine.generate(msgspec.structs.replace(request, sampling=sampling)):
        if isinstance(event, Delta) and not first:
            first = time.monotonic() - started
        last = event
    total = time.monotonic() - started
    assert isinstance(last, Finished) and last.usage.completion_tokens == TOKENS, last
    if keep:
        await engine.forget(request.request_id)
    return Round(first, total)


async def alone(told: int) -> None:
    """Run AsyncLLM in this process: one round for each line from stdin."""
    from vllm import AsyncEngineArgs, SamplingParams
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**bundled_arguments(AsyncEngineArgs)))
    prompt: Any = {"prompt": "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"}
    report(told, "loaded")
    parameters = SamplingParams(
        temperature=0.0, max_tokens=TOKENS, ignore_eos=True, output_kind=RequestOutputKind.DELTA
    )
    numbers = itertools.count()
    while await asyncio.to_thread(sys.stdin.readline):
        started, first = time.monotonic(), 0.0
        async for _ in llm.generate(prompt, parameters, str(next(numbers))):
            first = first or time.monotonic() - started
        report(told, Round(first, time.monotonic() - started))
    llm.shutdown()


def compare(pairs: Sequence[tuple[Round, Round]], other: str, budget: float) -> int:
    """Print medians of the worker's and another client's rounds, and their comparison. Return the exit code."""
    for name, rounds in zip(("worker", other), zip(*pairs, strict=True), strict=True):
        first = statistics.median(one.first for one in rounds)
        rate = statistics.median(TOKENS / one.total for one in rounds)
        print(f"{name:12} first token {first * 1000:6.1f} ms, {rate:7.1f} tokens/s (medians of {len(rounds)})")
    ratio = statistics.median(bare.total / worker.total for worker, bare in pairs)
    later_ms = statistics.median(worker.first - bare.first for worker, bare in pairs) * 1000
    print(f"ratio        {ratio:.3f} of the tokens/s (budget {budget})")
    print(f"first token  {later_ms:+.1f} ms (budget {BUDGET_MS:+.0f})")
    return 0 if ratio >= budget and later_ms <= BUDGET_MS else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone is not None:
        asyncio.run(alone(args.alone))
        return 0
    return compare(asyncio.run(measure(args.rounds)), "AsyncLLM", BUDGET)


if __name__ == "__main__":
    sys.exit(main())
