"""Chat template and raw prompt at once, against one of them alone, in one engine.

`python -m benchmarks.both_at_once [--rounds N]`. The bundled model answers about an image, alone and both at once in
turn. Prints medians and their ratio. Budget: 1.25.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

import msgspec

from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import EngineReady
from vlmtui.domain.generation import Finished, GenerateRequest, Request
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.host import WorkerHost
from vlmtui.media.stage import stage
from vlmtui.paths import Paths, sample_image
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.generation import PromptMode, make_request

TOKENS = 400
BUDGET = 1.25
MODES: tuple[PromptMode, ...] = ("chat", "raw")


def request(model: Model, media: Path, mode: PromptMode) -> GenerateRequest:
    """Return a question about an image, with an answer of `TOKENS` tokens."""
    sampling = Sampling(max_tokens=TOKENS, extra={"ignore_eos": True})
    turn = user_turn("What is in this image?", [stage(sample_image(), media)])
    made = make_request(model.family, [turn], sampling, mode=mode)
    return msgspec.structs.replace(made, sampling=sampling)


async def answer(engine: WorkerClient, asked: Request) -> None:
    async with aclosing(engine.generate(asked)) as events:
        async for event in events:
            last = event
    assert isinstance(last, Finished), last


async def measure(rounds: int) -> tuple[list[float], list[float]]:
    """Return the seconds of one alone and of both at once, measured in turn."""
    model = resolve(Registry.bundled(), "shapes")
    alone: list[float] = []
    both: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths.below(Path(folder))
        engine = await WorkerHost(paths).open(model.spec, client="benchmark", keep_alive_s=0)
        async for loaded in engine.load():
            assert not hasattr(loaded, "failure"), loaded
            if isinstance(loaded, EngineReady):
                break
        for number in range(rounds + 1):
            for modes, times in (((MODES[number % 2],), alone), (MODES, both)):
                started = time.monotonic()
                await asyncio.gather(*(answer(engine, request(model, paths.media, mode)) for mode in modes))
                times.append(time.monotonic() - started)
        await engine.shutdown()
    return alone[1:], both[1:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    alone, both = asyncio.run(measure(parser.parse_args().rounds))
    one, two = statistics.median(alone), statistics.median(both)
    print(f"one alone    {one * 1000:7.0f} ms for {TOKENS} tokens (median of {len(alone)})")
    print(f"both at once {two * 1000:7.0f} ms")
    print(f"ratio        {two / one:7.2f} (budget {BUDGET})")
    return 0 if two / one <= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
