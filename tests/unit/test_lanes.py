"""Lanes of one message: sent together, each with an outcome, and one document of all."""

from __future__ import annotations

import asyncio

from tests.support.scripted_engine import DEFAULT_SPEC, Hold, ScriptedEngine, Step
from vlmtui.domain.conversation import ChatPrompt, RawPrompt, user_turn
from vlmtui.domain.generation import Cancelled, Finished, GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.inspection.replay import from_json, to_json
from vlmtui.registry.loader import Registry
from vlmtui.session.fan_out import parse_plan, planned_specs
from vlmtui.session.generation import Answer
from vlmtui.session.lanes import InFlightRequest, Lane, Lanes, LaneSpec, lane_spec, recorded_specs

SHAPES = Registry.bundled()["shapes"]
TURNS = [user_turn("Hi")]


async def engine_of(*answers: list[Step]) -> ScriptedEngine:
    engine = ScriptedEngine(DEFAULT_SPEC, answers=answers)
    async for _ in engine.load():
        pass
    return engine


def specs(plan: str, sampling: Sampling | None = None) -> list[LaneSpec]:
    return planned_specs(parse_plan(plan), SHAPES, TURNS, sampling or Sampling())


async def test_each_lane_asks_its_own_engine() -> None:
    one, other = await engine_of(["one"]), await engine_of(["other"])
    first, second = specs("seed=1,2")
    lanes = Lanes([Lane(first, one), Lane(second, other)])
    await lanes.run()
    assert [lane.answer.text for lane in lanes] == ["one", "other"]
    assert (len(one.requests), len(other.requests)) == (1, 1)


async def test_changes_are_reported_until_each_lane_ends() -> None:
    engine = await engine_of(["a ", "b"], ["c"])
    lanes = Lanes([Lane(spec, engine) for spec in specs("seed=1,2")])
    told: list[tuple[str, str, bool]] = []
    await lanes.run(lambda lane: told.append((lane.spec.label, lane.answer.text, lane.is_running)))
    assert [one for one in told if one[0] == "seed 1"][-1] == ("seed 1", "a b", False)
    assert ("seed 1", "a ", True) in told
    assert [one for one in told if one[0] == "seed 2"][-1] == ("seed 2", "c", False)


async def test_a_lane_is_stopped_alone() -> None:
    hold = asyncio.Event()
    engine = await engine_of(["half ", Hold(asyncio.Event())], ["all ", Hold(hold), "of it"])
    lanes = Lanes([Lane(spec, engine) for spec in specs("seed=1,2")])
    running = asyncio.ensure_future(lanes.run())
    while not all(lane.answer.text for lane in lanes):
        await asyncio.sleep(0)
    await lanes[0].stop()
    while lanes[0].is_running:
        await asyncio.sleep(0)
    assert lanes.is_running
    hold.set()
    await running
    assert isinstance(lanes[0].answer.outcome, Cancelled) and isinstance(lanes[1].answer.outcome, Finished)


async def test_a_lane_is_sent_together_with_the_conversations_request() -> None:
    engine = await engine_of(["raw"])
    sent, over = asyncio.Event(), asyncio.Event()
    chat, raw = lane_spec(SHAPES, TURNS, Sampling()), lane_spec(SHAPES, TURNS, Sampling(), mode="raw")
    answer = Answer(chat.request.request_id)
    assert isinstance(chat.request, GenerateRequest)
    flight = InFlightRequest(chat.request, answer, sent.wait, over.wait)
    lanes = Lanes([Lane(chat, engine, flight), Lane(raw, engine)])
    running = asyncio.ensure_future(lanes.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert engine.requests == [], "the turn is not stored yet"
    sent.set()
    while lanes[1].is_running:
        await asyncio.sleep(0)
    assert not running.done(), "the conversation takes the other answer in"
    assert lanes[1].answer.outcome is not None
    answer.take(lanes[1].answer.outcome)
    over.set()
    await running
    assert lanes[0].answer is answer and len(engine.requests) == 1


async def test_a_document_names_its_parameter_and_repeats_its_plan() -> None:
    engine = await engine_of(["a"], ["b"], ["c"], ["d"])
    lanes = Lanes([Lane(spec, engine) for spec in specs("top_p=0.5,1 temperature=0.7", Sampling(seed=3))])
    await lanes.run()
    document = lanes.document()
    assert [(side.label, side.sampling) for side in document.sides] == [
        ("top-p 0.5", {"top_p": 0.5}),
        ("top-p 1", {"top_p": 1.0}),
    ]
    assert (document.sampling.temperature, document.sampling.seed) == (0.7, 3)
    again = Lanes([Lane(spec, engine) for spec in recorded_specs(document, {})])
    assert [lane.request.sampling for lane in again] == [lane.request.sampling for lane in lanes]
    await again.run()
    assert [side.label for side in again.document(first=1).sides] == ["top-p 1", "top-p 0.5"]


async def test_a_turn_is_sent_in_any_mode_or_as_a_raw_prompt() -> None:
    chat, made = lane_spec(SHAPES, TURNS, Sampling()), lane_spec(SHAPES, TURNS, Sampling(), mode="raw", logprobs=2)
    given = lane_spec(SHAPES, TURNS, Sampling(), mode="raw", raw=RawPrompt(text="as it is"))
    assert isinstance(chat.request.prompt, ChatPrompt) and isinstance(made.request.prompt, RawPrompt)
    assert isinstance(given.request.prompt, RawPrompt) and given.request.prompt.text == "as it is"
    assert made.request.logprobs == 2
    assert {one.request.sampling.stop_tokens for one in (chat, made, given)} == {SHAPES.stop_tokens}
    assert all(one.sampling == Sampling() for one in (chat, made, given))


async def test_a_document_repeats_lanes_that_differ_in_more_than_numbers() -> None:
    engine = await engine_of(["a"], ["b"], ["c"], ["d"])
    lanes = Lanes([Lane(spec, engine) for spec in specs("max_pixels=12544,28224")])
    await lanes.run()
    document = from_json(to_json(lanes.document()))
    assert document.sides[0].own is None and document.sides[1].own is not None
    again = Lanes([Lane(spec, engine) for spec in recorded_specs(document, {})])
    await again.run()
    asked = [request.sampling.extra["mm_processor_kwargs"] for request in engine.requests]
    assert asked == [{"max_pixels": 12544}, {"max_pixels": 28224}] * 2
