"""Choosing over how many GPUs a model is spread, in the list of models."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import MakeApp
from vlmtui.engine.machine import GIB, Gpu, Machine
from vlmtui.registry import routes
from vlmtui.ui.app import ExitReport, VlmtuiApp
from vlmtui.ui.help.leader_screen import LeaderScreen
from vlmtui.ui.models.before_load import BeforeLoadScreen
from vlmtui.ui.models.model_list import ModelList
from vlmtui.ui.models.screen import ModelsScreen

pytestmark = pytest.mark.usefixtures("plain_chat")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Gpu]:
    """The machine's GPUs: two, unless a test takes one away."""
    found = [Gpu("H", 79 * GIB, 80 * GIB)] * 2
    monkeypatch.setattr(Machine, "measure", classmethod(lambda cls: Machine(tuple(found), 64 * GIB)))
    monkeypatch.setattr(routes, "vllm_version", lambda: "0.32.0")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return found


async def lead(app: VlmtuiApp, pilot: Pilot[ExitReport | None], name: str) -> None:
    """Highlight the model and press the leader, then G."""
    await until(pilot, lambda: isinstance(app.screen, ModelsScreen) and app.screen.machine is not None)
    app.screen.query_one("#filter").value = name  # type: ignore[attr-defined]
    models = app.screen.query_one(ModelList)
    await until(pilot, lambda: models.chosen is not None and name in models.chosen.family.family)
    await pilot.press("ctrl+x")
    await until(pilot, lambda: isinstance(app.screen, LeaderScreen))
    await pilot.press("G")


@pytest.mark.usefixtures("gpus")
async def test_the_chosen_layout_is_loaded(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host)
    async with app.run_test() as pilot:
        await lead(app, pilot, "qwen2_5_vl")
        await until(pilot, lambda: isinstance(app.screen, BeforeLoadScreen))
        options = app.screen.query_one(OptionList)
        labels = [str(options.get_option_at_index(at).prompt).partition(" · ")[0] for at in range(options.option_count)]
        assert labels == ["Back", "1 GPU", "DP 2", "TP 2"]
        await pilot.press("end", "enter")
        await until(pilot, lambda: bool(host.opened))
    arguments = host.opened[0][0].engine_args
    assert (arguments["tensor_parallel_size"], arguments["data_parallel_size"]) == (2, 1)


async def test_with_one_gpu_there_is_nothing_to_choose(make_app: MakeApp, gpus: list[Gpu]) -> None:
    del gpus[1:]
    host = ScriptedHost(load=[])
    app = make_app(host)
    async with app.run_test() as pilot:
        await lead(app, pilot, "qwen2_5_vl")
        await until(pilot, lambda: any("nothing to choose" in note.message for note in app._notifications))
        assert isinstance(app.screen, ModelsScreen)
    assert not host.opened
