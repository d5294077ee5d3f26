"""The app's engines without the app: loads, deaths, hangs, restarts, and engines beside the current one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.support.scripted_engine import DEFAULT_LOAD, Hold, ScriptedEngine, ScriptedHost
from vlmtui.domain.engine import REMOTE_BACKEND, EngineStatus, LoadFailed, LoadSpec
from vlmtui.domain.generation import Failure
from vlmtui.engine.interface import EngineStopped
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.engines import AppEngines, EngineState


async def loaded(host: ScriptedHost, *, hang_s: float = 30.0, forget_death_s: float = 600.0) -> AppEngines:
    controller = AppEngines(
        host,
        keep_alive_s=300.0,
        on_change=lambda: None,
        hang_s=hang_s,
        look_every_s=0.001,
        forget_death_s=forget_death_s,
    )
    await controller.start(resolve(Registry.bundled(), "shapes"))
    assert controller.state is EngineState.READY
    return controller


@pytest.mark.parametrize(("clients", "ended"), [(1, True), (2, False)])
async def test_an_engine_with_other_clients_is_only_disconnected(clients: int, ended: bool) -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    host.engine.clients = clients
    await controller.abort()
    assert host.engine.was_shut_down is ended
    assert not host.engine.alive
    assert controller.state is EngineState.NONE


async def test_leaving_a_ready_engine_keeps_it() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    assert await controller.leave()
    assert not host.engine.was_shut_down


@asynccontextmanager
async def watching(controller: AppEngines) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(controller.watch())
    yield task
    task.cancel()
    await asyncio.wait([task])


def message_of(controller: AppEngines) -> str:
    return controller.error.message if controller.error else ""


def is_ready_again(controller: AppEngines, host: ScriptedHost, engines: int) -> bool:
    return len(host.engines) == engines and controller.state is EngineState.READY


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_dead_engine_is_restarted_once() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    async with watching(controller) as watch:
        host.engine.die("Killed.")
        await until(lambda: len(host.engines) == 2 and controller.state is EngineState.READY)
        assert controller.deaths == 1
        assert message_of(controller) == ""
        host.engine.die("Killed again.")
        await watch
    assert controller.state is EngineState.DEAD
    assert message_of(controller) == "Killed again."
    assert (len(host.engines), controller.deaths) == (2, 2)


async def test_an_engine_that_somebody_stopped_is_not_loaded_again() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    async with watching(controller) as watch:
        host.engine.leave(EngineStopped("shapes"))
        await watch
    assert (controller.state, message_of(controller)) == (EngineState.DEAD, "shapes was stopped.")
    assert len(host.engines) == 1


async def test_a_restart_ends_an_engine_that_others_use_too() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    shared = host.engine
    shared.clients = 2
    assert await controller.start(resolve(Registry.bundled(), "shapes"))
    assert shared.was_shut_down
    assert len(host.engines) == 2


@pytest.mark.parametrize("forgiven", ["answered", "long ago"])
async def test_an_old_death_does_not_count(forgiven: str) -> None:
    host = ScriptedHost()
    controller = await loaded(host, forget_death_s=-1.0 if forgiven == "long ago" else 600.0)
    async with watching(controller):
        for engines in (2, 3):
            host.engine.die()
            await until(partial(is_ready_again, controller, host, engines))
            if forgiven == "answered":
                controller.answered()


async def test_a_restart_that_fails_is_not_tried_again() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    async with watching(controller) as watch:
        host.refuse = VlmtuiError(ErrorKind.OUT_OF_MEMORY, "No room.")
        host.engine.die()
        await watch
    assert controller.state is EngineState.DEAD
    assert controller.error is host.refuse
    assert len(host.opened) == 2


async def test_an_engine_ended_by_the_user_stays_ended() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    async with watching(controller) as watch:
        await controller.abort()
        await watch
    assert (controller.state, controller.deaths, len(host.engines)) == (EngineState.NONE, 0, 1)


async def test_a_load_that_fails_is_not_tried_again() -> None:
    failure = Failure(kind=ErrorKind.OUT_OF_MEMORY, message="No room.")
    host = ScriptedHost(load=[LoadFailed(failure)])
    controller = AppEngines(host, keep_alive_s=300.0, on_change=lambda: None)
    await controller.start(resolve(Registry.bundled(), "shapes"))
    await controller.watch()
    assert controller.state is EngineState.DEAD
    assert (controller.deaths, len(host.engines)) == (0, 1)


@pytest.mark.parametrize("sign", ["server", "engine"])
async def test_an_engine_that_is_silent_for_too_long_hangs_until_it_answers_again(sign: str) -> None:
    host = ScriptedHost()
    controller = await loaded(host, hang_s=0.02)
    engine = host.engine
    async with watching(controller) as watch:
        if sign == "server":
            engine.hung = True
        else:
            engine.silent_s = 12.0
        await until(lambda: controller.state is EngineState.HUNG)
        assert controller.error is not None
        assert controller.error.kind is ErrorKind.ENGINE_DIED
        assert "has not answered for" in controller.error.message
        assert controller.error.remedy is Remedy.RESTART_ENGINE
        engine.hung, engine.silent_s = False, 0.0
        await until(lambda: controller.state is EngineState.READY)
        assert message_of(controller) == ""
        assert not watch.done()
    assert (len(host.engines), controller.deaths) == (1, 0), "a hang may pass: nothing is ended without being asked"


async def test_a_hung_engine_is_ended_by_a_restart() -> None:
    host = ScriptedHost()
    controller = await loaded(host, hang_s=0.02)
    hung = host.engine
    async with watching(controller) as watch:
        hung.hung = True
        await until(lambda: controller.state is EngineState.HUNG)
        assert controller.model is not None
        await controller.start(controller.model)
        await watch
    assert hung.was_shut_down
    assert controller.state is EngineState.READY
    assert controller.engine is host.engine is not hung


async def test_a_suspended_app_reports_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """After sleep or Ctrl+Z the first answer comes late, and the clock has advanced by hours."""
    host = ScriptedHost()
    states: list[EngineState] = []
    controller = await loaded(host, hang_s=30.0)
    clock = iter(range(0, 1_000_000, 10_000))
    monkeypatch.setattr("vlmtui.session.engines.time", SimpleNamespace(monotonic=lambda: next(clock)))
    late = 3

    async def status() -> EngineStatus:
        nonlocal late
        late -= 1
        states.append(controller.state)
        if late >= 0:
            raise VlmtuiError(ErrorKind.ENGINE_DIED, "Too late.")
        return host.engine.describe()

    monkeypatch.setattr(host.engine, "status", status)
    async with watching(controller):
        await until(lambda: len(states) > 5)
    assert set(states) == {EngineState.READY}


async def test_the_search_for_hangs_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ScriptedHost()
    controller = await loaded(host, hang_s=0)
    looks = 0

    async def status() -> EngineStatus:
        nonlocal looks
        looks += 1
        raise VlmtuiError(ErrorKind.ENGINE_DIED, "It does not answer.")

    monkeypatch.setattr(host.engine, "status", status)
    async with watching(controller):
        await until(lambda: looks > 50)
        assert controller.state is EngineState.READY


async def test_a_changed_model_is_told_once_and_restarting_loads_it() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    told: list[VlmtuiError] = []
    controller.on_outdated = told.append
    async with watching(controller):
        host.engine.changed = ("chat_template.jinja",)
        await until(lambda: bool(told))
        host.engine.changed = ("chat_template.jinja", "model.safetensors")
        await until(lambda: len(told) == 2)
        assert told[-1] is controller.outdated
        assert "since it was loaded: chat_template.jinja, model.safetensors." in told[-1].message
        assert told[-1].remedy is Remedy.RESTART_ENGINE
        host.engine.changed = ()
        await until(lambda: controller.outdated is None)
        host.engine.changed = ("chat_template.jinja",)
        await until(lambda: len(told) == 3)
        assert controller.model is not None and controller.state is EngineState.READY
        await controller.start(controller.model)
    assert host.engines[0].was_shut_down and len(host.engines) == 2
    assert controller.outdated is None


async def test_using_an_engine_looks_at_its_files_at_once() -> None:
    host = ScriptedHost()
    controller = AppEngines(host, keep_alive_s=300.0, on_change=lambda: None, look_every_s=1e6)
    await controller.start(resolve(Registry.bundled(), "shapes"))
    async with watching(controller):
        await until(lambda: not controller._look_now.is_set())
        host.engine.changed = ("model.safetensors",)
        controller.require_engine()
        await until(lambda: controller.outdated is not None)


async def test_a_changed_model_that_others_use_is_kept_and_told() -> None:
    host = ScriptedHost()
    told: list[VlmtuiError] = []
    host.refuse = VlmtuiError(ErrorKind.MODEL_CHANGED, "The files of shapes have changed.")
    controller = AppEngines(host, keep_alive_s=300.0, on_change=lambda: None)
    controller.on_outdated = told.append
    await controller.start(resolve(Registry.bundled(), "shapes"))
    assert controller.state is EngineState.READY
    assert told == [host.refuse] and controller.outdated is host.refuse
    await controller.open_beside(served("a"))
    assert told == [host.refuse, host.refuse]


@pytest.mark.parametrize(("clients", "loaded_again"), [(1, True), (2, False)])
async def test_an_engine_beside_that_is_outdated_is_loaded_again(clients: int, loaded_again: bool) -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    told: list[VlmtuiError] = []
    controller.on_outdated = told.append
    await controller.open_beside(served("a"))
    first = host.engine
    assert await controller.open_beside(served("a")) is first
    first.changed, first.clients = ("config.json",), clients
    assert (await controller.open_beside(served("a")) is first) is not loaded_again
    assert first.was_shut_down is loaded_again
    assert bool(told) is not loaded_again


def served(name: str) -> Model:
    """Return a model on a server."""
    shapes = resolve(Registry.bundled(), "shapes")
    spec = msgspec.structs.replace(
        shapes.spec, backend=REMOTE_BACKEND, name=f"{name} at box", model=name, engine_args={"url": "http://box"}
    )
    return msgspec.structs.replace(shapes, spec=spec)


async def test_an_engine_stays_loaded_beside_one_on_a_server() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    here, there = resolve(Registry.bundled(), "shapes"), served("qwen")
    await controller.start(there, keep_former=True)
    first, second = host.engines
    assert controller.models == (there, here)
    assert controller.engine is second and controller.engine_of(here) is first
    await controller.start(here, keep_former=True)
    assert (controller.state, controller.engine, controller.models) == (EngineState.READY, first, (here, there))
    assert len(host.opened) == 2, "nothing was loaded again"
    assert not first.was_shut_down and not second.was_shut_down
    assert await controller.leave()
    assert not first.was_shut_down and not second.was_shut_down
    assert len(controller.models) == 1


async def test_engines_beside_the_current_one_are_stopped_for_memory() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    there = served("qwen")
    await controller.start(there, keep_former=True)
    other = resolve(Registry.bundled(), "qwen3_vl")
    await controller.start(other)
    local, remote = host.engines[:2]
    assert local.was_shut_down and not remote.was_shut_down
    assert controller.models == (other, there)


async def test_two_models_on_this_machine_do_not_both_stay_loaded() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    other = resolve(Registry.bundled(), "qwen3_vl")
    await controller.start(other, keep_former=True)
    await until(lambda: host.engines[0].was_shut_down)
    assert controller.models == (other,)


async def test_an_engine_can_be_loaded_beside_the_current_one() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    there = served("qwen")
    engine = await controller.open_beside(there)
    assert await controller.open_beside(there) is engine
    assert controller.engine is host.engines[0]
    assert [model.spec.name for model in controller.models] == ["shapes", "qwen at box"]
    host.load_steps = [LoadFailed(failure=Failure.of(VlmtuiError(ErrorKind.NO_NETWORK, "Nothing listens.")))]
    with pytest.raises(VlmtuiError, match="Nothing listens"):
        await controller.open_beside(served("llava"))
    assert host.engines[-1].was_shut_down


async def test_an_engine_beside_that_has_died_is_forgotten_and_loaded_again() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    there = served("qwen2_vl")
    engine = await controller.open_beside(there)
    host.engine.die()
    await until(lambda: controller.engine_of(there) is None)
    assert await controller.open_beside(there) is not engine
    await controller.leave()


async def test_a_load_during_a_load_stops_the_first_and_waits_for_its_end() -> None:
    host = ScriptedHost(load=[Hold(asyncio.Event())])
    controller = AppEngines(host, keep_alive_s=300.0, on_change=lambda: None)
    first = asyncio.create_task(controller.start(resolve(Registry.bundled(), "shapes")))
    await until(lambda: len(host.engines) == 1)
    host.load_steps = list(DEFAULT_LOAD)
    assert await controller.start(other := resolve(Registry.bundled(), "qwen3_vl"))
    assert not await first
    assert host.engines[0].was_shut_down
    assert (controller.model, controller.state, controller.engine) == (other, EngineState.READY, host.engines[-1])


async def test_leaving_while_an_engine_loads_beside_stops_it() -> None:
    host = ScriptedHost()
    controller = await loaded(host)
    host.load_steps = [Hold(asyncio.Event())]
    beside = asyncio.create_task(controller.open_beside(served("qwen")))
    await until(lambda: len(host.engines) == 2)
    assert await controller.leave()
    assert host.engines[1].was_shut_down and not host.engines[0].was_shut_down
    with pytest.raises(VlmtuiError, match="not running"):
        await beside


class SlowHost(ScriptedHost):
    """A host whose engines take a random number of event loop turns to open, or fail."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance

    async def open(self, spec: LoadSpec, **others: Any) -> ScriptedEngine:
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(0)
        if self.chance.random() < 0.1:
            raise VlmtuiError(ErrorKind.OUT_OF_MEMORY, "No room.")
        engine = await super().open(spec, **others)
        engine.attached = False
        return engine


