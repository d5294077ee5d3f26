"""Engines compared with a record, or with the first engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import msgspec

from tests.support.batches import RepeatingEngine
from tests.support.scripted_engine import scripted_info
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.generation import EngineEvent, GenerateRequest, RenderRequest, Request, ScoreRequest, View
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.inspection.build import fingerprint_of
from vlmtui.inspection.stages import CheckedSide, Stage, StageOutcome
from vlmtui.registry.loader import Registry
from vlmtui.session.check.cases import CheckCase, case_of
from vlmtui.session.check.run import CheckResult, changed_fingerprint, run_cases
from vlmtui.session.check.sides import sides_by_engine

RECORDED = CheckedSide(token_ids=(1, 2, 3), answer="red", answer_ids=(7, 8), is_answered=True)
GOLDEN = CheckedSide(token_ids=(1, 2, 3))


async def results(recorded: CheckedSide | None, engines: Mapping[str, CheckedSide | VlmtuiError]) -> list[CheckResult]:
    """Return the result of a case on these engines."""

    def made(side: CheckedSide | VlmtuiError) -> object:
        async def make(cases: Sequence[CheckCase], answers: Sequence[tuple[int, ...]]) -> list[CheckedSide]:
            if isinstance(side, VlmtuiError):
                raise side
            return [side]

        return make

    case = case_of(Registry.bundled()["shapes"], "image", "chat", (user_turn("What?"),))
    case = msgspec.structs.replace(case, recorded=recorded)
    makers = {name: made(side) for name, side in engines.items()}
    return await run_cases([case], makers)  # type: ignore[arg-type]


def changed(**values: object) -> CheckedSide:
    return msgspec.structs.replace(RECORDED, **values)


async def test_each_engine_is_compared_with_the_record() -> None:
    here, there = await results(RECORDED, {"here": RECORDED, "there": changed(answer="rot", answer_ids=(7, 9))})
    assert here.first is None and not here.error
    assert there.first is not None and there.first.stage is Stage.ANSWER


async def test_a_different_prompt_may_have_the_same_answer() -> None:
    (found,) = await results(RECORDED, {"here": changed(token_ids=(1, 5, 3))})
    outcomes = {one.stage: one.outcome for one in found.stages}
    assert outcomes[Stage.TOKENS] is StageOutcome.DIFFERS and outcomes[Stage.ANSWER] is StageOutcome.SAME


async def test_a_recorded_prompt_has_the_first_engines_answer_as_its_base() -> None:
    here, there = await results(GOLDEN, {"here": RECORDED, "there": changed(answer="blue", answer_ids=(9,))})
    assert here.first is None and Stage.ANSWER not in {one.stage for one in here.stages}
    assert there.first is not None and there.first.stage is Stage.ANSWER


async def test_without_a_record_the_first_engine_is_the_base_and_has_no_row() -> None:
    (found,) = await results(None, {"reference": RECORDED, "engine": changed(token_ids=(1, 2))})
    assert (found.engine, found.first is not None) == ("engine", True)


async def test_a_failed_engine_is_not_the_base() -> None:
    failed, here = await results(GOLDEN, {"gone": bad_input("No such server."), "here": RECORDED})
    assert (failed.engine, failed.case, failed.error) == ("gone", "", "No such server.")
    assert here.first is None and not here.error
    assert len(await results(None, {"gone": bad_input("No such server."), "here": RECORDED})) == 1


def test_a_fingerprint_names_the_changes() -> None:
    then = fingerprint_of(scripted_info())
    now = msgspec.structs.replace(then, engine_version="0.33.0", engine_args={"max_model_len": 512, "dtype": "half"})
    assert changed_fingerprint(then, now) == {
        "engine_version": ("0.32.0", "0.33.0"),
        "engine_args.dtype": (None, "half"),
        "engine_args.max_model_len": (4096, 512),
    }
    assert changed_fingerprint(then, then) == {}
    elsewhere = msgspec.structs.replace(now, backend="pinned", engine_args={"max_model_len": 512, "block_size": 32})
    assert changed_fingerprint(then, elsewhere) == {
        "backend": ("vllm", "pinned"),
        "engine_version": ("0.32.0", "0.33.0"),
        "engine_args.max_model_len": (4096, 512),
    }


async def test_values_and_log_probabilities_are_requested_if_possible(tmp_path: Path) -> None:
    """Most differences show in the processor's values and the log-probabilities."""
    engine = RepeatingEngine()
    asked: list[Request] = []
    generate = engine.generate

    def noted(request: Request) -> AsyncGenerator[EngineEvent, None]:
        asked.append(request)
        return generate(request)

    setattr(engine, "generate", noted)  # noqa: B010
    case = case_of(Registry.bundled()["shapes"], "text", "chat", (user_turn("What?"),))
    (side,) = await sides_by_engine(engine, [case], tmp_path / "values")
    assert (side.token_ids, side.is_answered, side.error) == ((1, 2), True, "")
    seen, answered, *again = asked
    assert isinstance(seen, RenderRequest) and seen.view == View(folder=str(tmp_path / "values"), values=True)
    assert isinstance(answered, GenerateRequest) and answered.logprobs == 20
    assert len(again) == 5 and all(isinstance(one, ScoreRequest) and one.tokens == side.answer_ids for one in again)
