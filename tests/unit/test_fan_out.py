"""Fan-outs without a screen: plans, lanes, and the choice of an answer."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.scripted_engine import DEFAULT_SPEC, Die, Hold, ScriptedEngine, Step
from vlmtui.domain.conversation import Attachment, ChatPrompt, Media, Text, Turn, assistant_turn, user_turn
from vlmtui.domain.generation import Cancelled, Failed
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.session.fan_out import FanOut, Plan, parse_plan, plan_of, planned_specs, why_identical, with_text

SHAPES = Registry.bundled()["shapes"]
PICTURE = Attachment(
    modality="image", name="a.png", path="/x", sha256="0" * 64, width=8, height=8, size_bytes=1, format="PNG"
)


async def engine_of(*answers: list[Step]) -> ScriptedEngine:
    engine = ScriptedEngine(DEFAULT_SPEC, answers=answers)
    async for _ in engine.load():
        pass
    return engine


def lanes(plan: Plan, engine: ScriptedEngine, *turns: Turn) -> FanOut:
    return FanOut(plan, SHAPES, turns or [user_turn("Hi")], Sampling(), engine)


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("seed=1,2,3", {"seed": (1, 2, 3)}),
        ("seed=1..3", {"seed": (1, 2, 3)}),
        ("seed=-1..1,7", {"seed": (-1, 0, 1, 7)}),
        ("temperature=0,0.5 seed=7", {"temperature": (0.0, 0.5), "seed": (7,)}),
        ("seed=1..2 temperature=0,1", {"seed": (1, 2), "temperature": (0.0, 1.0)}),
        ("seed=1,2 image=none", {"seed": (1, 2), "image": ("none",)}),
        ("top-p=0.5,1", {"top_p": (0.5, 1.0)}),
        ("  max_tokens = 1 , 2 ", {"max_tokens": (1, 2)}),
        ("image=sent,none,gray", {"image": ("sent", "none", "grey")}),
        ("pixels=1000000,250000 temperature=0", {"pixels": (1000000, 250000), "temperature": (0.0,)}),
        ('system="Be brief, please.", "", Kind', {"system": ("Be brief, please.", "", "Kind")}),
        ('prompt="a = b" , "1..3"', {"prompt": ("a = b", "1..3")}),
    ],
)
def test_typed_plans_are_read(text: str, axes: dict[str, tuple[int | float | str, ...]]) -> None:
    assert parse_plan(text) == Plan(axes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a list"),
        ("seed", "not a list"),
        ("seed=1,2 and more", "not a list"),
        ("seed=1", "2 to 64 requests, not 1"),
        ("seed=1..33 temperature=0,1", "2 to 64 requests, not 66"),
        ("seed=8..1", "not a range"),
        ("seed=1..99", "not a range of 2 to 64"),
        ("temperature=0..1", "must be a number"),
        ("image=sent,none pixels=1000", "can't be combined"),
        ("seed=1,2 seed=3", "twice"),
        ("seed=1,1.5", "whole number"),
        ("seed=1,,2", "not a list of values"),
        ("colour=1,2", "Can't fan out over"),
        ("temperature=0,2.5", "between 0 and 2"),
        ("temperature=nan,1", "between 0 and 2"),
        ("seed=1,2 temperature=99", "between 0 and 2"),
        ("seed=1,1", "different"),
        ("image=sent,red", "cannot be 'red'"),
        ("image=sent", "2 to 64 requests"),
        ("image=gray,grey", "different"),
        ("pixels=100,200", "from 784 on"),
        ("pixels=many,few", "whole number"),
        ('system="a,b', "not closed"),
    ],
)
def test_invalid_plans_are_refused(text: str, said: str) -> None:
    with pytest.raises(VlmtuiError, match=said):
        parse_plan(text)


def test_axes_make_a_request_for_each_combination_and_are_told_in_short() -> None:
    plan = parse_plan("temperature=0.7,1.2 seed=1..3 max_tokens=9")
    assert plan.title == "2 temperatures × 3 seeds · max tokens 9"
    assert plan.labels[3:] == [f"temperature 1.2 · seed {seed}" for seed in (1, 2, 3)]
    found = planned_specs(plan, SHAPES, [user_turn("Hi")], Sampling())
    values = [(one.sampling.temperature, one.sampling.seed, one.sampling.max_tokens) for one in found]
    assert values == [(temperature, seed, 9) for temperature in (0.7, 1.2) for seed in (1, 2, 3)]
    assert plan.where([0, 1, 2, 3, 5]) == "T 0.7: all seeds · T 1.2: seeds 1 3"
    assert parse_plan("seed=1..3").where([0, 2]) == "seeds 1 3"
    assert parse_plan('prompt="a","b" seed=1,2').where([3]) == "prompt 2: seed 2"


def test_requests_that_sample_share_a_seed_which_their_titles_tell() -> None:
    found = planned_specs(plan_of({"temperature": (0, 1, 2)}), SHAPES, [user_turn("Hi")], Sampling())
    greedy, *seeds = [one.sampling.seed for one in found]
    assert greedy is None and None not in seeds and len(set(seeds)) == 1


async def test_equal_answers_are_one_kind_with_its_probability() -> None:
    engine = await engine_of(["a ", "red"], ["a ", "blue"], ["a ", "red "], ["a ", "red"])
    fan = lanes(parse_plan("temperature=0.7,1 seed=1,2"), engine)
    assert [kind.lanes for kind in fan.kinds()] == [(0,), (1,), (2,), (3,)], "nothing is complete"
    await fan.lanes.run()
    red, blue = fan.kinds()
    assert (red.lanes, red.where) == ((0, 2, 3), "T 0.7: seed 1 · T 1: all seeds")
    assert (blue.lanes, blue.where) == ((1,), "T 0.7: seed 2")
    assert all(request.logprobs == 0 for request in engine.requests)
    known = [one.logprob for one in fan.lanes[0].answer.logprobs]
    assert red.logprob == sum(known) < 0
    assert fan.title(2) == "temperature 1 · seed 1"
    apart = lanes(parse_plan('prompt="a","b"'), await engine_of(["red"], ["red"]))
    await apart.lanes.run()
    assert [kind.lanes for kind in apart.kinds()] == [(0,), (1,)], "each prompt has its own answers"


def test_another_wording_keeps_the_images_in_place() -> None:
    composed = Turn("user", (Text("In "), Media(PICTURE), Text(" what?")))
    assert with_text(composed, "Which?").parts == (Media(PICTURE), Text("Which?"))
    after = Turn("user", (Text("What?"), Media(PICTURE)))
    assert with_text(after, "Which?").parts == (Text("Which?"), Media(PICTURE))


def test_fixed_values_hold_for_all_and_seeds_need_a_temperature() -> None:
    plan = plan_of({"seed": (1, 2), "temperature": (0.7,)})
    found = planned_specs(plan, SHAPES, [user_turn("Hi")], Sampling())
    assert [(one.label, one.sampling.seed, one.sampling.temperature) for one in found] == [
        ("seed 1", 1, 0.7), ("seed 2", 2, 0.7),
    ]  # fmt: skip
    assert not why_identical(plan, Sampling())
    assert "all answers will be the same" in why_identical(plan_of({"seed": (1, 2)}), Sampling())


async def test_all_lanes_run_at_once_with_the_whole_conversation() -> None:
    hold = asyncio.Event()
    answers: list[list[Step]] = [[f"{number} ", Hold(hold), "end"] for number in range(8)]
    engine = await engine_of(*answers)
    before = [user_turn("A", [PICTURE]), assistant_turn("B")]
    fan = lanes(plan_of({"seed": tuple(range(8))}), engine, *before, user_turn("C"))
    running = asyncio.ensure_future(fan.lanes.run())
    while not all(lane.answer.text for lane in fan.lanes):
        await asyncio.sleep(0)
    assert len(engine.requests) == 8
    assert fan.is_running
    hold.set()
    await running
    assert [lane.answer.text for lane in fan.lanes] == [f"{number} end" for number in range(8)]
    for request in engine.requests:
        assert isinstance(request.prompt, ChatPrompt)
        assert [turn.text for turn in request.prompt.turns] == ["A", "B", "C"]
    document = fan.document()
    assert [side.sampling["seed"] for side in document.sides] == list(range(8))
    assert document.attachments[0].sha256 == PICTURE.sha256


async def test_stopping_keeps_partial_answers_and_a_dead_engine_ends_all() -> None:
    hold = asyncio.Event()
    engine = await engine_of(["half ", Hold(hold)], ["whole"], ["so ", Hold(hold)])
    fan = lanes(plan_of({"seed": (1, 2, 3)}), engine)
    running = asyncio.ensure_future(fan.lanes.run())
    while fan.lanes[1].is_running or not fan.lanes[2].answer.text:
        await asyncio.sleep(0)
    await fan.lanes.stop()
    await running
    assert [lane.answer.text for lane in fan.lanes] == ["half ", "whole", "so "]
    assert [type(lane.answer.outcome) is Cancelled for lane in fan.lanes] == [True, False, True]
    assert [lane.has_failed for lane in fan.lanes] == [True, False, True]

    other = await engine_of(["a ", Die()], ["b ", Hold(hold)])
    dead = lanes(plan_of({"seed": (1, 2)}), other)
    await dead.lanes.run()
    assert all(isinstance(lane.answer.outcome, Failed) for lane in dead.lanes)


async def test_leaving_in_the_middle_cancels_every_request() -> None:
    engine = await engine_of(["a ", Hold(asyncio.Event())], ["b ", Hold(asyncio.Event())])
    fan = lanes(plan_of({"seed": (1, 2)}), engine)
    running = asyncio.ensure_future(fan.lanes.run())
    while not all(lane.answer.text for lane in fan.lanes):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(engine.cancelled) == 2
    assert not fan.is_running


async def test_each_answer_is_compared_with_the_base() -> None:
    engine = await engine_of(["a ", "red ", "circle"], ["a ", "blue ", "circle"], ["a ", "blue ", "circle"])
    fan = lanes(plan_of({"seed": (1, 2, 3)}), engine)
    assert fan.difference(1) is None, "nothing has ended"
    await fan.lanes.run()
    assert fan.difference(0) is None
    difference = fan.difference(1)
    assert difference is not None
    assert (difference.identical, difference.first_divergence) == (False, 1)
    fan.base = 1
    same = fan.difference(2)
    assert same is not None
    assert same.identical
    assert [side.label for side in fan.document().sides] == ["seed 2", "seed 1", "seed 3"]