@pytest.mark.parametrize("seed", range(60))
async def test_no_order_of_loads_and_deaths_leaves_an_engine_without_owner(seed: int) -> None:
    chance = random.Random(seed)
    host = SlowHost(chance)
    controller = AppEngines(host, keep_alive_s=300.0, on_change=lambda: None, hang_s=0)
    models = [resolve(Registry.bundled(), name) for name in ("shapes", "qwen3_vl")] + [served("a"), served("b")]

    async def load(model: Model, *, keep_former: bool) -> None:
        if await controller.start(model, keep_former=keep_former):
            await controller.watch()

    async def go_back() -> None:
        if await controller.go_back():
            await controller.watch()

    async def beside(model: Model) -> None:
        with suppress(VlmtuiError):
            await controller.open_beside(model)

    def nothing_unowned() -> bool:
        owned = [controller.engine, *(one.engine for one in controller._beside)]
        owned += [controller._former.engine] if controller._former is not None else []
        return all(one in owned for one in host.engines if one.alive)

    tasks: list[asyncio.Task[None]] = []
    for _ in range(25):
        match chance.randrange(8):
            case 0 | 1 | 2:
                work = load(chance.choice(models), keep_former=chance.random() < 0.5)
                tasks.append(asyncio.create_task(work))
            case 3:
                tasks.append(asyncio.create_task(go_back()))
            case 4:
                tasks.append(asyncio.create_task(beside(chance.choice(models))))
            case 5:
                tasks.append(asyncio.create_task(chance.choice((controller.abort, controller.make_room))()))
            case 6 if alive := [one for one in host.engines if one.alive]:
                chance.choice(alive).die()
            case 7 if tasks:
                chance.choice(tasks).cancel()
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await until(nothing_unowned)
        stays = await controller.leave()
        left = [one for one in host.engines if not one.was_shut_down and one.alive]
        assert left == [], "each is stopped, or disconnected"
        assert stays is None or controller.state is EngineState.READY
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError), ended
