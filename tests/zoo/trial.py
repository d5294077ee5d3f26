"""The trial of a family's tiny model with the worker's own code and the bundled record."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import time
import traceback
from collections.abc import Awaitable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from tests.support.sounds import write_tone
from tests.zoo.adapters import adapter_matters
from tests.zoo.controls import CONTROLS
from tests.zoo.difference import difference
from tests.zoo.heard import heard_as_given
from tests.zoo.kit import Recipe, make_checkpoint
from tests.zoo.matters import lively_weights, medium_matters
from tests.zoo.seen import seen_as_given
from tests.zoo.weights import save_with_weights
from vlmtui.domain.conversation import Attachment, Modality, user_turn
from vlmtui.domain.engine import DEFAULT_BACKEND, TRANSFORMERS_BACKEND, BackendChoice, adapter_for
from vlmtui.domain.generation import Failed, Finished, PromptReady
from vlmtui.domain.sampling import Sampling
from vlmtui.engines.installed import Engines, pinned_engine
from vlmtui.engines.serve import SERVER_VARIABLE, server_program
from vlmtui.media.stage import stage
from vlmtui.paths import Paths, bundled
from vlmtui.registry.match import Model, model_of, with_trust
from vlmtui.registry.routes import choice_of, open_route
from vlmtui.registry.schema import Family
from vlmtui.session.generation import PromptMode, make_request
from vlmtui.worker.backends import load_backend

CPU: dict[str, object] = {
    "dtype": "float32",
    "load_format": "dummy",
    "max_model_len": 2048,
    "max_num_seqs": 2,
    "mm_processor_cache_gb": 0.5,
    "seed": 0,
}
"""Engine arguments for a CPU and a tiny model without weights, in place of the record's."""
QUESTION = "What is {this}?"
SHOWN: dict[str, dict[Modality, int]] = {
    "image": {"image": 1},
    "images": {"image": 2},
    "video": {"video": 1},
    "audio": {"audio": 1},
}
AV: tuple[Modality, ...] = ("video", "audio")
MATTERING = ("image", "video")
"""The cases of which another medium is shown, too."""
HERE = (DEFAULT_BACKEND, TRANSFORMERS_BACKEND)
"""The backends whose random weights are large enough that it matters; those of another version's server are not."""
MODES: tuple[PromptMode, ...] = ("chat", "raw")
Results = dict[str, str]


def cases(recipe: Recipe, family: Family) -> list[str]:
    """Return the media that both the tiny model and the family take."""
    images = family.takes.get("image")
    able = {
        "image": recipe.images > 0 and images is not None,
        "images": recipe.images > 1 and images is not None and images.max_items > 1,
        "video": recipe.video and "video" in family.takes,
        "audio": recipe.audio and "audio" in family.takes,
    }
    return [case for case, can in able.items() if can]


def choice_for(recipe: Recipe, family: Family) -> BackendChoice | None:
    """Return the recipe's kind of engine, or that of the record's best route here."""
    if recipe.backend:
        return BackendChoice(recipe.backend)
    return choice_of(route) if (route := open_route(family)) is not None else None


def model_for(recipe: Recipe, family: Family, folder: Path) -> Model:
    """The model in `folder` as the application would start it, with the engine arguments reduced for the CPU."""
    able = cases(recipe, family)
    limits: dict[Modality, int] = {}
    if {"image", "images"} & set(able):
        limits["image"] = 2 if "images" in able else 1
    limits |= {modality: 1 for modality in AV if modality in able}
    model = model_of(family, str(folder), limits=limits, choice=choice_for(recipe, family))
    reduced = CPU if model.spec.backend == DEFAULT_BACKEND else {"load_format": "dummy", "max_model_len": 2048}
    arguments = {**model.spec.engine_args, **reduced, **recipe.engine_args}
    spec = msgspec.structs.replace(model.spec, engine_args=arguments)
    if not recipe.lora:
        spec = msgspec.structs.replace(spec, loras=())
    model = msgspec.structs.replace(model, spec=spec)
    return with_trust(model) if family.trust_remote_code or recipe.remote_code else model


def run(recipe: Recipe, family: Family, folder: Path) -> Results:
    """Make the model, load it, show it everything in both modes. `ok …`, or what went wrong, by case and mode."""
    if missing := [package for package in recipe.needs if importlib.util.find_spec(package) is None]:
        return {"load": f"needs {', '.join(missing)}"}
    if open_route(family) is None and not recipe.backend and (since := family.routes[0].since):
        return {"load": f"needs vLLM {since}"}
    os.environ.update(recipe.environment)
    choice = choice_for(recipe, family)
    if choice is not None and choice.pinned is not None:
        if (engine := pinned_engine(Engines(Paths.default()), choice.pinned)) is None:
            return {"load": f"needs vLLM {choice.pinned}"}
        os.environ[SERVER_VARIABLE] = msgspec.json.encode(server_program(engine)).decode()
    if choice is None or choice.backend == DEFAULT_BACKEND:
        lively_weights()
    if recipe.prepare is not None:
        recipe.prepare()
    return asyncio.run(_run(recipe, family, folder))


