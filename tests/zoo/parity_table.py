"""The comparison of families in vLLM and in Transformers: `docs/parity.md`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from vlmtui.inspection.stages import Stage, StageOutcome, StageResult
from vlmtui.registry.loader import Registry
from vlmtui.session.check.run import CheckResult

PAGE = Path(__file__).parents[2] / "docs" / "parity.md"
RESULTS = Path(__file__).parents[1] / "data" / "parity_results.json"
HEAD = (
    "| family | prompts | text, ids, image tokens | pixels | log-probabilities | noise | answer | |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)
_EXACT = (Stage.TEXT, Stage.TOKENS, Stage.PLACES)
_NUMBERS = (Stage.LOGPROBS, Stage.ANSWER)
"""Compared in every family that counts as alike; vLLM does not report the pixels of some."""
ALIKE, SAME_NUMBERS, TOO_CERTAIN = "alike", "same numbers", "too certain to tell"
_INTRODUCTION = """# Families in vLLM and in Transformers

Do vLLM {vllm} and Transformers {transformers} compute the same? Each family is a tiny model of its
true architecture with random weights, in float32 on a CPU, once in each. Both get the same chat and
raw prompts with one image, and with two if the family takes them, and answer eight tokens greedily.
`make parity ARGS="--page"` writes this page.

