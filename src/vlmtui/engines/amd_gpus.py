"""Finds AMD GPUs and their memory in sysfs, as the kernel's `amdgpu` driver writes it. Uses only the standard library.

Files: `/sys/class/drm/cardN/device/{vendor,device,revision,product_name,unique_id,mem_info_vram_total,
mem_info_vram_used}` (docs.kernel.org, "GPU Driver Misc Information"). `product_name` is empty but for cards of data
centres; libdrm's table `amdgpu.ids` names the others. `/dev/kfd` is ROCm's door to the GPUs: none computes without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_VENDOR = "0x1002"
ROOT = Path("/")
_INTEGRATED_MAX = 4 * 2**30
"""Bytes. Up to this the memory is what firmware set aside for a processor's own graphics, which no model fits in."""
_FILE_MAX = 4096
_NAME_TABLES = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids")
_TABLE_MAX = 1_000_000
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


class _Card(NamedTuple):
    """A GPU as sysfs has it, and what `ROCR_VISIBLE_DEVICES` calls it after `GPU-`; empty: unknown."""

    gpu: AmdGpu
    unique_id: str


def find_amd_gpus(environment: Mapping[str, str], root: Path | None = None) -> AmdGpus:
    """Read the GPUs below `root` (default: this machine's), in the order of their PCI addresses. A card that cannot be
    read is left out."""
    root = ROOT if root is None else root
    cards = [card for card in root.glob("sys/class/drm/card*") if re.fullmatch(r"card\d+", card.name)]
    cards.sort(key=lambda card: ((card / "device").resolve().name, int(card.name[4:])))
    found = [one for card in cards if (one := _read_card(card / "device", root)) is not None]
    return AmdGpus(_visible_of(found, environment), (root / "dev/kfd").exists())


def _read_card(folder: Path, root: Path) -> _Card | None:
    if _read(folder / "vendor") != _VENDOR:
        return None
    total, used = _bytes(_read(folder / "mem_info_vram_total")), _bytes(_read(folder / "mem_info_vram_used"))
    if total is None or used is None or total <= _INTEGRATED_MAX:
        return None
    device, revision = _read(folder / "device"), _read(folder / "revision")
    name = _read(folder / "product_name") or _listed_name(root, device, revision) or f"AMD GPU {device}".rstrip()
    gpu = AmdGpu(name if name.startswith("AMD") else f"AMD {name}", max(0, total - used), total)
    return _Card(gpu, _read(folder / "unique_id"))


def _listed_name(root: Path, device: str, revision: str) -> str:
    """Return the name in libdrm's table, of lines such as `73BF,<tab>C0,<tab>AMD Radeon RX 6900 XT`."""
    wanted = [part.removeprefix("0x").upper() for part in (device, revision)]
    for line in (line for table in _NAME_TABLES for line in _lines(root / table)):
        fields = [field.strip() for field in line.split(",", 2)]
        if fields[:2] == wanted and len(fields) == 3:
            return _printable(fields[2])
    return ""


def _visible_of(cards: list[_Card], environment: Mapping[str, str]) -> tuple[AmdGpu, ...]:
    rocr, hip, cuda = (environment.get(name) for name in _LISTS)
    for text in (rocr, hip if hip is not None else cuda):
        if text is not None:
            cards = _chosen(cards, text)
    return tuple(card.gpu for card in cards)


def _chosen(cards: list[_Card], text: str) -> list[_Card]:
    """Return the GPUs of a list such as `0,2` or `GPU-946d7e1ef9b172dd`. As for HIP, the first entry that is none of a
    GPU ends it."""
    chosen: list[_Card] = []
    for word in text.split(","):
        name = word.strip()
        if name.startswith("GPU-"):
            found = [card for card in cards if card.unique_id and card.unique_id == name[4:].lower()]
        else:
            found = cards[int(name) :][:1] if re.fullmatch(r"[0-9]{1,4}", name) else []
        if not found:
            break
        chosen += found
    return chosen


def _bytes(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _read(file: Path) -> str:
    """Return a sysfs file's text in one printable line; empty if it cannot be read."""
    return _printable(_text(file, _FILE_MAX).strip())


def _lines(file: Path) -> Iterator[str]:
    yield from _text(file, _TABLE_MAX).splitlines()


def _text(file: Path, bytes_max: int) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(bytes_max).decode(errors="replace")
    except OSError:
        return ""


def _printable(text: str) -> str:
    return "".join(char for char in text if char.isprintable())[:200]
