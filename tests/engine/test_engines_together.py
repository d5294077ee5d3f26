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
from vlmtui.session.engines import AppEngines
from vlmtui.session.fan_out import FanOut, plan_of
from vlmtui.session.lanes import LaneEngines, engines_of
from vlmtui.session.models import memory_need

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]
HALF = "here dtype=bfloat16"
ANSWER = "A red circle in the center."
PLAN = plan_of({"engine": ("here", HALF)})


@pytest.fixture
async def host() -> AsyncIterator[WorkerHost]:
    """A host in folders of its own, whose workers end with the test."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-") as folder:
        found = patient_host(Paths.below(Path(folder)))
        yield found
        for worker in await found.find_all():
            await found.stop(worker.endpoint)


def fan_out(controller: AppEngines, engines: LaneEngines, folder: Path) -> FanOut:
    assert controller.engine is not None
    picture = stage(bundled("samples") / "circle.png", Paths.below(folder).media)
    turn = Turn("user", (Media(picture), Text("What is this?")))
    family = controller.require_model().family
    return FanOut(PLAN, family, [turn], Sampling(max_tokens=24), controller.engine, engines=engines)


async def test_two_dtypes_are_compared_at_once_and_in_turn(host: WorkerHost, shapes: Model, tmp_path: Path) -> None:
    controller = AppEngines(host, keep_alive_s=0, on_change=lambda: None)
    await controller.start(shapes)
    assert controller.error is None, controller.error
    unloaded: list[Model] = []

    async def engines(names: dict[str, str], *, one_by_one: bool) -> LaneEngines:
        trust = TrustStore(Paths.below(tmp_path))
        found = await engines_of(names, controller, Registry.bundled(), {}, trust, unloaded.append)
        found.one_by_one = one_by_one and not memory_need(found.to_load, Machine((), GIB // 4)).fits
        assert found.one_by_one == one_by_one
        return found

    async def fanned_out(*, one_by_one: bool) -> None:
        names = PLAN.engines
        asked = fan_out(controller, await engines(names, one_by_one=one_by_one), tmp_path)
        await asked.run()
        assert [lane.answer.text for lane in asked.lanes] == [ANSWER] * 2
        records = [fingerprint_of(lane.info) for lane in asked.lanes if lane.info is not None]
        assert [one.dtype.removeprefix("torch.") for one in records] == ["float32", "bfloat16"]
        prompts = [lane.answer.prompt for lane in asked.lanes]
        assert prompts[0] is not None and prompts[1] is not None and prompts[0].token_ids == prompts[1].token_ids

    async def running() -> list[object]:
        return [one.spec.engine_args.get("dtype") for one in await host.running()]

    own = shapes.spec.engine_args.get("dtype")
    await fanned_out(one_by_one=False)
    assert len(await host.running()) == 2 and not unloaded

    await controller.make_room()
    await controller.return_to(shapes)
    assert await running() == [own]
    await fanned_out(one_by_one=True)
    assert (await running(), unloaded) == (["bfloat16"], [shapes])
    await controller.return_to(unloaded[0])
    assert await running() == [own]
    await controller.abort()
