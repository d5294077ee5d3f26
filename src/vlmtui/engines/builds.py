"""The builds of vLLM that can be installed, their locks, and the GPUs that decide between them.

0.23.0, which several families need, has locks of its own. Any other version than the current one has none: for CUDA,
uv finds what it needs. Uses only the standard library, as `tools/setup_env.py` does.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from vlmtui.errors import bad_input
from vlmtui.processes import find_program

LOCKS = Path(__file__).with_name("locks")
UV_LOCK = LOCKS / "uv.txt"
VLLM = "0.32.0"
TORCH = "2.13.0"
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)
DRIVER = 580
"""The oldest driver of NVIDIA that the CUDA build runs with, by its major version."""
_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){1,3}")


class EngineBuild(NamedTuple):
    """A build of vLLM."""

    variant: str
    """`cpu` or `cuda`."""
    version: str
    disk_gb: float
    """Size of the finished environment at most, in GB (1e9 bytes)."""
    lock: Path | None = None
    """None: there is none."""
    torch: str = ""
    """The version of PyTorch that is not in `lock`, as several builds of it fit."""
    torch_lock: Path | None = None
    """PyPI's build of that: on Linux for CUDA, and it also runs on the CPU."""
    newest_python: tuple[int, int] = NEWEST_PYTHON
    """The newest Python for which its packages have wheels."""
    is_pinned: bool = False
    """True for a build that only loads models which need this version of vLLM, through vLLM's own server."""

    @property
    def name(self) -> str:
        """The name of the engine that this build installs."""
        return f"vllm-{self.version}-{self.variant}"

    @property
    def title(self) -> str:
        return f"vLLM {self.version} for {'the CPU' if self.variant == 'cpu' else 'CUDA'}"


VARIANTS = {
    "cpu": EngineBuild("cpu", VLLM, 6.8, LOCKS / "cpu.txt", TORCH, LOCKS / "torch.txt"),
    "cuda": EngineBuild("cuda", VLLM, 10.0, LOCKS / "cuda.txt"),
}
_OLD_CPU, _OLD_TORCH, _OLD_CUDA = (LOCKS / f"pinned-0.23.0-{name}.txt" for name in ("cpu", "torch", "cuda"))
OLDER = (
    EngineBuild("cpu", "0.23.0", 6.0, _OLD_CPU, "2.11.0", _OLD_TORCH, is_pinned=True),
    EngineBuild("cuda", "0.23.0", 10.0, _OLD_CUDA, newest_python=(3, 13), is_pinned=True),
)
"""Older versions with locked packages; `tools/lock.py` lists their sources."""


def build_of(version: str, variant: str) -> EngineBuild:
    """Return a version of vLLM for `cpu` or `cuda`; empty: the current one. Raises VlmtuiError(BAD_INPUT) if it is no
    version."""
    for build in (VARIANTS[variant], *OLDER):
        if build.variant == variant and version in ("", build.version):
            return build
    if not _VERSION.fullmatch(version):
        raise bad_input(f"{version!r} is not a version of vLLM.", hint="Write it as in 0.23.0.")
    return EngineBuild(variant, version, VARIANTS[variant].disk_gb, is_pinned=True)


def how_to_install(version: str) -> str:
    """Return the command that installs a version, with its size and duration."""
    size = build_of(version, "cpu").disk_gb
    return f"`vlmtui engines install {version}` installs it: up to {size:g} GB (10 with CUDA), some minutes."


_ASK_TIMEOUT_S = 20.0


class Hardware(NamedTuple):
    """The hardware facts that determine which build of vLLM to install."""

    gpus: tuple[str, ...] = ()
    driver: str = ""
    """NVIDIA's driver version, such as `580.65.06`; empty if unknown."""

    @property
    def driver_is_new_enough(self) -> bool:
        """True if this driver supports the CUDA build."""
        major = re.match(r"\d+", self.driver)
        return major is not None and int(major[0]) >= DRIVER

    @property
    def variant(self) -> str:
        """The name of the variant that fits."""
        return "cuda" if self.gpus and self.driver_is_new_enough else "cpu"

    @property
    def name(self) -> str:
        """The GPUs, such as `2 × NVIDIA H100`, named after the first one. Empty if there is none."""
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
    """Ask `nvidia-smi`, which comes with the driver. Takes about a second."""
    program = find_program("nvidia-smi")
    if program is None:
        return Hardware()
    command = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        asked = subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=True, cwd=os.sep
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return Hardware()
    rows = [line.rpartition(",") for line in asked.splitlines()]
    found = [(name.strip(), driver.strip()) for name, comma, driver in rows if comma]
    return Hardware(tuple(name for name, _ in found), found[0][1]) if found else Hardware()
