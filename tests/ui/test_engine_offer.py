"""Where no engine is: the offer to install one, its progress, and its end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from textual.app import App
from textual.widgets import OptionList, Static

from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import MakeApp
from vlmtui.domain.engine import LoadSpec
from vlmtui.engines.hardware import Hardware
from vlmtui.paths import Paths
from vlmtui.ui.models import engine_offer
from vlmtui.ui.models.engine_offer import EngineOfferScreen

OLD_DRIVER = Hardware(("NVIDIA A10",), "470.82.01")
PROGRESS = '{"stage": "Install", "detail": "torch 500 MiB", "fraction": 0.25}'


def program(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run this instead of the installation."""
    monkeypatch.setattr(engine_offer, "install_command", lambda variant: [sys.executable, "-c", code])


class OfferApp(App[None]):
    def __init__(self, folder: Path, spec: LoadSpec | None = None) -> None:
        super().__init__()
        self.offer = EngineOfferScreen(Paths.below(folder), spec)
        self.given: list[bool | None] = []

    def on_mount(self) -> None:
        self.push_screen(self.offer, self.given.append)

    def text(self, widget: str) -> str:
        return str(self.offer.query_one(widget, Static).content)

    @property
    def options(self) -> OptionList:
        return self.offer.query_one("#options", OptionList)


async def test_it_says_what_was_found_and_a_driver_that_is_too_old_gets_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_offer, "find_hardware", lambda: OLD_DRIVER)
    app = OfferApp(tmp_path)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.options.option_count == 2)
        assert "NVIDIA A10, driver 470.82.01, too old for CUDA 13, which needs 580" in app.text("#text")
        assert str(tmp_path / "data" / "engines") in app.text("#text")
        assert "for the CPU" in str(app.options.get_option_at_index(0).prompt)
        await pilot.press("escape")
        await until(pilot, lambda: app.given == [False])


async def test_a_model_of_another_version_is_told_what_its_engine_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_offer, "find_hardware", lambda: Hardware())
    app = OfferApp(tmp_path, LoadSpec(model="m", name="Qwen-VL", backend="pinned", pinned="0.23.0"))
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.options.option_count == 2)
        assert app.text("#title") == "vLLM 0.23.0 is not installed"
        assert "Qwen-VL runs in vLLM 0.23.0, which gets an environment of its own." in app.text("#text")
        offered = str(app.options.get_option_at_index(0).prompt)
        assert offered.startswith("Install vLLM 0.23.0 for the CPU: 2.6 GB (or 6, with PyPI's PyTorch)")
        assert engine_offer.install_command(app.offer.variants[0])[-2:] == ["0.23.0-cpu", "--json"]


async def test_its_progress_is_shown_and_its_end_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_offer, "find_hardware", lambda: Hardware())
    go = tmp_path / "go"
    program(
        f"import os, time; print('{PROGRESS}', flush=True)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        'print(\'{"installed": "vllm-0"}\')',
        monkeypatch,
    )
    app = OfferApp(tmp_path)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.options.option_count == 2)
        await pilot.press("enter")
        await until(pilot, lambda: "25%" in app.text("#progress"))
        assert "torch 500 MiB" in app.text("#progress")
        go.touch()
        await until(pilot, lambda: app.given == [True])


async def test_escape_stops_it_and_a_failure_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_offer, "find_hardware", lambda: Hardware())
    program(f"import time; print('{PROGRESS}', flush=True); time.sleep(600)", monkeypatch)
    app = OfferApp(tmp_path)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.options.option_count == 2)
        await pilot.press("enter")
        await until(pilot, lambda: "25%" in app.text("#progress"))
        await pilot.press("escape")
        await until(pilot, lambda: bool(app.options.display))
        program("import sys; sys.exit('vlmtui: The disk is full.')", monkeypatch)
        await pilot.press("enter")
        await until(pilot, lambda: "The disk is full." in app.text("#text"))
        assert app.given == []


async def test_the_app_offers_it_before_a_load(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmtui.ui.lifecycle.model_loading.lacks_engine", lambda paths, model: True)
    monkeypatch.setattr(engine_offer, "find_hardware", lambda: Hardware())
    program('print(\'{"installed": "vllm-0"}\')', monkeypatch)
    looked: list[int] = []
    monkeypatch.setattr("vlmtui.ui.lifecycle.model_loading.forget_installed", lambda: looked.append(1))
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, EngineOfferScreen))
        await until(pilot, lambda: app.screen.query_one(OptionList).option_count == 2)
        assert not host.opened
        await pilot.press("enter")
        await until(pilot, lambda: bool(host.opened))
        assert looked
