"""Llama 3.2 Vision against Transformers 4, which took its image features from the right layers.

`python -m tests.zoo.mllama_numbers` compares the installed Transformers, as it is and repaired, with the numbers below.
With `--print`, it prints the numbers of whatever Transformers is imported: `EXPECTED` are those of 4.52.4.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.zoo.recipes.transformers_only import mllama_config
from tests.zoo.weights import fill

TEXT = [256, 258, 117, 115, 101, 114, 259]
TOKENS = (0, 50, 100, 200)
CASES = ("text", "image 1", "image 2")
Numbers = Mapping[str, tuple[float, ...]]
EXPECTED: Numbers = {
    "text": (-5.10419, -7.39156, -7.80169, -7.14473),
    "image 1": (-8.01204, -6.08899, -5.77864, -4.67276),
    "image 2": (-7.55388, -5.95566, -6.46922, -6.73521),
}
"""Log-probabilities of `TOKENS` behind a text alone, and behind one image of two kinds."""
UNREPAIRED: Numbers = {
    "text": EXPECTED["text"],
    "image 1": (-7.69088, -5.63744, -6.2277, -5.8374),
    "image 2": (-7.38774, -5.78743, -6.31096, -6.73597),
}
"""The numbers of 5.19, which takes the image features of other layers."""


def model() -> Any:
    """Six vision layers of which two inner ones are features, too."""
    from transformers import MllamaForConditionalGeneration

    return fill(MllamaForConditionalGeneration(mllama_config(263)).float().eval())


def numbers(built: Any) -> Numbers:
    """The log-probabilities, by case."""
    import torch

    found = {}
    for case, seed in zip(CASES, (None, 1, 2), strict=True):
        ids = TEXT if seed is None else [256, 263, *TEXT[1:]]
        given: dict[str, Any] = {"input_ids": torch.tensor([ids])}
        if seed is not None:
            pixels = torch.randn(1, 1, 4, 3, 28, 28, generator=torch.Generator().manual_seed(seed))
            mask = torch.ones(1, len(ids), 1, 4)
            mask[:, 0] = 0
            given |= {
                "pixel_values": pixels,
                "aspect_ratio_ids": torch.tensor([[6]]),
                "aspect_ratio_mask": torch.ones(1, 1, 4, dtype=torch.long),
                "cross_attention_mask": mask,
            }
        with torch.no_grad():
            scores = built(**given).logits[0, -1].float().log_softmax(-1)
        found[case] = tuple(round(float(scores[token]), 5) for token in TOKENS)
    return found


def apart(found: Numbers, wanted: Numbers) -> float:
    """The largest difference."""
    return max(abs(one - other) for case in CASES for one, other in zip(found[case], wanted[case], strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", action="store_true", dest="prints")
    parser.add_argument("--keep", type=Path, help="ignored: it makes no files")
    options = parser.parse_args()
    built = model()
    as_it_is = numbers(built)
    if options.prints:
        import transformers

        print(transformers.__version__, as_it_is)
        return 0
    from vlmtui.worker.backends.transformers.loading import repair_image_features

    repaired = repair_image_features(built)
    again = repair_image_features(model())
    found = numbers(built)
    print(f"as it is: {as_it_is}\nrepaired ({repaired}): {found}")
    before = apart(as_it_is, UNREPAIRED if repaired else EXPECTED)
    good = apart(found, EXPECTED) < 1e-3 and before < 1e-3 and again == repaired
    print("ok" if good else "DIFFER")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
