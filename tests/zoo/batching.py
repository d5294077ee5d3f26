"""Requests with the same prompt at once, in Transformers: `python -m tests.zoo.batching FAMILY…`.

Each family's tiny model answers four times alone, with seeds of their own, and then all of them twice, at once. The
answers have to be the same, token by token; the table says whether they were computed together.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from tests.zoo.__main__ import ENVIRONMENT
from tests.zoo.kit import load_recipes, make_checkpoint
from tests.zoo.trial import cases, sample_attachments
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import BackendChoice
from vlmtui.domain.generation import Delta, Failed, GenerateRequest, Request
from vlmtui.domain.sampling import Sampling
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import model_of, with_trust
from vlmtui.session.generation import make_request
from vlmtui.worker.backends import load_backend
from vlmtui.worker.backends.transformers import engine as module

SEEDS = (1, 2, 3, 4)


async def try_family(family: str, base: Path) -> tuple[bool, str]:
    """Return whether the answers are the same, and in words how they were computed."""
    recipe, record = load_recipes()[family], Registry.bundled()[family]
    folder = make_checkpoint(family, base / family)
    model = model_of(record, str(folder), limits={"image": 2}, choice=BackendChoice("transformers"))
    arguments = {**model.spec.engine_args, "load_format": "dummy", "max_model_len": 4096}
    spec = msgspec.structs.replace(model.spec, engine_args=arguments, lora=None, more_loras=())
    model = msgspec.structs.replace(model, spec=spec)
    model = with_trust(model) if record.trust_remote_code or recipe.remote_code else model
    engine = await load_backend("transformers").load(model.spec, lambda _: None)
    said, alike = [], True
    for case in [one for one in cases(recipe, record) if one.startswith("image")]:
        turn = user_turn("What is {this}?", sample_attachments(case, base / "media"))

        def request(seed: int, turn: Any = turn) -> GenerateRequest:
            sampling = Sampling(temperature=1.5, seed=seed, max_tokens=6 + seed, extra={"ignore_eos": True})
            return make_request(record, [turn], sampling, mode="raw")

        alone = [await tokens(engine, request(seed)) for seed in SEEDS]
        sizes.clear()
        together = await asyncio.gather(*(tokens(engine, request(seed)) for seed in (*SEEDS, *SEEDS)))
        same = together == [*alone, *alone] and len({tuple(one) for one in alone}) > 1
        alike &= same
        said.append(f"{case}: {'same' if same else 'DIFFERENT'}, {'together' if max(sizes) > 1 else 'in turn'}")
    await engine.shutdown()
    return alike, "; ".join(said)


sizes: list[int] = []
"""The number of answers in each batch."""


def watch() -> None:
    real = module.run_answers

    def watched(loaded: Any, inputs: Any, rows: Any, *more: Any, **facts: Any) -> None:
        real(loaded, inputs, rows, *more, **facts)
        sizes.append(len(rows))

    vars(module)["run_answers"] = watched


async def tokens(engine: Any, request: Request) -> list[int]:
    found: list[int] = []
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            match event:
                case Failed(failure=failure):
                    raise failure.error()
                case Delta(token_ids=ids):
                    found += ids
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="+")
    options = parser.parse_args()
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    watch()
    good = 0
    with tempfile.TemporaryDirectory() as folder:
        for family in options.families:
            alike, said = asyncio.run(try_family(family, Path(folder)))
            good += alike
            print(f"{family:20} {'ok    ' if alike else 'DIFFER'} {said}", flush=True)
    print(f"{good} of {len(options.families)} families answer alike")
    return 0 if good == len(options.families) else 1


if __name__ == "__main__":
    raise SystemExit(main())
