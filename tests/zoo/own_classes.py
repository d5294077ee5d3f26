"""vlmtui's own model classes in vLLM against a reference computed by Transformers from the same saved weights:
`python -m tests.zoo.own_classes tarsier tarsier2 --keep FOLDER`.

Tarsier's reference is a LLaVA whose image features get their row ends here, by plain loops. Tarsier2's is the Qwen2-VL
within it; its weights are saved under the names of a published Tarsier2.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.zoo.__main__ import ENVIRONMENT
from tests.zoo.kit import make_checkpoint
from tests.zoo.parity import TOKENS, compare
from tests.zoo.weights import fill, save_with_weights

_NAMES = (
    (r"^(model\.)?visual\.", "vision_tower."),
    (r"^model\.(language_model\.)?", "language_model.model."),
    (r"^lm_head\.", "language_model.lm_head."),
)
"""From the names of Transformers to those of a Tarsier2."""


def make(family: str, folder: Path) -> None:
    """Write the checkpoint with weights; for Tarsier2 also `reference`, the Qwen2-VL within it."""
    make_checkpoint(family, folder / "model")
    if family == "tarsier":
        save_with_weights(folder / "model")
        return
    from safetensors.torch import load_file, save_file
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    shell = json.loads((folder / "model" / "config.json").read_text())
    config = Qwen2VLConfig(**shell["text_config"])
    shutil.copytree(folder / "model", folder / "reference", dirs_exist_ok=True)
    fill(Qwen2VLForConditionalGeneration(config).float()).save_pretrained(folder / "reference")
    renamed = {}
    for name, value in load_file(folder / "reference" / "model.safetensors").items():
        new = name
        for old, wanted in _NAMES:
            new = re.sub(old, wanted, new)
        renamed[new] = value
    assert {name.split(".")[0] for name in renamed} == {"vision_tower", "language_model"}
    save_file(renamed, folder / "model" / "model.safetensors", {"format": "pt"})


def reference_of_tarsier(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """The greedy answers to the prompts that vLLM made, by case."""
    import torch
    from PIL import Image
    from transformers import AutoConfig, AutoProcessor, LlavaForConditionalGeneration

    from vlmtui.paths import bundled

    config = AutoConfig.from_pretrained(folder / "model")
    model = LlavaForConditionalGeneration.from_pretrained(folder / "model", dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(folder / "model").image_processor
    embed = model.get_input_embeddings()
    files = {"image": ["circle.png"], "images": ["circle.png", "two-shapes.png"]}
    found: dict[str, Any] = {}
    with torch.no_grad():
        for case, one in asked.items():
            images = [Image.open(bundled("samples") / name).convert("RGB") for name in files[case]]
            pixels = processor(images, return_tensors="pt")["pixel_values"]
            features = model.get_image_features(pixel_values=pixels)
            features = getattr(features, "pooler_output", features)
            rows: list[Any] = []
            for patches in features:
                for start in range(0, len(patches), 4):
                    rows += [*patches[start : start + 4], embed.weight[config.image_newline_idx]]
                rows.append(embed.weight[config.image_new_idx])
            left = iter(rows)
            ids = one["prompt"]
            vectors = [next(left) if token == config.image_token_index else embed.weight[token] for token in ids]
            assert next(left, None) is None
            inputs, tokens, logprobs = torch.stack(vectors)[None], [], []
            for _ in range(TOKENS):
                scores = model(inputs_embeds=inputs).logits[0, -1].log_softmax(-1)
                tokens.append(int(scores.argmax()))
                logprobs.append(float(scores.max()))
                inputs = torch.cat([inputs, embed.weight[tokens[-1]][None, None]], dim=1)
            found[case] = {"prompt": ids, "tokens": tokens, "logprobs": logprobs}
    return found


def run(family: str, base: Path) -> tuple[bool, str]:
    """Make both, ask both, compare. Each engine has a process of its own."""
    folder = base / family
    make(family, folder)
    ask(base, family, "vllm")
    theirs = json.loads((folder / "vllm.json").read_text())
    if family == "tarsier":
        return compare(reference_of_tarsier(folder, theirs), theirs)
    reference = base / "reference" / family
    reference.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder / "reference", reference / "model", dirs_exist_ok=True)
    ask(base / "reference", family, "transformers")
    return compare(json.loads((reference / "transformers.json").read_text()), theirs)


def ask(base: Path, family: str, backend: str) -> None:
    """Have an engine answer; the answers are in a file beside the model."""
    command = [sys.executable, "-m", "tests.zoo.parity", "--one", backend, "--keep", str(base), family]
    with (base / family / f"{backend}.log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=log, check=True, timeout=600)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="+", choices=("tarsier", "tarsier2"))
    parser.add_argument("--keep", type=Path, required=True)
    options = parser.parse_args()
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    results = {family: run(family, options.keep.resolve()) for family in options.families}
    for family, (alike, said) in results.items():
        print(f"{family:20} {'ok    ' if alike else 'DIFFER'} {said}", flush=True)
    return 0 if all(alike for alike, _ in results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
