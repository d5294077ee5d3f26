"""Questions and messages between the picker and a load."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import MakeApp, open_models
from vlmtui.config.trust import TrustStore
from vlmtui.engine.machine import GIB, Gpu, Machine
from vlmtui.paths import Paths
from vlmtui.registry import routes
from vlmtui.registry.loader import Registry
from vlmtui.registry.remote_code import RemoteCode
from vlmtui.ui.models.screen import ModelList, ModelsScreen
from vlmtui.ui.widgets.dialogs import ChoiceScreen

pytestmark = pytest.mark.usefixtures("plain_chat", "big_machine")


@pytest.fixture
def big_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine((Gpu("H", 79 * GIB, 80 * GIB),), 64 * GIB)
    monkeypatch.setattr(Machine, "measure", classmethod(lambda cls: machine))
    monkeypatch.setattr(routes, "vllm_version", lambda: "0.32.0")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


async def pick(app, pilot, name: str) -> None:  # type: ignore[no-untyped-def]
    """Type a model's name, wait until the machine is known, and choose it."""
    await open_models(pilot)
    await until(pilot, lambda: isinstance(app.screen, ModelsScreen) and app.screen.machine is not None)
    app.screen.query_one("#filter").value = name
    models = app.screen.query_one(ModelList)
    await until(pilot, lambda: models.chosen is not None and name in models.chosen.family.family)
    await pilot.press("enter")


async def test_foreign_code_runs_only_after_a_yes_that_is_remembered(make_app: MakeApp, tmp_path: Path) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host)
    async with app.run_test() as pilot:
        await pick(app, pilot, "internvl_chat")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))
        assert not host.opened
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))
        assert not host.opened
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("down", "enter")
        await until(pilot, lambda: bool(host.opened))
    assert host.opened[0][0].trust_remote_code
    assert TrustStore(Paths.below(tmp_path)).is_trusted(RemoteCode(model="OpenGVLab/InternVL3-2B"))


async def test_a_family_that_cannot_run_is_explained_and_not_loaded(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    known = Registry.bundled()["mllama"]
    routes_of_vllm = tuple(route for route in known.routes if route.engine == "vllm")
    closed = msgspec.structs.replace(known, routes=routes_of_vllm)
    app = make_app(host, registry=Registry({"mllama": closed}))
    async with app.run_test() as pilot:
        await pick(app, pilot, "mllama")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        assert "0.10.2" in str(app.screen.query_one(".text").render())
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))
    assert not host.opened


async def test_a_model_that_does_not_fit_offers_settings_that_do(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host)
    async with app.run_test() as pilot:
        await pick(app, pilot, "command_a_vision")
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("end", "enter")
        await until(pilot, lambda: bool(host.opened))
    assert host.opened[0][0].model == "CohereLabs/command-a-vision-07-2025"


async def test_an_initial_model_is_asked_about_too(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="ovis")
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, ChoiceScreen))
        await pilot.press("down", "enter")
        await until(pilot, lambda: bool(host.opened))
    assert host.opened[0][0].trust_remote_code
