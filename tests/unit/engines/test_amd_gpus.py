"""AMD GPUs are found in sysfs: trees as the kernel writes them, rubbish, and the variables that choose among GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.amd_machines import amd_machine, use_vram, write_card
from vlmtui.cli import checks
from vlmtui.engine import machine
from vlmtui.engines import amd_gpus, amd_memory, hardware
from vlmtui.engines.amd_gpus import AmdGpu, AmdGpus, find_amd_gpus
from vlmtui.engines.amd_memory import amd_memory_of
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
    write_card(root, f"card{number}", address=address, **{name: text.strip() for name, text in files.items()})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four GPUs of which `card1` is the last on the bus, integrated graphics, an Intel card and a connector."""
    card(tmp_path, 1, "0000:c1:00.0", **MI300X | {"product_name": "fourth\n"})
    for number, name in ((2, "first"), (3, "second"), (10, "third")):
        files = MI300X | {"product_name": name, "unique_id": f"a1b2c3d4e5f60{min(number, 4) - 1:03}"}
        card(tmp_path, number, f"0000:{number:02x}:00.0", **files)
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
        ({"ROCR_VISIBLE_DEVICES": "GPU-a1b2c3d4e5f60003,GPU-A1B2C3D4E5F60002"}, "third second"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-a1b2c3d4e5f60003", "HIP_VISIBLE_DEVICES": "0"}, "third"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-1122334455667788"}, ""),
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
    for module in (amd_gpus, checks, hardware):
        monkeypatch.setattr(module, "find_amd_gpus", lambda _environment: found)
    monkeypatch.setattr(machine, "_nvidia_gpus", tuple)
    monkeypatch.setattr(checks, "_gpu_names", list)
    monkeypatch.setattr(hardware, "_find_nvidia", Hardware)
    assert machine.Machine.measure().describe() == "2 × AMD Instinct MI300X, 380 GiB free"
    assert checks.check_gpus().message.startswith("AMD Instinct MI300X, 190 of 192 GiB free; AMD")
    assert hardware.find_hardware().amd == ("AMD Instinct MI300X",) * 2


def test_gpus_that_cannot_compute_are_named_but_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = AmdGpus((AmdGpu("AMD Instinct MI300X", 190 * GIB, 192 * GIB),), can_compute=False)
    for module in (amd_gpus, checks):
        monkeypatch.setattr(module, "find_amd_gpus", lambda _environment: found)
    monkeypatch.setattr(machine, "_nvidia_gpus", tuple)
    monkeypatch.setattr(checks, "_gpu_names", list)
    assert machine.Machine.measure().gpus == ()
    check = checks.check_gpus()
    assert (check.status, "/dev/kfd" in check.message, "--device=/dev/kfd" in check.hint) == ("warn", True, True)


@pytest.mark.parametrize(
    ("machine", "gpus"),
    [
        ("desktop", [AmdGpu("AMD Radeon RX 6900 XT", 17163091968 - 668274688, 17163091968)]),
        ("old desktop", [AmdGpu("AMD Radeon RX Vega", 8573157376 - 16613376, 8573157376)]),
        ("laptop", []),  # graphics of the processor, to which firmware gave exactly 4 GiB
        ("server", [AmdGpu("AMD Instinct MI300X OAM", 206141652992 - 298143744, 206141652992)] * 4),
    ],
)
def test_recorded_machines(tmp_path: Path, machine: str, gpus: list[AmdGpu]) -> None:
    assert list(find_amd_gpus({}, amd_machine(tmp_path, machine)).gpus) == gpus


def test_the_memory_of_processes_is_what_rocms_driver_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amd_memory, "_sees_host_pids", lambda: True)
    assert amd_memory_of([7, 8], tmp_path) is None, "no driver"
    use_vram(tmp_path, 7, 5 * GIB, GIB)
    use_vram(tmp_path, 8, 2 * GIB)
    use_vram(tmp_path, 9, 40 * GIB)
    (tmp_path / "sys/class/kfd/kfd/proc/8/vram_9").write_text("rubbish\n")
    assert amd_memory_of([7, 8, 10], tmp_path) == 8 * GIB


def test_in_a_container_it_is_what_the_graphics_driver_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a PID of sysfs is one of the host's, and may be another process."""
    monkeypatch.setattr(amd_memory, "_sees_host_pids", lambda: False)
    use_vram(tmp_path, 7, 40 * GIB)

    def descriptor(pid: int, number: int, **fields: str) -> None:
        folder = tmp_path / f"proc/{pid}/fdinfo"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"drm-{name.replace('_', '-')}:\t{text}" for name, text in fields.items()]
        (folder / str(number)).write_text("\n".join(["pos:\t0", "flags:\t02100002", *lines, ""]))

    client = {"driver": "amdgpu", "client_id": "53", "pdev": "0000:05:00.0", "memory_vram": f"{3 * 2**20} KiB"}
    descriptor(7, 3, **client)
    descriptor(7, 4, **client)  # the same, opened twice
    descriptor(7, 5, **client | {"pdev": "0000:26:00.0", "memory_vram": f"{2**20} KiB"})
    descriptor(8, 3, **client | {"driver": "i915", "client_id": "54"})
    descriptor(8, 4, **client | {"client_id": "55", "memory_vram": "much"})
    descriptor(8, 5)
    assert amd_memory_of([7, 8, 10], tmp_path) == 4 * GIB
