"""Finds AMD GPUs and their memory in sysfs, as the kernel's `amdgpu` driver writes it. Uses only the standard library.

Files: `/sys/class/drm/cardN/device/{vendor,device,product_name,mem_info_vram_total,mem_info_vram_used}`
(docs.kernel.org, "GPU Driver Misc Information"). `/dev/kfd` is ROCm's door to the GPUs: without it none can compute.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_VENDOR = "0x1002"
_INTEGRATED_MAX = 4 * 2**30
"""Bytes. Below it the memory is what firmware set aside for a processor's own graphics, which no model fits in."""
_FILE_MAX = 4096
_LISTS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Read in this order, each counting within what the one before it left; HIP takes CUDA's where its own is not set."""


class AmdGpu(NamedTuple):
    """One AMD GPU. Sizes in bytes."""

    name: str
    free: int
    total: int


class AmdGpus(NamedTuple):
    """The AMD GPUs that a program started here would see."""

    gpus: tuple[AmdGpu, ...] = ()
    can_compute: bool = True
    """Whether `/dev/kfd` exists. It is absent without ROCm's driver, and in a container without `--device=/dev/kfd`."""


def find_amd_gpus(environment: Mapping[str, str], root: Path = Path("/")) -> AmdGpus:
    """Read the GPUs below `root`, in the order of their PCI addresses. A card that cannot be read is left out."""
    cards = [card for card in root.glob("sys/class/drm/card*") if re.fullmatch(r"card\d+", card.name)]
    cards.sort(key=lambda card: ((card / "device").resolve().name, int(card.name[4:])))
    found = [gpu for card in cards if (gpu := _read_gpu(card / "device")) is not None]
    return AmdGpus(_visible_of(found, environment), (root / "dev/kfd").exists())


def _read_gpu(folder: Path) -> AmdGpu | None:
    if _read(folder / "vendor") != _VENDOR:
        return None
    total, used = _bytes(_read(folder / "mem_info_vram_total")), _bytes(_read(folder / "mem_info_vram_used"))
    if total is None or used is None or total < _INTEGRATED_MAX:
        return None
    name = _read(folder / "product_name") or f"AMD GPU {_read(folder / 'device')}".rstrip()
    return AmdGpu(name if name.startswith("AMD") else f"AMD {name}", max(0, total - used), total)


def _visible_of(gpus: list[AmdGpu], environment: Mapping[str, str]) -> tuple[AmdGpu, ...]:
    rocr, hip, cuda = (environment.get(name) for name in _LISTS)
    for text in (rocr, hip if hip is not None else cuda):
        if text is not None:
            gpus = _chosen(gpus, text)
    return tuple(gpus)


def _chosen(gpus: list[AmdGpu], text: str) -> list[AmdGpu]:
    """Return the GPUs of a list such as `0,2`. As for HIP, the first number that is none of a GPU ends it. GPUs named
    by `GPU-<unique id>` cannot be told apart here: all stay."""
    if "GPU-" in text:
        return gpus
    chosen: list[AmdGpu] = []
    for word in text.split(","):
        number = word.strip()
        if not re.fullmatch(r"[0-9]{1,4}", number) or int(number) >= len(gpus):
            break
        chosen.append(gpus[int(number)])
    return chosen


def _bytes(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _read(file: Path) -> str:
    """Return a sysfs file's text in one printable line; empty if it cannot be read."""
    try:
        with file.open("rb") as stream:
            text = stream.read(_FILE_MAX).decode(errors="replace")
    except OSError:
        return ""
    return "".join(char for char in text.strip() if char.isprintable())[:200]
