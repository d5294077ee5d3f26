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
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.zoo.__main__ import ENVIRONMENT
from tests.zoo.kit import make_checkpoint
from tests.zoo.parity import TOKENS, compared, conversations, in_a_process, summary
from tests.zoo.parity_table import found_of
from tests.zoo.weights import fill, save_with_weights
from vlmtui.domain.generation import TokenLogprob
from vlmtui.inspection.stages import CheckedSide

_NAMES = (
    (r"^(model\.)?visual\.", "vision_tower."),
    (r"^model\.(language_model\.)?", "language_model.model."),
    (r"^lm_head\.", "language_model.lm_head."),
)
"""The names of weights: Transformers' to Tarsier2's."""


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


def reference_of_tarsier(folder: Path, cases: Sequence[str], asked: Sequence[CheckedSide]) -> list[CheckedSide]:
    """The greedy answers to the prompts that vLLM made for these cases."""
    import torch
    from PIL import Image
    from transformers import AutoConfig, AutoProcessor, LlavaForConditionalGeneration

    from vlmtui.paths import bundled

    config = AutoConfig.from_pretrained(folder / "model")
    model = LlavaForConditionalGeneration.from_pretrained(folder / "model", dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(folder / "model").image_processor
    embed = model.get_input_embeddings()
    files = {"image": ["circle.png"], "images": ["circle.png", "two-shapes.png"]}
    found: list[CheckedSide] = []
    with torch.no_grad():
        for case, one in zip(cases, asked, strict=True):
            images = [Image.open(bundled("samples") / name).convert("RGB") for name in files[case]]
            pixels = processor(images, return_tensors="pt")["pixel_values"]
            features = model.get_image_features(pixel_values=pixels)
            features = getattr(features, "pooler_output", features)
            rows = []
            for patches in features:
                for start in range(0, len(patches), 4):
                    rows += [*patches[start : start + 4], embed.weight[config.image_newline_idx]]
                rows.append(embed.weight[config.image_new_idx])
            left = iter(rows)
            ids = one.token_ids
            vectors = [next(left) if token == config.image_token_index else embed.weight[token] for token in ids]
            assert next(left, None) is None
            inputs, chosen = torch.stack(vectors)[None], list[TokenLogprob]()
            for _ in range(TOKENS):
                scores = model(inputs_embeds=inputs).logits[0, -1].log_softmax(-1)
                token = int(scores.argmax())
                chosen.append(TokenLogprob(token_id=token, logprob=float(scores.max())))
                inputs = torch.cat([inputs, embed.weight[token][None, None]], dim=1)
            answer = tuple(logprob.token_id for logprob in chosen)
            side = CheckedSide(token_ids=ids, answer_ids=answer, logprobs=tuple(chosen))
            found.append(msgspec.structs.replace(side, dtype="float32", is_answered=True))
    return found


def run(family: str, base: Path) -> tuple[bool, str]:
    """Make both, ask both the same raw prompts, compare. Each engine has a process of its own."""
    folder = base / family
    make(family, folder)
    prompts = conversations(family, folder / "media")
    raw = [at for at, prompt in enumerate(prompts) if prompt.mode == "raw"]
    theirs = _ask("vllm", family, folder / "model", folder / "vllm")
    if family == "tarsier":
        cases = [prompts[at].case for at in raw]
        made = zip(reference_of_tarsier(folder, cases, [theirs[at] for at in raw]), raw, strict=True)
        # The reference makes tokens alone: the same tokens have the same text.
        reference = [
            msgspec.structs.replace(one, answer=theirs[at].answer) if one.answer_ids == theirs[at].answer_ids else one
            for one, at in made
        ]
    else:
        answered = _ask("transformers", family, folder / "reference", folder / "transformers")
        reference = [answered[at] for at in raw]
    return summary(found_of(compared([theirs[at] for at in raw], reference, [prompts[at] for at in raw])))


def _ask(backend: str, family: str, checkpoint: Path, folder: Path) -> list[CheckedSide]:
    found = in_a_process(backend, family, checkpoint, folder)
    assert not isinstance(found, str), found
    return found


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
