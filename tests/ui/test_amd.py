"""A machine with AMD GPUs, as recorded, through doctor, set-up, the list of models and the status line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.amd_machines import amd_machine, use_vram
from tests.support.command_line import opened
from tests.support.waiting import until
from tests.ui.conftest import MEASURE, StartChat
from tests.ui.test_engine_offer import OfferApp
from tests.worker.hosted import EchoEngine
from tests.worker.stage import ready, serving
from vlmtui.cli import engine_checks
from vlmtui.cli.checks import check_gpus, machine_checks
from vlmtui.domain.engine import LoadSpec
from vlmtui.engine.machine import Machine
from vlmtui.engines import amd_gpus, amd_memory
from vlmtui.paths import Paths
from vlmtui.registry import routes
from vlmtui.ui.chat.status_bar import StatusBar


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four MI300X, and no variable that chooses among them. Returns the root of its files."""
    root = amd_machine(tmp_path / "machine", "server")
    monkeypatch.setattr(amd_gpus, "ROOT", root)
    monkeypatch.setattr(Machine, "measure", MEASURE)
    monkeypatch.setattr(amd_memory, "_sees_host_pids", lambda: True)
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(routes, "vllm_version", lambda: "0.32.0")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return root


def test_doctor_tells_the_gpus_their_memory_and_what_to_install(
    tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_checks, "version", lambda package: "2.13.0+cpu")
    checks = {check.name: check for check in machine_checks(Paths.below(tmp_path / "home"))}
    assert checks["gpu"].message == "; ".join(["AMD Instinct MI300X OAM, 192 of 192 GiB free"] * 4)
    torch = checks["torch"]
    assert torch.status == "warn" and "a CPU build, though there is 4 × AMD Instinct MI300X OAM" in torch.message
    assert torch.hint.startswith("Install vLLM for ROCm") and "engines add" in torch.hint
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2")
    assert check_gpus().message == "AMD Instinct MI300X OAM, 192 of 192 GiB free"
    (server / "dev/kfd").unlink()
    assert (check_gpus().status, "--device=/dev/kfd" in check_gpus().hint) == ("warn", True)


async def test_set_up_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    app = OfferApp(tmp_path / "home")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.options.option_count == 2)
        said = app.text("#text")
        assert "Found: 4 × AMD Instinct MI300X OAM, for which vlmtui installs no build" in said
        assert "install vLLM for ROCm" in said and "vlmtui engines add PYTHON" in said
        assert "for the CPU" in str(app.options.get_option_at_index(0).prompt)


async def test_the_memory_of_an_engine_is_in_its_status_and_in_the_status_line(
    chatting: StartChat, short_path: Path, server: Path
) -> None:
    """The worker is this process here."""
    use_vram(server, os.getpid(), 21 * 10**9, 21 * 10**9)

    async def load(spec: LoadSpec) -> EchoEngine:
        return EchoEngine()

    async with serving(short_path, load) as stage:
        stage.server.pid = os.getpid()
        client = await ready(await stage.client())
        status = await client.status()
        await client.close()
    assert status.gpu_bytes == 42 * 10**9
    async with chatting(["Hello."]) as chat:
        assert "GB RAM" in str(chat.screen.query_one(StatusBar).content)
        chat.host.engine.gpu_bytes = status.gpu_bytes
        await chat.say("hello")
        await chat.until(lambda: "42.0 GB GPU" in str(chat.screen.query_one(StatusBar).content))


def test_serve_warns_of_gpus_that_are_not_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(tmp_path / "home", monkeypatch, capsys) as cli:
        ran = cli("serve", "qwen2_5_vl", "--tensor", "2")
        assert ran.code == 0 and "this machine has" not in ran.err
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
        assert "It needs 2 GPUs on each node; this machine has 1." in cli("serve", "qwen2_5_vl", "--tensor", "2").err


def test_the_laptops_graphics_are_no_gpu_for_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amd_gpus, "ROOT", amd_machine(tmp_path / "laptop", "laptop"))
    assert Machine.measure().describe().startswith("no GPU, ")
