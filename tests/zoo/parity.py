"""The same tiny weights in vLLM and in Transformers: `python -m tests.zoo.parity FAMILY… [--keep FOLDER]`.

A checkpoint of the zoo gets random weights. Each engine, in a process of its own, answers the same prompts about one
image and two, greedily; then the prompt's tokens, the answer's, and their log-probabilities are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from tests.zoo.__main__ import ENVIRONMENT
from tests.zoo.kit import load_recipes, make_checkpoint
from tests.zoo.trial import CPU, SHOWN, cases, sample_attachments
from tests.zoo.weights import save_with_weights
from vlmtui.domain.backend_choice import BackendChoice
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.generation import Delta, PromptReady
from vlmtui.domain.sampling import Sampling
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, model_of, with_trust
from vlmtui.session.generation import make_request
from vlmtui.worker.backends import load_backend

BACKENDS = ("vllm", "transformers")
TOKENS = 8


def model_in(family: str, folder: Path, backend: str) -> Model:
    """The checkpoint as the app would load it, reduced for a CPU."""
    recipe, record = load_recipes()[family], Registry.bundled()[family]
    model = model_of(record, str(folder), limits={"image": 2}, choice=BackendChoice(backend))
    reduced = {**CPU, "load_format": "auto"} if backend == "vllm" else {"max_model_len": CPU["max_model_len"]}
    more = recipe.engine_args if backend == "vllm" else {}
    spec = msgspec.structs.replace(model.spec, engine_args={**model.spec.engine_args, **reduced, **more}, lora=None)
    model = msgspec.structs.replace(model, spec=spec)
    return with_trust(model) if record.trust_remote_code or recipe.remote_code else model


async def answers(family: str, folder: Path, backend: str) -> dict[str, Any]:
    """By case: the prompt's tokens, the answer's, and their log-probabilities; or what went wrong."""
    recipe, record = load_recipes()[family], Registry.bundled()[family]
    model = model_in(family, folder / "model", backend)
    if backend == "vllm" and recipe.prepare is not None:
        recipe.prepare()
    engine = await load_backend(backend).load(model.spec, lambda step: None)
    found: dict[str, Any] = {}
    for case in [one for one in cases(recipe, record) if one in SHOWN and one != "video"]:
        turn = user_turn("What is {this}?", sample_attachments(case, folder / "media"))
        sampling = Sampling(temperature=0, max_tokens=TOKENS, repetition_penalty=1.0, extra={"ignore_eos": True})
        try:
            async with aclosing(
                engine.generate(make_request(record, [turn], sampling, mode="raw", logprobs=1))
            ) as events:
                found[case] = {"prompt": [], "tokens": [], "logprobs": []}
                async for event in events:
                    match event:
                        case PromptReady(token_ids=ids):
                            found[case]["prompt"] = list(ids)
                        case Delta(token_ids=ids, logprobs=logprobs):
                            found[case]["tokens"] += ids
                            found[case]["logprobs"] += [one.logprob for one in logprobs]
        except Exception as error:
            traceback.print_exc()
            found[case] = {"error": f"{error} {getattr(error, 'detail', '')}"[:300]}
    await engine.shutdown()
    return found


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[bool, str]:
    """Whether both are alike, and in words how far."""
    said, alike = [], bool(ours) and ours.keys() == theirs.keys()
    for case in ours.keys() & theirs.keys():
        one, other = ours[case], theirs[case]
        if "error" in one or "error" in other:
            said.append(f"{case}: {one.get('error') or other.get('error')}")
            alike = False
            continue
        same = one["prompt"] == other["prompt"]
        count = next(
            (at for at, pair in enumerate(zip(one["tokens"], other["tokens"], strict=True)) if pair[0] != pair[1]),
            TOKENS,
        )
        apart = max(
            (abs(a - b) for a, b in zip(one["logprobs"][:count], other["logprobs"][:count], strict=True)), default=9.9
        )
        said.append(
            f"{case}: prompt {'same' if same else 'differs'}, {count} of {TOKENS} tokens, logprobs {apart:.0e} apart"
        )
        alike &= same and count == TOKENS and apart <= 1e-2
    return alike, "; ".join(sorted(said))


def run_one(family: str, base: Path) -> tuple[bool, str]:
    """Make the checkpoint and ask both engines."""
    folder = base / family
    found = []
    for what in ("make", *BACKENDS):
        out = folder / f"{what}.json"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{what}.log").open("w") as log:
            command = [sys.executable, "-m", "tests.zoo.parity", "--one", what, "--keep", str(base), family]
            done = subprocess.run(command, stdout=log, stderr=log, check=False, timeout=400)
        if done.returncode:
            tail = (folder / f"{what}.log").read_text().strip().splitlines()
            return False, f"{what}: {tail[-1][:200] if tail else done.returncode}"
        if what != "make":
            found.append(json.loads(out.read_text()))
    return compare(*found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="+")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    base = (options.keep or Path(tempfile.mkdtemp())).resolve()
    if options.one == "make":
        make_checkpoint(options.families[0], base / options.families[0] / "model")
        save_with_weights(base / options.families[0] / "model")
        return 0
    if options.one:
        folder = base / options.families[0]
        found = asyncio.run(answers(options.families[0], folder, options.one))
        (folder / f"{options.one}.json").write_text(json.dumps(found))
        return 0
    good = 0
    for family in options.families:
        started = time.monotonic()
        alike, said = run_one(family, base)
        good += alike
        print(f"{family:20} {'ok    ' if alike else 'DIFFER'} {said} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{good} of {len(options.families)} families alike")
    return 0 if good == len(options.families) else 1


if __name__ == "__main__":
    raise SystemExit(main())
