"""Engines compared with a record, or with the first engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.support.batches import RepeatingEngine
from tests.support.scripted_engine import scripted_info
from vlmtui.domain.conversation import attachments_of, user_turn
from vlmtui.domain.generation import (
    Delta,
    EngineEvent,
    GenerateRequest,
    RenderRequest,
    Request,
    ScoreRequest,
    TokenLogprob,
    View,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.inspection.build import fingerprint_of
from vlmtui.inspection.stages import CheckedSide, Stage, StageOutcome
from vlmtui.media.stage import stage
from vlmtui.paths import bundled, private_dir
from vlmtui.registry.loader import Registry
from vlmtui.session.check.cases import CheckCase, case_of
from vlmtui.session.check.run import CheckResult, changed_fingerprint, run_cases
from vlmtui.session.check.sides import kept_files, sides_by_engine, sides_in_parts, uses_images
from vlmtui.session.check.sight import send_images

RECORDED = CheckedSide(token_ids=(1, 2, 3), answer="red", answer_ids=(7, 8), is_answered=True)
GOLDEN = CheckedSide(token_ids=(1, 2, 3))


async def results(recorded: CheckedSide | None, engines: Mapping[str, CheckedSide | VlmtuiError]) -> list[CheckResult]:
    """Return the result of a case on these engines."""

    def made(side: CheckedSide | VlmtuiError) -> object:
        async def make(cases: Sequence[CheckCase], answers: Sequence[tuple[int, ...]]) -> AsyncIterator[CheckedSide]:
            if isinstance(side, VlmtuiError):
                raise side
            yield side

        return make

    case = case_of(Registry.bundled()["shapes"], "image", "chat", (user_turn("What?"),))
    case = msgspec.structs.replace(case, recorded=recorded)
    makers = {name: made(side) for name, side in engines.items()}
    found: list[CheckResult] = []
    await run_cases([case], makers, found)  # type: ignore[arg-type]
    return found


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


async def test_an_engine_that_fails_later_leaves_the_others() -> None:
    failed, third = await results(None, {"first": RECORDED, "gone": bad_input("No such server."), "third": changed()})
    assert (failed.engine, third.engine, third.first) == ("gone", "third", None)


async def test_a_stopped_check_has_the_comparisons_so_far() -> None:
    async def of_base(_cases: object, _answers: object) -> AsyncIterator[CheckedSide]:
        for _ in range(2):
            yield RECORDED

    async def stopped(_cases: object, _answers: object) -> AsyncIterator[CheckedSide]:
        yield changed(answer="blue", answer_ids=(9,))
        raise asyncio.CancelledError

    family = Registry.bundled()["shapes"]
    cases = [case_of(family, name, "chat", (user_turn("What?"),)) for name in ("one", "two")]
    found: list[CheckResult] = []
    with pytest.raises(asyncio.CancelledError):
        await run_cases(cases, {"base": of_base, "other": stopped}, found)
    assert [(one.case, one.engine, one.first is not None) for one in found] == [("one chat", "other", True)]


async def test_a_stopped_check_goes_on_where_it_was(tmp_path: Path) -> None:
    family, folder = Registry.bundled()["shapes"], private_dir(tmp_path / "kept")
    cases = [case_of(family, str(at), "chat", (user_turn(f"Question {at}"),)) for at in range(20)]

    async def asked(cases: Sequence[CheckCase], most: int, **facts: object) -> list[str]:
        """Return the questions that an engine is asked for the first `most` results."""
        engine = RepeatingEngine()
        info = engine.info = msgspec.structs.replace(scripted_info(), **facts)
        answers: list[tuple[int, ...]] = [()] * len(cases)
        files = kept_files(info, cases, answers, folder, is_asked=True)
        sides = sides_in_parts(engine, cases, folder, answers, is_asked=True, files=files)
        found = [(await anext(sides)).answer for _ in range(most)]
        assert found == [f"said: Question {case.case} 0" for case in cases[:most]]
        return list(dict.fromkeys(engine.asked))

    assert len(await asked(cases, 1)) == 8
    assert await asked(cases, 20) == [f"Question {at}" for at in range(8, 20)]
    assert await asked(cases, 20) == []
    assert len(await asked(cases, 20, files="other")) == 20
    longer = [case_of(family, case.case, "chat", case.turns, sampling=Sampling(max_tokens=9)) for case in cases]
    assert len(await asked(longer, 20)) == 20


class Looker(RepeatingEngine):
    """An engine whose answers are less likely with grey images, if it looks."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.drop = drop

    async def _events_of(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        is_grey = any("(grey)" in item.name for item in attachments_of(request.prompt))
        logprob = -0.1 - (self.drop if is_grey else 0.0)
        async for event in super()._events_of(request):
            if isinstance(event, Delta):
                top = tuple(TokenLogprob(token_id=token, logprob=logprob) for token in event.token_ids)
                event = msgspec.structs.replace(event, logprobs=top)
            yield event


@pytest.mark.parametrize(("drop", "looks"), [(1.0, True), (0.01, False), (-1.0, True)])
async def test_an_answer_that_grey_images_leave_as_likely_does_not_use_them(
    drop: float, looks: bool, tmp_path: Path
) -> None:
    family, image = Registry.bundled()["shapes"], stage(bundled("samples") / "circle.png", tmp_path)
    cases = [case_of(family, "x", "chat", (user_turn("What?", some),)) for some in ([image], [])]
    seen, text = await sides_by_engine(Looker(drop), cases, tmp_path / "values")
    assert (uses_images(seen), uses_images(text)) == (looks, None)


async def test_all_tokens_of_the_prompt_tell_those_of_an_image(tmp_path: Path) -> None:
    """The test's engine counts 2 tokens, whatever the prompt."""
    family, image = Registry.bundled()["shapes"], stage(bundled("samples") / "circle.png", tmp_path)
    images, expected = {"a": image, "b": image}, {"a": 0, "b": 1}
    for around, outcomes in ((0, ["right", "wrong count"]), (None, ["not counted", "wrong count"])):
        found = await send_images(RepeatingEngine(), family, images, expected, Sampling(), around)
        assert [one.outcome.value for one in found] == outcomes


class Refuser(RepeatingEngine):
    """An engine that refuses images, in its own words."""

    async def _events_of(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        if attachments_of(request.prompt):
            raise VlmtuiError(ErrorKind.BAD_INPUT, "It refused.", detail="aspect ratio 2000")
        async for event in super()._events_of(request):
            yield event


async def test_a_refused_image_has_the_engines_own_words(tmp_path: Path) -> None:
    family, image = Registry.bundled()["shapes"], stage(bundled("samples") / "circle.png", tmp_path)
    (found,) = await send_images(Refuser(), family, {"a": image}, {}, Sampling(), None)
    assert (found.outcome.value, found.message) == ("refused", "It refused. aspect ratio 2000")


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
