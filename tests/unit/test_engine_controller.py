"""The life of the app's engine, without the app."""

from __future__ import annotations

import pytest

from tests.support.scripted_engine import ScriptedHost
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.ui.controllers.engine import EngineController, EngineState


async def loaded(host: ScriptedHost) -> EngineController:
    controller = EngineController(host, keep_alive_s=300.0, on_change=lambda: None)
    await controller.start(resolve(Registry.bundled(), "shapes"))
    assert controller.state is EngineState.READY
    return controller


@pytest.mark.parametrize(("clients", "ended"), [(1, True), (2, False)])
async def test_an_engine_that_others_use_too_is_only_left(clients: int, ended: bool) -> None:
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