| verdict | meaning |
| --- | --- |
| {alike} | every stage is the same: pixels within 0.001, log-probabilities within the noise |
| {same_numbers} | the same, but for the pixels |
| differs | see the reason below; [transformers.md](transformers.md#compared-with-vllm) explains it |

The numbers are the largest differences: of pixels in the model's units, of tokens in
log-probability, after the same tokens. The noise is how far the engines differ from themselves when
they compute the same again, alone and in a batch; at least the rounding of float32
([check.md](check.md#the-noise)).

"""


class FamilyParity(msgspec.Struct, frozen=True, kw_only=True):
    """The result for a family. Without `stages`, `failed` says why."""

    prompts: int = 0
    stages: dict[str, tuple[StageOutcome, float | None]] = {}
    """The worst outcome of all prompts and the largest difference, by stage."""
    noise: float | None = None
    """The largest limit for a log-probability."""
    verdict: str = ""
    """`alike`, `same numbers`, `too certain to tell`, or empty."""
    first: str = ""
    """The first stage that differs, and how."""
    failed: str = ""

    @property
    def has_same_numbers(self) -> bool:
        return self.verdict in (ALIKE, SAME_NUMBERS)


def found_of(cases: Sequence[CheckResult] | str) -> FamilyParity:
    """Return the sum of a family's conversations. A text instead of conversations is the reason why there are none."""
    if isinstance(cases, str) or not cases:
        return FamilyParity(failed=str(cases or "no prompts"))
    stages = {stage.value: _worst([_stage_of(case, stage) for case in cases]) for stage in Stage}
    errors = "; ".join(case.error for case in cases if case.error)
    bad = [case for case in cases if case.first is not None]
    first = min(bad, key=lambda case: list(Stage).index(case.first.stage) if case.first else 0, default=None)
    differing = {name for name, (outcome, _) in stages.items() if outcome is StageOutcome.DIFFERS}
    is_compared = all(stages[stage.value][0] is not StageOutcome.UNKNOWN for stage in _NUMBERS)
    verdict = "" if errors or differing - {Stage.PIXELS.value} else SAME_NUMBERS if differing else ALIKE
    verdict = verdict if is_compared else ""
    limits = [one.limit for case in cases for one in case.stages if one.limit is not None]
    if verdict and stages[Stage.LOGPROBS.value][1] == 0.0:
        verdict = TOO_CERTAIN
    return FamilyParity(
        prompts=len(cases),
        stages=stages,
        noise=max(limits, default=None),
        verdict=verdict,
        first=f"{first.case}: {first.first.stage.value}: {first.first.message}"
        if first is not None and first.first is not None
        else errors,
    )


def _stage_of(case: CheckResult, stage: Stage) -> StageResult:
    missing = StageResult(stage, StageOutcome.UNKNOWN, "it was not reached")
    return next((one for one in case.stages if one.stage is stage), missing)


def _worst(results: Sequence[StageResult]) -> tuple[StageOutcome, float | None]:
    order = (StageOutcome.SAME, StageOutcome.COUNTS, StageOutcome.UNKNOWN, StageOutcome.DIFFERS)
    outcomes = [one.outcome for one in results]
    largest = [one.largest for one in results if one.largest is not None]
    return max(outcomes, key=order.index, default=StageOutcome.UNKNOWN), max(largest, default=None)


def stored() -> dict[str, FamilyParity]:
    """Return the results of earlier runs, by family."""
    if not RESULTS.exists():
        return {}
    return msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, FamilyParity])


def store(family: str, found: FamilyParity) -> None:
    """Put a family's result among those of earlier runs."""
    known = dict(sorted({**stored(), family: found}.items()))
    RESULTS.write_text(json.dumps(msgspec.to_builtins(known), indent=1) + "\n", encoding="utf-8")


def write_page(*, vllm: str, transformers: str) -> None:
    """Write the page for the stored results."""
    text = _INTRODUCTION.format(vllm=vllm, transformers=transformers, alike=ALIKE, same_numbers=SAME_NUMBERS)
    PAGE.write_text(text + "\n".join(table(stored())) + "\n", encoding="utf-8")


def table(known: Mapping[str, FamilyParity]) -> Iterable[str]:
    """Yield the rows, equal families first, then their count, then a reason for each of the others."""
    order = sorted(known, key=lambda name: (not known[name].has_same_numbers, name))
    yield HEAD
    for name in order:
        yield row(name, known[name])
    good = sum(one.has_same_numbers for one in known.values())
    yield f"\n{good} of {len(known)} families: the same ids, and log-probabilities within the noise.\n"
    if any(one.stages and one.noise is None for one in known.values()):
        yield "Without noise: of an earlier run, when the limit was that of PyTorch's tests for float32.\n"
    yield "| family | reason |\n| --- | --- |"
    for name in order:
        if not known[name].has_same_numbers:
            yield f"| {name} | {_reason(name, known[name]).replace('|', chr(92) + '|')} |"


def row(name: str, one: FamilyParity) -> str:
    """Return the table's row for a family, or for another thing that was compared."""
    if not one.stages:
        return f"| {name} | | | | | | | not compared |"
    exact = [one.stages[stage.value][0] for stage in _EXACT]
    same = "same" if all(outcome is StageOutcome.SAME for outcome in exact) else _first_bad(one)
    noise = "" if one.noise is None else f"{one.noise:.1g}"
    answer = one.stages[Stage.ANSWER.value][0].value
    cells = [same, apart(one, Stage.PIXELS), apart(one, Stage.LOGPROBS), noise, answer]
    return f"| {name} | {one.prompts} | {' | '.join(cells)} | {one.verdict or 'differs'} |"


def _first_bad(one: FamilyParity) -> str:
    return ", ".join(f"{s.value}: {one.stages[s.value][0]}" for s in _EXACT if one.stages[s.value][0] != "same")


def apart(one: FamilyParity, stage: Stage) -> str:
    """Return the largest difference of a stage, or that it was not compared."""
    outcome, largest = one.stages[stage.value]
    if outcome is StageOutcome.UNKNOWN or largest is None:
        return outcome.value
    return f"{largest:.1g}" if largest else "0"


def _reason(name: str, one: FamilyParity) -> str:
    if one.verdict == TOO_CERTAIN:
        return "Its random weights give one token all the probability, whatever comes before it."
    family = Registry.bundled().get(name)
    known = [f"{known.stage}: {known.why}" for known in family.differences] if family is not None else []
    return " ".join(known) or f"`{(one.failed or one.first)[:160]}`"
