"""Measures whether the occlusion map points at the named shape, with the bundled model in real vLLM.

    python tools/eval_occlusion.py --n 100

Each drawing has two shapes of different kinds and colours, from seeds that training never sees. The model describes it,
and its answer is scored with one part of the image after another greyed out. For one shape, named in the answer ("red
circle"), the map points at the part that matters most for these words. A drawing is right if the middle of that part
lies in the ninth of the image where the shape is; an answer that does not name the shape is wrong. The intersection
over union of that part (a ninth of the image) with the shape's bounding box measures the fit: at most 0.35 to 0.8, as
shapes are smaller than the part. Exit code 1: fewer than 90 of 100 are right.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean
from typing import Literal, NamedTuple, get_args

import scenes
from vlmtui.domain.conversation import attachments_of, user_turn
from vlmtui.domain.engine import EngineReady
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.local.host import WorkerHost
from vlmtui.media.stage import stage
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.generation import Answer, make_request, run_turn
from vlmtui.session.seeing import OcclusionPlan, occlusion_map

Where = Literal["asked", "other", "elsewhere", "not named"]
NAMES: dict[Where, str] = {
    "asked": "at the shape asked for",
    "other": "at the other shape",
    "elsewhere": "elsewhere",
    "not named": "unknown: the answer does not name the shape",
}
LEAST = 0.9
SIZE = (300, 300)


def two_shapes(rng: Random) -> scenes.Scene:
    """Return two shapes of different kinds and colours in different places, in reading order."""
    places = sorted(rng.sample(range(9), 2))
    colours, kinds = rng.sample(list(scenes.COLOURS), 2), rng.sample(scenes.KINDS, 2)
    shapes = tuple(scenes.Shape(*each) for each in zip(colours, kinds, places, strict=True))
    return scenes.Scene(shapes, rng.getrandbits(32))


class Finding(NamedTuple):
    """Where the map of a drawing points."""

    where: Where
    is_right: bool
    """True if the model's answer was right."""
    with_asked: float
    """Intersection over union of the hottest part with the bounding box of the named shape, and of the other shape."""
    with_other: float


async def points_at(engine: Engine, model: Model, folder: Path, number: int) -> Finding:
    """Ask about one of two shapes, and find the part of the image on which its words depend most."""
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
    is_right = answer.text == scenes.describe(scene)
    plan = OcclusionPlan(
        prompt=request.prompt,
        image=attachments_of(request.prompt)[-1],
        ids=tuple(answer.token_ids),
        texts=tuple(answer.vocabulary[token].text for token in answer.token_ids),
        prompt_tokens=None,
    )
    tokens = tokens_of(plan, asked)
    if tokens is None:
        return Finding("not named", is_right, 0, 0)
    hottest = (await occlusion_map(engine, plan, folder / "seen")).strongest(tokens)
    left, top, right, bottom = plan.box(plan.windows[hottest])
    place = (top + bottom) * 3 // (2 * SIZE[1]) * 3 + (left + right) * 3 // (2 * SIZE[0])
    where: Where = "asked" if place == asked.place else "other" if place == other.place else "elsewhere"
    boxes = dict(zip(scene.shapes, scenes.boxes(scene, SIZE), strict=True))
    share = left / SIZE[0], top / SIZE[1], right / SIZE[0], bottom / SIZE[1]
    return Finding(where, is_right, scenes.overlap(share, boxes[asked]), scenes.overlap(share, boxes[other]))


def tokens_of(plan: OcclusionPlan, shape: scenes.Shape) -> range | None:
    """Return the indices of the tokens of `red circle` in the answer; None if it does not contain these words."""
    words = plan.words()
    for (first, before), (second, after) in pairwise(words):
        if (first.lower(), second.strip(".,").lower()) == (shape.colour, shape.kind):
            return range(before.start, after.stop)
    return None


async def measure(numbers: range) -> list[Finding]:
    """Load the bundled model and ask about the drawings with these numbers."""
    model = resolve(Registry.bundled(), "shapes")
    with tempfile.TemporaryDirectory(prefix="vlmtui-") as name:
        folder = Path(name)
        engine = await WorkerHost(Paths.below(folder)).open(model.spec, client="tests", keep_alive_s=0)
        found = []
        try:
            events = [event async for event in engine.load()]
            if not isinstance(events[-1], EngineReady):
                raise SystemExit(f"the model was not loaded: {events[-1]}")
            for number in numbers:
                found.append(await points_at(engine, model, folder, number))
                print(f"{number}: {found[-1].where}", file=sys.stderr, flush=True)
        finally:
            await engine.shutdown()
    return found


def table(found: Sequence[Finding]) -> list[str]:
    """Return a Markdown table."""
    lines = ["| the part that matters most is | drawings | IoU with the shape asked for | with the other |"]
    lines += ["| --- | --- | --- | --- |"]
    for where in get_args(Where):
        those = [one for one in found if one.where == where]
        asked, other = mean_of([one.with_asked for one in those]), mean_of([one.with_other for one in those])
        lines.append(f"| {NAMES[where]} | {len(those)} of {len(found)} | {asked} | {other} |")
    return lines


def mean_of(values: Sequence[float]) -> str:
    """Return the mean with two digits; empty if there are none."""
    return f"{mean(values):.2f}" if values else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100, help="number of drawings")
    parser.add_argument("--first", type=int, default=0, help="number of the first drawing")
    arguments = parser.parse_args()
    found = asyncio.run(measure(range(arguments.first, arguments.first + arguments.n)))
    print(*table(found), sep="\n")
    right = [one for one in found if one.where == "asked"]
    print(f"{sum(one.is_right for one in found)} of {len(found)} answers were right.")
    return 0 if len(right) >= LEAST * len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