async def _run(recipe: Recipe, family: Family, folder: Path) -> Results:
    started = time.monotonic()
    try:
        make_checkpoint(recipe.family, folder / "model")
        model = model_for(recipe, family, folder / "model")
        if model.spec.backend == TRANSFORMERS_BACKEND:
            save_with_weights(folder / "model")
            arguments = {**model.spec.engine_args, "load_format": "auto"}
            model = msgspec.structs.replace(model, spec=msgspec.structs.replace(model.spec, engine_args=arguments))
        engine = await load_backend(model.spec.backend).load(model.spec, lambda *_: None)
    except Exception as error:
        traceback.print_exc()
        return {"load": _said(error)}
    results = {"load": f"ok {time.monotonic() - started:.0f} s"}
    try:
        for case in cases(recipe, family):
            prompts: dict[PromptMode, PromptReady] = {}
            attachments = sample_attachments(case, folder / "media")
            for mode in MODES:
                if mode not in recipe.modes:
                    continue
                try:
                    prompts[mode] = await _ask(engine, model, attachments, mode)
                    results[f"{case} {mode}"] = f"ok {sum(span.tokens for span in prompts[mode].media)}"
                except Exception as error:
                    traceback.print_exc()
                    results[f"{case} {mode}"] = _said(error)
            if "raw" in prompts and adapter_for(model.spec, SHOWN[case]) is not None:
                results[f"{case} adapter"] = await _found(adapter_matters(engine, model, attachments))
            if case == "image" and "chat" in prompts and model.spec.backend == DEFAULT_BACKEND:
                results["image seen"] = await _found(seen_as_given(engine, model, attachments, folder / "seen"))
            if case in MATTERING and "chat" in prompts and model.spec.backend in HERE:
                results[f"{case} matters"] = await _found(medium_matters(engine, model, case, folder / "other"))
            if case == cases(recipe, family)[0] and "chat" in prompts:
                for name, control in CONTROLS.items():
                    results[f"{case} {name}"] = await _found(control(engine, model, attachments))
            if case == "audio" and "chat" in prompts:
                results["audio heard"] = await _found(heard_as_given(engine, model, attachments))
            if len(prompts) == len(MODES):
                results[f"{case} difference"] = f"ok {difference(prompts['chat'], prompts['raw'], attachments)}"
    finally:
        await engine.shutdown()
    return results


async def _found(looking: Awaitable[str]) -> str:
    """`ok …`, or what went wrong."""
    try:
        return f"ok {await looking}"
    except Exception as error:
        traceback.print_exc()
        return _said(error)


async def _ask(engine: Any, model: Model, attachments: list[Attachment], mode: PromptMode) -> PromptReady:
    """Ask once; the prompt, once it is seen that each medium has its tokens in it, and that an answer came."""
    sampling = msgspec.structs.replace(model.family.sampling or Sampling(), max_tokens=4)
    request = make_request(model.family, [user_turn(QUESTION, attachments)], sampling, mode=mode)
    prompt: PromptReady | None = None
    tokens = 0
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            match event:
                case PromptReady():
                    prompt = event
                case Failed(failure=failure):
                    raise failure.error()
                case Finished():
                    break
                case _:
                    tokens += getattr(event, "tokens", 0)
    if prompt is None or not tokens:
        raise AssertionError("no answer came")
    spans = [span.modality for span in prompt.media]
    if sorted(spans) != sorted(item.modality for item in attachments):
        raise AssertionError(f"{len(attachments)} attachments, but {len(spans)} runs of tokens")
    if not all(span.tokens > 0 for span in prompt.media):
        raise AssertionError("an attachment without tokens")
    if model.family.question == "free" and "What is" not in prompt.prompt:
        raise AssertionError(f"the question is not in the prompt: {prompt.prompt[-80:]!r}")
    return prompt


def sample_attachments(case: str, store: Path) -> list[Attachment]:
    samples = bundled("samples")
    files: dict[Modality, list[Path]] = {
        "image": [samples / "circle.png", samples / "two-shapes.png"],
        "video": [samples / "moving-circle.mp4"],
        "audio": [write_tone(store.parent / "tone.wav")],
    }
    return [stage(path, store) for modality, count in SHOWN[case].items() for path in files[modality][:count]]


def _said(error: Exception) -> str:
    text = f"{error} {getattr(error, 'detail', '')}".strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:300]
