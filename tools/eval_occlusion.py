"""Measures whether the occlusion map points at the shape that was asked about, with the bundled model in real vLLM.

    python tools/eval_occlusion.py --n 100

Each drawing has two shapes of different kinds and colours, from seeds that training never sees. The model is asked what
is in it, and its own answer is scored with one part after another greyed out. Then one shape is asked for by its words
in the answer ("red circle"). Right is a drawing where the middle of the part that matters most for these words lies in
the ninth of the picture where that shape is. Exits 1 where fewer than 90 of 100 are right.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from random import Random

import scenes
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import EngineReady
from vlmtui.domain.prompt import attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.local.host import WorkerHost
from vlmtui.media.stage import stage
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.generation import Answer, make_request, run_turn
from vlmtui.session.occlusion import OcclusionPlan, occlusion_map

LEAST = 0.9
SIZE = (300, 300)


def two_shapes(rng: Random) -> scenes.Scene:
    """Two shapes of different kinds and colours in different places, in reading order."""
    places = sorted(rng.sample(range(9), 2))
    colours, kinds = rng.sample(list(scenes.COLOURS), 2), rng.sample(scenes.KINDS, 2)
    shapes = tuple(scenes.Shape(*each) for each in zip(colours, kinds, places, strict=True))
    return scenes.Scene(shapes, rng.getrandbits(32))


async def points_at(engine: Engine, model: Model, folder: Path, number: int) -> str:
    """Ask about one of two shapes; return `asked`, `other` or `elsewhere`, with ` (wrong answer)` after a wrong one."""
    rng = scenes.rng_for("eval", "occlusion", number)
    scene = two_shapes(rng)
    asked, other = rng.sample(scene.shapes, 2)
    scenes.draw(scene, SIZE).save(folder / f"{number}.png")
    image = stage(folder / f"{number}.png", folder / "media")
    turn = user_turn("What is in this image?", [image])
    request = make_request(model.family, [turn], Sampling(temperature=0, max_tokens=32))
    answer = Answer(request.request_id)
    async with aclosing(run_turn(engine, request, answer)) as events:
        async for _ in events:
            pass
    if answer.failure is not None:
        raise answer.failure.error()
    plan = OcclusionPlan(
        prompt=request.prompt,
        image=attachments_of(request.prompt)[-1],
        ids=tuple(answer.token_ids),
        texts=tuple(answer.vocabulary[token].text for token in answer.token_ids),
        prompt_tokens=None,
    )
    found = await occlusion_map(engine, plan, folder / "seen")
    (left, top, right, bottom), _ = found.hottest(tokens_of(plan, asked))
    place = (top + bottom) * 3 // (2 * SIZE[1]) * 3 + (left + right) * 3 // (2 * SIZE[0])
    where = "asked" if place == asked.place else "other" if place == other.place else "elsewhere"
    return where if answer.text == scenes.describe(scene) else f"{where} (wrong answer)"


def tokens_of(plan: OcclusionPlan, shape: scenes.Shape) -> range | None:
    """Return the tokens of `red circle` in the answer; None if it does not say that."""
    words = plan.words()
    for (first, before), (second, after) in pairwise(words):
        if (first.lower(), second.strip(".,").lower()) == (shape.colour, shape.kind):
            return range(before.start, after.stop)
    return None


async def measure(count: int) -> Counter[str]:
    """Load the bundled model and ask about `count` drawings."""
    model = resolve(Registry.bundled(), "shapes")
    with tempfile.TemporaryDirectory(prefix="vlmtui-") as name:
        folder = Path(name)
        engine = await WorkerHost(Paths.below(folder)).open(model.spec, client="tests", keep_alive_s=0)
        try:
            events = [event async for event in engine.load()]
            if not isinstance(events[-1], EngineReady):
                raise SystemExit(f"the model was not loaded: {events[-1]}")
            return Counter([await points_at(engine, model, folder, number) for number in range(count)])
        finally:
            await engine.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100, help="number of drawings")
    count = parser.parse_args().n
    found = asyncio.run(measure(count))
    for where, times in found.most_common():
        print(f"{where:28}{times:5}")
    right = sum(times for where, times in found.items() if where.startswith("asked"))
    print(f"{'at the shape asked for':28}{right:5} of {count}")
    return 0 if right >= LEAST * count else 1


if __name__ == "__main__":
    sys.exit(main())
