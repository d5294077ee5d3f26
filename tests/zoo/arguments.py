"""The processor's arguments of one request, by the tokens that images then take: `python -m tests.zoo.arguments
[FAMILY…]`.

Each family's tiny model is loaded into the real engine once, and its prompts are rendered with arguments set as `/set`
does, in both modes. Each of them has to change the number of image tokens in the given direction; an answer is given
with the last one, and the counts are as before once nothing is set. A line a family.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

from PIL import Image

from tests.support.other_requests import to_render
from tests.zoo.__main__ import ENVIRONMENT, fork_engines, in_a_child
from tests.zoo.kit import Recipe, load_recipes, make_checkpoint
from tests.zoo.trial import MODES, model_for
from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.domain.generation import Failed, GenerateRequest, PromptReady
from vlmtui.domain.sampling import Sampling
from vlmtui.media.stage import stage
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model
from vlmtui.registry.schema import Family
from vlmtui.session.dials import with_parameters
from vlmtui.session.generation import PromptMode, make_request
from vlmtui.worker.backends import load_backend

FEWER, MORE = "<", ">"
SETTINGS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "qwen2_vl": (("max_pixels=6272", "", FEWER), ("max_pixels=50176", "", MORE)),
    "qwen2_5_vl": (("max_pixels=6272", "", FEWER), ("max_pixels=50176", "", MORE)),
    "qwen2_5_omni": (("max_pixels=6272", "", FEWER),),
    "paddleocr_vl": (("max_pixels=25088", "", MORE),),
    "internvl_chat": (
        ("max_dynamic_patch=2", "", FEWER),
        ("min_dynamic_patch=8", "", MORE),
        ("dynamic_image_size=false", "", FEWER),
    ),
    "h2ovl_chat": (("max_dynamic_patch=1", "", FEWER),),
    "NVLM_D": (("max_dynamic_patch=1", "", FEWER),),
    "skywork_chat": (("max_dynamic_patch=1", "", FEWER),),
    "gemma3": (("do_pan_and_scan=true", "", MORE),),
    "idefics3": (('size={"longest_edge": 364}', "", FEWER),),
    "qwen3_vl": (
        ('size={"shortest_edge": 1024, "longest_edge": 4096}', "", FEWER),
        ("max_pixels=4096", "", FEWER),
    ),
    "gemma4": (("max_soft_tokens=140", "", MORE),),
    "phi4_mm": (("dynamic_hd=1", "dynamic_hd=4", FEWER),),
    "phi3_v": (("num_crops=1", "", FEWER),),
    "command_a_vision": (("crop_to_patches=false", "", FEWER), ("max_patches=2", "", FEWER)),
    "lfm2_vl": (("max_tiles=2", "", FEWER), ("max_image_tokens=8", "", FEWER)),
    "qwen3_5": (('size={"shortest_edge": 1024, "longest_edge": 4096}', "", FEWER),),
    "qwen3_vl_moe": (('size={"shortest_edge": 1024, "longest_edge": 4096}', "", FEWER),),
    "mistral3": (('size={"longest_edge": 112}', "", MORE),),
    "smolvlm": (('size={"longest_edge": 364}', "", FEWER),),
    "dots_ocr": (("max_pixels=100352", "", MORE),),
    "exaone4_5": (("max_pixels=100352", "", MORE),),
}
"""Of each family: what is set, what it is compared with (empty: nothing set), and whether images then take fewer or
more tokens. The processor of `phi3_v` is code of its repository: the zoo has a stand-in
that cuts a picture by the same argument. Left out: arguments that move no token (`fps`, which says how far apart the
frames are), and twins of these families."""


MANY_TILES = {"max_dynamic_patch": 12}


def wide_picture(folder: Path) -> Attachment:
    """A picture that every processor cuts or scales: five times as wide as high."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "wide.png"
    Image.effect_noise((1600, 320), 80).convert("RGB").save(file)
    return stage(file, folder / "media")


