"""The table of parity: which families count as alike, and its page."""

from __future__ import annotations

import pytest

from tests.zoo.parity_table import ALIKE, PAGE, RESULTS, SAME_NUMBERS, found_of, stored, table
from vlmtui.inspection.stages import Stage, StageOutcome, StageResult
from vlmtui.session.check.run import CheckResult


def case(**differing: float) -> CheckResult:
    """A conversation whose stages are the same but for these, so far apart."""
    stages = tuple(
        StageResult(stage, StageOutcome.DIFFERS, "it is not", differing[stage.name])
        if stage.name in differing
        else StageResult(stage, StageOutcome.SAME, "it is", 1e-6, limit=2e-5)
        for stage in Stage
    )
    return CheckResult(file="", case="image raw", stages=stages)


def test_a_family_is_alike_only_if_every_prompt_is() -> None:
    assert found_of([case(), case()]).verdict == ALIKE
    only_pixels = found_of([case(), case(PIXELS=0.004)])
    assert (only_pixels.verdict, only_pixels.first) == (SAME_NUMBERS, "image raw: pixels: it is not")
    for stage in ("TOKENS", "PLACES", "LOGPROBS", "ANSWER"):
        assert found_of([case(), case(**{stage: 0.5})]).verdict == ""
    prompt_alone = CheckResult(case="image raw", stages=case().stages[:4])
    assert found_of([case(), prompt_alone]).verdict == ""
    assert found_of([prompt_alone]).verdict == ""
    assert found_of("vllm: it died").failed == "vllm: it died"


def test_the_table_counts_them_and_gives_a_reason_for_the_others() -> None:
    known = {"llava": found_of([case()]), "paligemma": found_of([case(LOGPROBS=6.0)]), "aria": found_of("vllm: no")}
    rows = "\n".join(table(known))
    assert "| llava | 1 | same | 1e-06 | 1e-06 | 2e-05 | same | alike |" in rows
    assert "1 of 3 families: the same ids" in rows
    assert "| paligemma | log-probabilities: The prompt's tokens see each other in both directions" in rows
    assert "| aria | `vllm: no` |" in rows


@pytest.mark.skipif(not RESULTS.exists(), reason="make parity ARGS=--page writes it")
def test_the_page_has_the_table_of_its_results() -> None:
    assert "\n".join(table(stored())) in PAGE.read_text(encoding="utf-8")
