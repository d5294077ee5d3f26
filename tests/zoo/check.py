"""Loads tiny models of the zoo in vLLM and asks each about pictures.

    python -m tests.zoo.check FAMILY... [--prompts seeds.json] [--keep FOLDER] [--limit SECONDS]

Without families, all of the zoo. Each family runs in a forked child of this process, which has imported vLLM already,
with its output in a file of its own. The prompts are those of the seed documents where they have the family; the
others, and every family once more, are asked through the chat template. `PYTHONPATH` has to begin with
`src/vlmtui/worker/site`, which lets torchvision be imported beside a CPU build of torch.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.zoo.kit import Recipe, load_recipes, make_checkpoint
from vlmtui.registry.loader import Registry

SEEDS = Path(__file__).parents[1] / "unit" / "registry" / "seeds.json"
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
ENGINE_ARGS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "gpu_memory_utilization": 0.3,
    "load_format": "dummy",
    "max_model_len": 2048,
    "max_num_seqs": 2,
    "mm_processor_cache_gb": 0,
    "seed": 0,
}
CASES = ("image", "images2", "video", "chat")
QUESTION = "What is this?"
Results = dict[str, str]


def pictures() -> list[Any]:
    """Two pictures of different shapes."""
    from PIL import Image, ImageDraw

    made = []
    for size, colour in (((120, 100), "red"), ((90, 130), "blue")):
        picture = Image.new("RGB", size, "lightgray")
        ImageDraw.Draw(picture).ellipse((20, 20, 70, 70), fill=colour)
        made.append(picture)
    return made


def clip() -> tuple[Any, dict[str, Any]]:
    """Eight frames and the facts about them."""
    import numpy as np

    frames = np.stack([np.asarray(pictures()[0].resize((112, 112)))] * 8)
    facts = {"fps": 2.0, "duration": 4.0, "total_num_frames": 8, "frames_indices": list(range(8))}
    return frames, {**facts, "video_backend": "opencv", "do_sample_frames": False}


def media(case: str) -> dict[str, Any]:
    """What a case shows the model."""
    if case == "video":
        return {"video": [clip()]}
    return {"image": pictures()[: 2 if case == "images2" else 1]}


def wanted(recipe: Recipe, prompts: dict[str, Any]) -> list[str]:
    """The cases that a recipe says it can do and that there are prompts for."""
    can = {"image": recipe.images > 0, "images2": recipe.images > 1, "video": recipe.video, "chat": True}
    return [case for case in CASES if can[case] and (case in prompts or case == "chat")]


def record_args(family: str, seed: dict[str, Any]) -> dict[str, Any]:
    """The engine arguments that decide how the family's files are read: its record's, or the seed documents'."""
    record = Registry.bundled().get(family)
    if record is None:
        given: dict[str, Any] = next((case["engine_args"] for case in seed.values()), {})
        return {name: value for name, value in given.items() if name in ("hf_overrides", "mm_processor_kwargs")}
    overrides: Any = record.engine_args.get("hf_overrides") or {}
    return {
        "hf_overrides": overrides | record.routes[0].hf_overrides,
        "mm_processor_kwargs": record.engine_args.get("mm_processor_kwargs"),
    }


class Engine:
    """One family's model, loaded."""

    def __init__(self, recipe: Recipe, folder: Path, seed: dict[str, Any]) -> None:
        from vllm import LLM, SamplingParams

        limits = {"image": recipe.images, "video": int(recipe.video)}
        own = {"trust_remote_code": True} if recipe.remote_code else {}
        given = record_args(recipe.family, seed)
        args = {**ENGINE_ARGS, "limit_mm_per_prompt": limits, **own, **given, **recipe.engine_args}
        self.recipe, self.seed = recipe, seed
        self.llm = LLM(model=str(folder), **args)
        self.sampling = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)

    def ask(self, case: str) -> str:
        """Run a case and say how many tokens went in and came out."""
        outputs = self._chat() if case == "chat" else self._generate(case)
        answer = outputs[0]
        return f"ok {len(answer.prompt_token_ids)}+{len(answer.outputs[0].token_ids)}"

    def _generate(self, case: str) -> Any:
        prompt = self.seed[case]
        text = prompt.get("prompt") or self.llm.get_tokenizer().apply_chat_template(
            prompt["messages"], tokenize=False, add_generation_prompt=True
        )
        request = {"prompt": text, "multi_modal_data": media(case)}
        return self.llm.generate([request], self.sampling, use_tqdm=False)

    def _chat(self) -> Any:
        parts: list[dict[str, Any]] = [{"type": "text", "text": QUESTION}]
        if self.recipe.images:
            parts.insert(0, {"type": "image_pil", "image_pil": pictures()[0]})
        return self.llm.chat([{"role": "user", "content": parts}], self.sampling, use_tqdm=False)


def attempt(action: Callable[[], str]) -> str:
    """What the action returns, or the first line of what it raises."""
    try:
        return action()
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


def check(recipe: Recipe, seed: dict[str, Any], folder: Path) -> Results:
    """Make a family's checkpoint, load it, and run all its cases."""
    if missing := [package for package in recipe.needs if importlib.util.find_spec(package) is None]:
        return {"load": f"needs {', '.join(missing)}"}
    os.environ.update(recipe.environment)
    if recipe.prepare:
        recipe.prepare()
    started = time.monotonic()
    engines: list[Engine] = []

    def load() -> str:
        engines.append(Engine(recipe, make_checkpoint(recipe.family, folder), seed))
        return f"ok {time.monotonic() - started:.0f} s"

    results = {"load": attempt(load)}
    for engine in engines:
        results |= {case: attempt(partial(engine.ask, case)) for case in wanted(recipe, seed)}
    return results


def in_a_child(action: Callable[[], Results], log: Path, limit: int) -> Results:
    """Run the action in a forked child whose output goes into a file."""
    answer = log.with_suffix(".json")
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        with log.open("w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        signal.alarm(limit)
        code = 1
        try:
            answer.write_text(json.dumps(action()))
            code = 0
        finally:
            traceback.print_exc() if code else None
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if not answer.exists():
        return {"load": f"the process ended with status {os.waitstatus_to_exitcode(status)}"}
    results: Results = json.loads(answer.read_text())
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--prompts", type=Path, default=SEEDS)
    parser.add_argument("--keep", type=Path, help="folder for checkpoints and logs (default: a temporary one)")
    parser.add_argument("--limit", type=int, default=300, help="seconds for one family")
    options = parser.parse_args()
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    recipes = load_recipes()
    seeds = json.loads(options.prompts.read_text())["families"] if options.prompts.exists() else {}
    import vllm.entrypoints.llm  # noqa: F401 - so that no child has to

    failed = 0
    print(f"{'family':22}{'load':10}" + "".join(f"{case:10}" for case in CASES), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        base = options.keep or Path(temporary)
        base.mkdir(parents=True, exist_ok=True)
        for family in options.families or sorted(recipes):
            seed = seeds.get(family, {})
            results = in_a_child(
                partial(check, recipes[family], seed, base / family),
                base / f"{family}.log",
                options.limit,
            )
            errors = {case: text for case, text in results.items() if not text.startswith("ok")}
            row = {case: "failed" if case in errors else text for case, text in results.items()}
            print(f"{family:22}" + "".join(f"{row.get(case, '-'):10}" for case in ("load", *CASES)), flush=True)
            for case, text in errors.items():
                print(f"    {case}: {text}", flush=True)
            failed += bool(errors)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
