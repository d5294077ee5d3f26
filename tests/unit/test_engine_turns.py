"""Lanes on several engines: at once if memory allows, else one after the other."""

from __future__ import annotations

import msgspec

from tests.support.scripted_engine import ScriptedEngine
from tests.unit.test_lanes import TURNS, engine_of
from vlmtui.domain.generation import Cancelled, Failed
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.machine import GIB, Gpu, Machine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.replay import engine_of as engine_behind
from vlmtui.inspection.replay import from_json, to_json
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.fan_out import plan_of, planned_specs
from vlmtui.session.lanes import Lane, Lanes, answer_in_turns, find_engine
from vlmtui.session.models import memory_need

REGISTRY = Registry.bundled()
SHAPES = resolve(REGISTRY, "shapes")
NAMES = ("here", "here dtype=bfloat16", "here dtype=float16")
MODELS = [find_engine(name, SHAPES, REGISTRY, {}) for name in NAMES]


class Garage:
    """An EngineSource with memory for `places` engines, which logs its calls."""

    def __init__(self, places: int, broken: str = "") -> None:
        self.places, self.broken = places, broken
        self.held: list[ScriptedEngine] = []
        self.told: list[str] = []

    async def has_room(self, model: Model) -> bool:
        return len(self.held) < self.places

    async def open(self, model: Model) -> Engine:
        dtype = str(model.spec.engine_args.get("dtype", "own"))
        if dtype == self.broken:
            raise VlmtuiError(ErrorKind.OUT_OF_MEMORY, "Not enough memory.")
        self.told.append(f"load {dtype}")
        engine = await engine_of([dtype])
        assert engine.info is not None
        engine.info = msgspec.structs.replace(engine.info, dtype=dtype)
        self.held.append(engine)
        return engine

    async def make_room(self) -> None:
        self.told.append("unload")
        self.held.clear()


def lanes_of() -> Lanes:
    specs = planned_specs(plan_of({"engine": NAMES}), SHAPES.family, TURNS, Sampling())
    return Lanes([Lane(spec, None) for spec in specs])


async def run(garage: Garage, lanes: Lanes, names: dict[str, str] | None = None) -> list[str]:
    """Run the lanes; return their reasons for waiting, in order, without repetitions."""
    waited: list[str] = []

    def note(lane: Lane) -> None:
        if lane.answer.outcome is not None and lane.answer.text not in garage.told:
            garage.told.append(lane.answer.text)
        if lane.waits_for and lane.waits_for not in waited:
            waited.append(lane.waits_for)

    await answer_in_turns(lanes, MODELS, garage, note, names=names)
    return waited


async def test_engines_that_fit_are_loaded_before_any_answers() -> None:
    garage, lanes = Garage(3), lanes_of()
    await run(garage, lanes)
    assert garage.told[:3] == ["load own", "load bfloat16", "load float16"]
    assert sorted(garage.told[3:]) == ["bfloat16", "float16", "own"]


async def test_without_memory_each_engine_answers_before_the_next_is_loaded() -> None:
    garage, lanes = Garage(1), lanes_of()
    waited = await run(garage, lanes)
    steps = ["load own", "own", "unload", "load bfloat16", "bfloat16", "unload", "load float16", "float16"]
    assert garage.told == steps
    assert waited[1:3] == ["memory: it loads after the answers before it", "here dtype=bfloat16 to load"]
    assert [lane.answer.text for lane in lanes] == ["own", "bfloat16", "float16"]


async def test_a_waiting_lane_names_the_engine() -> None:
    waited = await run(Garage(1), lanes_of(), {NAMES[1]: "the large one"})
    assert "the large one to load" in waited and f"{NAMES[2]} to load" in waited


async def test_every_answer_keeps_its_engine_in_the_document() -> None:
    garage, lanes = Garage(2), lanes_of()
    await run(garage, lanes)
    document = from_json(to_json(lanes.document()))
    assert [engine_behind(document, side).dtype for side in document.sides] == ["own", "bfloat16", "float16"]
    assert [side.label for side in document.sides] == list(NAMES)


async def test_an_engine_that_cannot_be_loaded_fails_its_own_answer() -> None:
    garage, lanes = Garage(3, broken="bfloat16"), lanes_of()
    await run(garage, lanes)
    failed = lanes[1].answer.outcome
    assert isinstance(failed, Failed) and failed.failure.kind is ErrorKind.OUT_OF_MEMORY
    assert [lanes[at].answer.text for at in (0, 2)] == ["own", "float16"]


async def test_an_answer_stopped_while_it_waits_loads_nothing() -> None:
    garage, lanes = Garage(1), lanes_of()
    await lanes[1].stop()
    await lanes[2].stop()
    await run(garage, lanes)
    assert garage.told[:2] == ["load own", "own"] and "load bfloat16" not in garage.told
    assert isinstance(lanes[1].answer.outcome, Cancelled)


def test_the_memory_of_all_engines_to_load_is_added_up() -> None:
    large = resolve(REGISTRY, "qwen2_vl")
    alone = memory_need([large], Machine((), 64 * GIB))
    assert alone.fits and "Needs about" in alone.text and "64 GiB RAM free" in alone.text
    assert not memory_need([large] * 8, Machine((), 30 * GIB)).fits
    assert not memory_need([large], Machine((Gpu("H100", 30 * GIB, 80 * GIB),), 64 * GIB)).fits
