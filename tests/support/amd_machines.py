"""Machines with AMD GPUs: trees of sysfs as recorded, below a folder."""

from __future__ import annotations

import json
from pathlib import Path

_RECORDED = json.loads((Path(__file__).parents[1] / "data/amd_machines.json").read_text(encoding="utf-8"))


def amd_machine(folder: Path, name: str) -> Path:
    """Write the tree of a machine (`desktop`, `old desktop`, `laptop`, `server`), and return its root."""
    for card, files in _RECORDED["machines"][name].items():
        write_card(folder, card, **files)
    table = folder / "usr/share/libdrm/amdgpu.ids"
    table.parent.mkdir(parents=True)
    table.write_text("".join(f"{line}\n" for line in _RECORDED["amdgpu.ids"]))
    (folder / "dev").mkdir()
    (folder / "dev/kfd").touch()
    return folder


def write_card(root: Path, card: str, *, address: str, **files: str) -> None:
    """Write a card as sysfs has it: the folder `cardN` with a link `device` to the PCI device at that address."""
    device = root / "sys/devices/pci0000:00" / address
    device.mkdir(parents=True)
    for name, text in files.items():
        (device / name).write_text(f"{text}\n", encoding="utf-8")
    folder = root / "sys/class/drm" / card
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(device)


def use_vram(root: Path, pid: int, *sizes: int) -> None:
    """Have ROCm's driver say that a process uses so many bytes on each GPU."""
    folder = root / "sys/class/kfd/kfd/proc" / str(pid)
    folder.mkdir(parents=True)
    for number, size in enumerate(sizes):
        (folder / f"vram_{51545 + number}").write_text(f"{size}\n")