def run_arguments(recipe: Recipe, family: Family, folder: Path) -> dict[str, str]:
    """Load the tiny model and try its settings. `ok COUNT < COUNT`, or what went wrong, by setting and mode."""
    os.environ.update(recipe.environment)
    if recipe.prepare is not None:
        recipe.prepare()
    return asyncio.run(_run(recipe, family, folder))


async def _run(recipe: Recipe, family: Family, folder: Path) -> dict[str, str]:
    make_checkpoint(recipe.family, folder / "model")
    if family.processor_several:  # the tiny model's own values are the same
        file = folder / "model" / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **MANY_TILES}))
    model = model_for(recipe, family, folder / "model")
    engine = await load_backend(model.spec.backend).load(model.spec, lambda *_: None)
    picture = wide_picture(folder)
    results: dict[str, str] = {}
    try:
        for mode in MODES:
            before = await _tokens(engine, model, [picture], mode=mode)
            for setting, base, wanted in SETTINGS[recipe.family]:
                one = await _tokens(engine, model, [picture], base, mode=mode)
                other = await _tokens(engine, model, [picture], setting, mode=mode, answered=True)
                is_so = sum(other) < sum(one) if wanted == FEWER else sum(other) > sum(one)
                results[f"{setting} {mode}"] = f"{'ok' if is_so else 'not'} {other} {wanted} {one}"
            after = await _tokens(engine, model, [picture], mode=mode)
            results[f"again {mode}"] = f"{'ok' if after == before else 'not'} {after}"
            if family.processor_several:
                several = await _tokens(engine, model, [picture, picture], mode=mode, answered=True)
                typed = [f"{name}={json.dumps(value)}" for name, value in family.processor_several.items()]
                alone = await _tokens(engine, model, [picture], *typed, mode=mode)
                is_so = several == 2 * alone != 2 * before
                results[f"several {mode}"] = f"{'ok' if is_so else 'not'} {several} as {alone}, not {before}"
    finally:
        await engine.shutdown()
    return results


async def _tokens(
    engine: Any, model: Model, pictures: list[Attachment], *typed: str, mode: PromptMode, answered: bool = False
) -> list[int]:
    """The tokens of each picture, as rendered, or as an answer was given to it."""
    sampling = with_parameters(Sampling(max_tokens=2, temperature=0), model.family, list(filter(None, typed)))
    request = make_request(model.family, [user_turn("What is {this}?", pictures)], sampling, mode=mode)
    ready = await _ready(engine, request, answered)
    return [span.tokens for span in ready.media]


async def _ready(engine: Any, request: GenerateRequest, answered: bool) -> PromptReady:
    found: PromptReady | None = None
    async with aclosing(engine.generate(request if answered else to_render(request))) as events:
        async for event in events:
            if isinstance(event, Failed):
                raise event.failure.error()
            found = event if isinstance(event, PromptReady) else found
    assert found is not None
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=list(SETTINGS))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", type=Path, help="also write the results there")
    options = parser.parse_args()
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    base = (options.keep or Path(tempfile.mkdtemp())).resolve()
    import vllm.v1.engine.async_llm  # noqa: F401 - so that no child has to

    fork_engines()
    found: dict[str, dict[str, str]] = {}
    for name in options.families:
        started = time.monotonic()
        results = in_a_child(load_recipes()[name], Registry.bundled()[name], base, 600, run_arguments)
        found[name] = results
        is_good = all(text.startswith("ok") for text in results.values())
        said = "; ".join(f"{what}: {text}" for what, text in results.items())
        print(f"{name:18} {'ok ' if is_good else 'NOT'} {said} ({time.monotonic() - started:.0f} s)", flush=True)
    good = sum(all(text.startswith("ok") for text in one.values()) for one in found.values())
    print(f"{good} of {len(found)} families' arguments change the image tokens as said")
    if options.json is not None:
        options.json.write_text(json.dumps(found))
    return 0 if good == len(found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
