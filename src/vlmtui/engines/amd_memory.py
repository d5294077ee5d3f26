"""Tells how much memory of AMD GPUs processes use, as the kernel's drivers count it. Uses only the standard library.

ROCm's driver: `/sys/class/kfd/kfd/proc/PID/vram_ID`, bytes for each GPU, with the PIDs of the host. In a container with
PIDs of its own: `/proc/PID/fdinfo/*` of the graphics driver (docs.kernel.org, "DRM client usage stats").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from vlmtui.engines import amd_gpus

_INITIAL_PIDS = 0xEFFFFFFC
"""The inode of the host's namespace of PIDs (Linux, `PROC_PID_INIT_INO`)."""
_FILE_MAX = 65536
_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_FIELD = re.compile(r"^(drm-[a-z-]+):\s*(\S+)(?: (\w+))?\s*$", re.MULTILINE)


def amd_memory_of(pids: Iterable[int], root: Path | None = None) -> int | None:
    """Return the bytes that these processes use on AMD GPUs; None without ROCm's driver. Takes milliseconds."""
    root = amd_gpus.ROOT if root is None else root
    processes = root / "sys/class/kfd/kfd/proc"
    if not processes.is_dir():
        return None
    if _sees_host_pids():
        return sum(_number(file) for pid in pids for file in (processes / str(pid)).glob("vram_*"))
    return sum(_clients(root / "proc", pids).values())


def _sees_host_pids() -> bool:
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino == _INITIAL_PIDS
    return False


def _clients(processes: Path, pids: Iterable[int]) -> dict[tuple[str, str], int]:
    """Return the bytes of each client of the driver. Descriptors, and processes, may share a client."""
    found: dict[tuple[str, str], int] = {}
    for pid in pids:
        for file in _files(processes / str(pid) / "fdinfo"):
            fields = {name: (value, unit or "") for name, value, unit in _FIELD.findall(_text(file))}
            driver, _ = fields.get("drm-driver", ("", ""))
            value, unit = fields.get("drm-memory-vram", ("", ""))
            if driver == "amdgpu" and re.fullmatch(r"[0-9]{1,18}", value) and unit in _UNITS:
                client = (fields.get("drm-pdev", ("", ""))[0], fields.get("drm-client-id", (str(file), ""))[0])
                found[client] = int(value) * _UNITS[unit]
    return found


def _files(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from folder.iterdir()


def _number(file: Path) -> int:
    text = _text(file).strip()
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_FILE_MAX).decode(errors="replace")
    except OSError:
        return ""
