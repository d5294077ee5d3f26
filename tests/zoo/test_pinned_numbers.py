"""vlmtui's own classes against numbers that vLLM 0.23.0 gave on the same saved weights (`pinned_numbers.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.zoo.parity import conversations
from tests.zoo.pinned_numbers import FAMILIES, NUMBERS
from tests.zoo.test_parity import run
from vlmtui.inspection.stages import CheckedSide


@pytest.mark.timeout(1300)
def test_own_classes_equal_the_last_vllm_that_had_them(tmp_path: Path) -> None:
    """The same prompts and answers, and log-probabilities within 1e-2, for one image and for two."""
    run("tests.zoo.own_classes", *FAMILIES, "--keep", str(tmp_path))
    kept = json.loads(NUMBERS.read_text(encoding="utf-8"))
    for family in FAMILIES:
        sides = msgspec.json.decode((tmp_path / family / "vllm" / "sides.json").read_bytes(), type=list[CheckedSide])
        asked = conversations(family, tmp_path / "media")
        ours = {prompt.case: side for prompt, side in zip(asked, sides, strict=True) if prompt.mode == "raw"}
        assert set(ours) == set(kept[family]) == {"image", "images"}
        for case, side in ours.items():
            wanted = kept[family][case]
            assert list(side.token_ids) == wanted["prompt"]
            assert list(side.answer_ids) == wanted["tokens"]
            assert [one.logprob for one in side.logprobs] == pytest.approx(wanted["logprobs"], abs=1e-2)
