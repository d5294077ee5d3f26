"""AMD GPUs are found in sysfs: trees as the kernel writes them, rubbish, and the variables that choose among GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlmtui.cli import checks
from vlmtui.engine import machine
from vlmtui.engines import hardware
from vlmtui.engines.amd_gpus import AmdGpu, AmdGpus, find_amd_gpus
from vlmtui.engines.hardware import Hardware

GIB = 2**30
MI300X = {
    "vendor": "0x1002\n",
    "device": "0x74a1\n",
    "product_name": "AMD Instinct MI300X OAM\n",
    "mem_info_vram_total": "206141652992\n",
    "mem_info_vram_used": "298143744\n",
}


def card(root: Path, number: int, address: str, **files: str) -> None:
    """Write a card as sysfs has it: the folder `cardN` with a link `device` to the PCI device."""
    device = root / "sys/devices/pci0000:00" / address
    device.mkdir(parents=True)
    for name, text in files.items():
        (device / name).write_text(text, encoding="utf-8")
    folder = root / "sys/class/drm" / f"card{number}"
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(device)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four GPUs of which `card1` is the last on the bus, integrated graphics, an Intel card and a connector."""
    card(tmp_path, 1, "0000:c1:00.0", **MI300X | {"product_name": "fourth\n"})
    for number, name in ((2, "first"), (3, "second"), (10, "third")):
        card(tmp_path, number, f"0000:{number:02x}:00.0", **MI300X | {"product_name": f"{name}\n"})
    card(tmp_path, 4, "0000:f0:00.0", **MI300X | {"mem_info_vram_total": f"{GIB // 2}\n"})
    card(tmp_path, 5, "0000:f1:00.0", vendor="0x8086\n")
    (tmp_path / "sys/class/drm/card1-DP-1").mkdir()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    return tmp_path


def test_a_gpu_has_its_name_and_memory(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:05:00.0", **MI300X)
    gpu = AmdGpu("AMD Instinct MI300X OAM", 206141652992 - 298143744, 206141652992)
    assert find_amd_gpus({}, tmp_path) == AmdGpus((gpu,), can_compute=False)


def test_a_gpu_without_a_name_is_called_by_its_device(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:05:00.0", **MI300X | {"product_name": "\n"})
    assert [gpu.name for gpu in find_amd_gpus({}, tmp_path).gpus] == ["AMD GPU 0x74a1"]


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, "first second third fourth"),
        ({"HIP_VISIBLE_DEVICES": "3,0"}, "fourth first"),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, "second"),
        ({"CUDA_VISIBLE_DEVICES": "2"}, "third"),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, "fourth"),
        ({"HIP_VISIBLE_DEVICES": ""}, ""),
        ({"HIP_VISIBLE_DEVICES": "1,9,0"}, "second"),
        ({"HIP_VISIBLE_DEVICES": "-1"}, ""),
        ({"ROCR_VISIBLE_DEVICES": "GPU-1122334455667788"}, "first second third fourth"),
    ],
)
def test_the_environment_chooses_among_gpus(root: Path, environment: dict[str, str], names: str) -> None:
    found = find_amd_gpus(environment, root)
    assert [gpu.name for gpu in found.gpus] == [f"AMD {name}" for name in names.split()]
    assert found.can_compute


@pytest.mark.parametrize(
    "wrong",
    [
        {"mem_info_vram_total": "much\n"},
        {"mem_info_vram_used": "-1\n"},
        {"mem_info_vram_total": "9" * 5000},
        {"mem_info_vram_total": "²\n"},
        {"vendor": "0x10de\n"},
    ],
)
def test_what_cannot_be_read_is_no_gpu(tmp_path: Path, wrong: dict[str, str]) -> None:
    card(tmp_path, 0, "0000:05:00.0", **MI300X | wrong)
    assert find_amd_gpus({}, tmp_path).gpus == ()


def test_a_name_sends_nothing_to_the_terminal(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:05:00.0", **MI300X | {"product_name": "MI\x1b[31m300\u202e\n"})
    assert find_amd_gpus({}, tmp_path).gpus[0].name == "AMD MI[31m300"


def test_more_used_than_there_is_leaves_nothing_free(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:05:00.0", **MI300X | {"mem_info_vram_used": "306141652992\n"})
    assert find_amd_gpus({}, tmp_path).gpus[0].free == 0


def test_set_up_says_what_to_do_with_amd_gpus() -> None:
    two = Hardware(amd=("AMD Instinct MI300X", "AMD Instinct MI300X"))
    assert two.variant == "cpu"
    assert two.describe().startswith(
        "2 × AMD Instinct MI300X, for which vlmtui installs no build: install vLLM for ROCm"
    )
    without = two._replace(has_kfd=False).describe()
    assert "no /dev/kfd. Install ROCm's driver" in without


def test_memory_doctor_and_set_up_know_amd_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    found = AmdGpus((AmdGpu("AMD Instinct MI300X", 190 * GIB, 192 * GIB),) * 2)
    for module in (machine, checks, hardware):
        monkeypatch.setattr(module, "find_amd_gpus", lambda _environment: found)
    monkeypatch.setattr(machine, "_nvidia_gpus", tuple)
    monkeypatch.setattr(checks, "_gpu_names", list)
    monkeypatch.setattr(hardware, "_find_nvidia", Hardware)
    assert machine.Machine.measure().describe() == "2 × AMD Instinct MI300X, 380 GiB free"
    assert checks.check_gpus().message.startswith("AMD Instinct MI300X, 190 of 192 GiB free; AMD")
    assert hardware.find_hardware().amd == ("AMD Instinct MI300X",) * 2


def test_gpus_that_cannot_compute_are_named_but_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = AmdGpus((AmdGpu("AMD Instinct MI300X", 190 * GIB, 192 * GIB),), can_compute=False)
    for module in (machine, checks):
        monkeypatch.setattr(module, "find_amd_gpus", lambda _environment: found)
    monkeypatch.setattr(machine, "_nvidia_gpus", tuple)
    monkeypatch.setattr(checks, "_gpu_names", list)
    assert machine.Machine.measure().gpus == ()
    check = checks.check_gpus()
    assert (check.status, "/dev/kfd" in check.message, "--device=/dev/kfd" in check.hint) == ("warn", True, True)
