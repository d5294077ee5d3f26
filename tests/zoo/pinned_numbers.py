"""Numbers of vLLM 0.23.0, the last version with Tarsier and Tarsier2, from the weights that vlmtui's classes get:
`python -m tests.zoo.pinned_numbers --keep FOLDER`, with an installed engine of that version. Writes `NUMBERS`.

The weights depend on the names of the parameters alone, so a test compares with the numbers without that engine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.zoo.own_classes import make
from tests.zoo.parity import TOKENS, conversations
from vlmtui.domain.conversation import RawPrompt
from vlmtui.domain.sampling import Sampling
from vlmtui.engines.installed import Engines, pinned_engine
from vlmtui.engines.serve import ServerProgram, server_program
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.session.generation import make_request

NUMBERS = Path(__file__).parent.parent / "data" / "tarsier_0.23.0.json"
VERSION = "0.23.0"
FAMILIES = ("tarsier", "tarsier2")
_OVERRIDES = {"tarsier2": {"architectures": ["Tarsier2ForConditionalGeneration"], "model_type": "tarsier2"}}
_PROGRAM = """
import json, sys
from PIL import Image
from vllm import LLM, SamplingParams

asked = json.load(open(sys.argv[1]))
llm = LLM(
    model=asked["model"], dtype="float32", enforce_eager=True, max_model_len=2048, max_num_seqs=2, seed=0,
    gpu_memory_utilization=0.3, limit_mm_per_prompt={"image": 2}, hf_overrides=asked["overrides"],
)
wanted = SamplingParams(temperature=0, max_tokens=asked["tokens"], logprobs=1, ignore_eos=True)
found = {}
for case, one in asked["prompts"].items():
    images = [Image.open(path).convert("RGB") for path in one["images"]]
    [answer] = llm.generate({"prompt": one["text"], "multi_modal_data": {"image": images}}, wanted)
    [said] = answer.outputs
    numbers = [step[token].logprob for token, step in zip(said.token_ids, said.logprobs)]
    found[case] = {"prompt": list(answer.prompt_token_ids), "tokens": list(said.token_ids)}
    found[case]["logprobs"] = [round(number, 6) for number in numbers]
json.dump(found, open(sys.argv[2], "w"))
"""


def as_transformers_4_reads(folder: Path, family: str) -> None:
    """Change a checkpoint's configuration files for a Transformers of before 5; the weights stay."""
    config = json.loads((folder / "config.json").read_text())
    if family == "tarsier2":
        inner = config.pop("text_config")
        text = _text(inner.pop("text_config"))
        kept = {name: inner[name] for name in ("image_token_id", "video_token_id", "vision_start_token_id")}
        kept["vision_end_token_id"] = inner["vision_end_token_id"]
        config |= {"text_config": {**text, **kept}, "vision_config": _without_news(inner["vision_config"]), **kept}
    else:
        config["text_config"] = _text(config["text_config"])
        config["vision_config"] = _without_news(config["vision_config"])
    config["torch_dtype"] = config.pop("dtype")
    _write(folder / "config.json", config)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    for name in ("backend", "is_local", "local_files_only", "model_specific_special_tokens"):
        tokenizer.pop(name, None)
    kind = "Qwen2TokenizerFast" if family == "tarsier2" else "PreTrainedTokenizerFast"
    _write(folder / "tokenizer_config.json", {**tokenizer, "tokenizer_class": kind})
    processor = json.loads((folder / "processor_config.json").read_text())
    images = processor.pop("image_processor")
    processor.pop("video_processor", None)
    if "longest_edge" in images["size"]:  # Qwen2-VL's, under its former names
        images |= {"min_pixels": images["size"]["shortest_edge"], "max_pixels": images["size"]["longest_edge"]}
    _write(folder / "preprocessor_config.json", images)
    _write(folder / "processor_config.json", processor)


def _text(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part, with its rotary embedding in the former fields."""
    rope = config["rope_parameters"]
    found = _without_news(config) | {"rope_theta": rope["rope_theta"]}
    if "mrope_section" in rope:
        found["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    return found


def _without_news(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in ("rope_parameters", "layer_types", "dtype")}


def _write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")


def raw_prompts(family: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The questions for an engine without vlmtui: by case, the raw prompt's text and the images' files."""
    found = {}
    for asked in conversations(family, folder / "media"):
        if asked.mode == "raw":
            prompt = make_request(Registry.bundled()[family], asked.turns, Sampling(), mode="raw").prompt
            assert isinstance(prompt, RawPrompt)
            found[asked.case] = {"text": prompt.text, "images": [item.path for item in prompt.attachments]}
    return found


def ask(program: ServerProgram, family: str, base: Path) -> dict[str, Any]:
    """Have the other version answer."""
    folder = base / family
    make(family, folder)
    old = folder / "transformers-4"
    shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(folder / "model", old)
    as_transformers_4_reads(old, family)
    asked = {
        "model": str(old), "overrides": _OVERRIDES.get(family, {}), "tokens": TOKENS,
        "prompts": raw_prompts(family, folder),
    }  # fmt: skip
    _write(folder / "asked.json", asked)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(program.search_path),
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }
    with (folder / "pinned.log").open("w") as log:
        command = [program.interpreter, "-c", _PROGRAM, str(folder / "asked.json"), str(folder / "pinned.json")]
        subprocess.run(command, stdout=log, stderr=log, check=True, env=environment, cwd=folder, timeout=900)
    found: dict[str, Any] = json.loads((folder / "pinned.json").read_text())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, required=True)
    options = parser.parse_args()
    engine = pinned_engine(Engines(Paths.default()), VERSION)
    if engine is None:
        print(f"vLLM {VERSION} is not installed: vlmtui engines install {VERSION} --variant cpu")
        return 1
    found = {family: ask(server_program(engine), family, options.keep.resolve()) for family in FAMILIES}
    NUMBERS.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
