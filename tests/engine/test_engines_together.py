"""Two real engines answer one message: at once, and one after the other where memory allows one."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.hosts import patient_host
from vlmtui.config.trust import TrustStore
from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.machine import GIB, Machine
from vlmtui.inspection.build import fingerprint_of
from vlmtui.media.stage import stage
from vlmtui.paths import Paths, bundled
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.engine_lanes import LaneEngines, engines_of
from vlmtui.session.fan_out import FanOut
from vlmtui.session.lane_plan import plan_of
from vlmtui.session.model_switch import memory_need

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]
HALF = "here dtype=bfloat16"
PLAN = plan_of("engine", ("here", HALF))


@pytest.fixture
async def host() -> AsyncIterator[WorkerHost]:
    """A host in folders of its own, whose workers end with the test."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-") as folder:
        found = patient_host(Paths.below(Path(folder)))
        yield found
        for worker in await found.workers.find_all():
            await found.workers.stop(worker.endpoint)


def fan_out(controller: EngineController, engines: LaneEngines, folder: Path) -> FanOut:
    assert controller.engine is not None
    picture = stage(bundled("samples") / "circle.png", Paths.below(folder).media)
    turn = Turn("user", (Media(picture), Text("What is this?")))
    family = controller.require_model().family
    return FanOut(PLAN, family, [turn], Sampling(max_tokens=24), controller.engine, engines=engines)


async def test_two_dtypes_answer_at_once_and_one_after_the_other(
    host: WorkerHost, shapes: Model, tmp_path: Path
) -> None:
    controller = EngineController(host, keep_alive_s=0, on_change=lambda: None)
    await controller.start(shapes)
    assert controller.error is None, controller.error
    unloaded: list[Model] = []
    trust = TrustStore(Paths.below(tmp_path))

    async def engines() -> LaneEngines:
        return await engines_of(PLAN, controller, Registry.bundled(), {}, trust, unloaded.append)

    together = await engines()
    asked = fan_out(controller, together, tmp_path)
    await asked.run()
    assert [lane.answer.text for lane in asked.lanes] == ["A red circle in the center."] * 2
    records = [fingerprint_of(lane.info) for lane in asked.lanes if lane.info is not None]
    assert [one.dtype.removeprefix("torch.") for one in records] == ["float32", "bfloat16"]
    assert len(await host.running()) == 2 and not unloaded
    prompts = [lane.answer.prompt for lane in asked.lanes]
    assert prompts[0] is not None and prompts[1] is not None and prompts[0].token_ids == prompts[1].token_ids

    await controller.make_room()
    await controller.return_to(shapes)
    assert [one.spec for one in await host.running()] == [shapes.spec]
    turns = await engines()
    turns.one_by_one = not memory_need(turns.to_load, Machine((), GIB // 4)).fits
    assert turns.one_by_one
    asked = fan_out(controller, turns, tmp_path)
    await asked.run()
    assert [lane.answer.text for lane in asked.lanes] == ["A red circle in the center."] * 2
    assert unloaded == [shapes]
    assert [one.spec.engine_args["dtype"] for one in await host.running()] == ["bfloat16"]
    await controller.return_to(unloaded[0])
    assert [one.spec for one in await host.running()] == [shapes.spec]
    await controller.abort()
