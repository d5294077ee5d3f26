"""Detects GPUs and NVIDIA's driver using only the standard library."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from vlmtui.engines.variants import DRIVER
from vlmtui.processes import find_program

_KERNEL_MODULE = Path("/proc/driver/nvidia/version")
_ASK_TIMEOUT_S = 20.0


class Hardware(NamedTuple):
    """The hardware facts that determine which build of vLLM to install."""

    gpus: tuple[str, ...] = ()
    driver: str = ""
    """NVIDIA's driver version, such as `580.65.06`; empty if unknown."""

    @property
    def driver_is_new_enough(self) -> bool:
        """Whether this driver supports the CUDA build."""
        major = re.match(r"\d+", self.driver)
        return major is not None and int(major[0]) >= DRIVER

    @property
    def variant(self) -> str:
        """The name of the variant that fits."""
        return "cuda" if self.gpus and self.driver_is_new_enough else "cpu"

    @property
    def name(self) -> str:
        """The GPUs, such as `2 × NVIDIA H100`: the first's name stands for all. Empty without one."""
        return f"{len(self.gpus)} × {self.gpus[0]}" if len(self.gpus) > 1 else "".join(self.gpus)

    def describe(self) -> str:
        """Return the GPUs and the driver in one line."""
        if not self.gpus:
            return "no NVIDIA GPU"
        driver = f"driver {self.driver}" if self.driver else "driver unknown"
        if not self.driver_is_new_enough:
            driver += f", too old for CUDA 13, which needs {DRIVER}"
        return f"{self.name}, {driver}"


def find_hardware() -> Hardware:
    """Query `nvidia-smi`, or the kernel driver if it is not installed. Takes about a second."""
    if program := find_program("nvidia-smi"):
        command = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
        try:
            asked = subprocess.run(
                command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False, cwd=os.sep
            )
        except (OSError, subprocess.TimeoutExpired):
            return Hardware()
        rows = [line.rpartition(",") for line in asked.stdout.splitlines()] if asked.returncode == 0 else []
        found = [(name.strip(), driver.strip()) for name, comma, driver in rows if comma]
        return Hardware(tuple(name for name, _ in found), found[0][1]) if found else Hardware()
    if Path("/dev/nvidia0").exists() and _KERNEL_MODULE.exists():
        version = re.search(r"\b(\d{3,}\.\d[\d.]*)", _KERNEL_MODULE.read_text(encoding="utf-8", errors="replace"))
        return Hardware(("NVIDIA GPU",), version[1] if version else "")
    return Hardware()
