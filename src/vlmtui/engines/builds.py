"""The builds of vLLM that can be installed, their locked packages, and the hardware that decides between them.

The packages of the current versions, and of 0.23.0, which several families need, are locked. Other versions, and those
for CUDA 12.9, can be installed for CUDA only, and uv chooses the packages. Uses only the standard library, so that
`tools/setup_env.py` can import it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from vlmtui.errors import bad_input
from vlmtui.processes import ask_program

LOCKS = Path(__file__).with_name("locks")
UV_LOCK = LOCKS / "uv.txt"
TORCH = "2.13.0"
"""The version for the CPU build."""
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)
DRIVERS = {"cuda": 580, "cuda12": 525}
"""The oldest major version of NVIDIA's driver for each CUDA build. CUDA 13 needs 580; CUDA 12.9 runs on all drivers of
CUDA 12 (source: NVIDIA's "CUDA compatibility", minor version compatibility; eullm/eullm#428 ran it on 535)."""
CUDA12_INDEXES = ("https://wheels.vllm.ai/{version}/cu129", "https://download.pytorch.org/whl/cu129")
"""The indexes of vLLM's and PyTorch's builds for CUDA 12.9, which are not on PyPI (source: vLLM's installation guide,
vllm-project/vllm#44335)."""
_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){1,3}")


_TITLES = {"cpu": "the CPU", "cuda12": "CUDA 12.9"}


class EngineBuild(NamedTuple):
    """A build of vLLM."""

    variant: str
    """`cpu`, `cuda` (13) or `cuda12` (12.9)."""
    version: str
    disk_gb: float
    """The largest size of the environment, in GB (1e9 bytes)."""
    lock: Path | None = None
    """The file with its locked packages; None: its packages are not locked."""
    torch: str = ""
    """The version of PyTorch, if it is not in `lock` since several builds of it fit."""
    torch_lock: Path | None = None
    """The lock of PyPI's build of that PyTorch: on Linux for CUDA; it also runs on the CPU."""
    newest_python: tuple[int, int] = NEWEST_PYTHON
    """The newest Python that its packages have wheels for."""
    is_pinned: bool = False
    """True for a build that is only used, as a server, by models that need this version."""

    @property
    def name(self) -> str:
        """The name of the engine that this build installs."""
        return f"vllm-{self.version}-{self.variant}"

    @property
    def title(self) -> str:
        return f"vLLM {self.version} for {_TITLES.get(self.variant, 'CUDA')}"

    @property
    def indexes(self) -> tuple[str, ...]:
        """The indexes to look in besides the configured ones."""
        return tuple(one.format(version=self.version) for one in CUDA12_INDEXES) if self.variant == "cuda12" else ()


VARIANTS = {
    "cpu": EngineBuild("cpu", "0.32.0", 6.8, LOCKS / "cpu.txt", TORCH, LOCKS / "torch.txt"),
    "cuda": EngineBuild("cuda", "0.33.0", 10.5, LOCKS / "cuda.txt"),
    "cuda12": EngineBuild("cuda12", "0.33.0", 10.5),
}
_OLD_CPU, _OLD_TORCH, _OLD_CUDA = (LOCKS / f"pinned-0.23.0-{name}.txt" for name in ("cpu", "torch", "cuda"))
OLDER = (
    EngineBuild("cpu", "0.23.0", 6.0, _OLD_CPU, "2.11.0", _OLD_TORCH, is_pinned=True),
    EngineBuild("cuda", "0.23.0", 10.0, _OLD_CUDA, newest_python=(3, 13), is_pinned=True),
)
"""Older builds with locked packages; `tools/lock.py` lists their sources."""


def build_of(version: str, variant: str) -> EngineBuild:
    """Return the build of a version (empty: the current one) for one of VARIANTS. Raises VlmtuiError(BAD_INPUT)."""
    for build in (VARIANTS[variant], *OLDER):
        if build.variant == variant and version in ("", build.version):
            return build
    if not _VERSION.fullmatch(version):
        raise bad_input(f"{version!r} is not a version of vLLM.", hint="Write it as in 0.23.0.")
    return EngineBuild(variant, version, VARIANTS[variant].disk_gb, is_pinned=True)


def how_to_install(version: str) -> str:
    """Return a hint: the command that installs a version, the disk space that it needs, and how long it takes."""
    size = build_of(version, "cpu").disk_gb
    return f"`vlmtui engines install {version}` installs it: up to {size:g} GB (10 with CUDA), some minutes."


_ASK_TIMEOUT_S = 20.0


class Hardware(NamedTuple):
    """The hardware that determines which build of vLLM to install."""

    gpus: tuple[str, ...] = ()
    driver: str = ""
    """NVIDIA's driver version, `580.65.06`; empty: unknown."""

    def supports(self, variant: str) -> bool:
        """Return whether this build of vLLM runs with the driver."""
        major = re.match(r"\d+", self.driver)
        return variant == "cpu" or (major is not None and int(major[0]) >= DRIVERS[variant])

    @property
    def variant(self) -> str:
        """The variant of vLLM that fits: `cpu`, `cuda` or `cuda12`."""
        return next((one for one in DRIVERS if self.gpus and self.supports(one)), "cpu")

    @property
    def name(self) -> str:
        """`2 × NVIDIA H100`, by the first GPU's name; empty without GPUs."""
        return f"{len(self.gpus)} × {self.gpus[0]}" if len(self.gpus) > 1 else "".join(self.gpus)

    def describe(self) -> str:
        """Return the GPUs and the driver in one line."""
        if not self.gpus:
            return "no NVIDIA GPU"
        driver = f"driver {self.driver}" if self.driver else "driver unknown"
        if not self.supports("cuda"):
            older = "" if self.supports("cuda12") else f"; CUDA 12.9 needs {DRIVERS['cuda12']}"
            driver += f", too old for CUDA 13, which needs {DRIVERS['cuda']}{older}"
        return f"{self.name}, {driver}"


def find_hardware() -> Hardware:
    """Ask `nvidia-smi`, which comes with the driver. Takes about a second."""
    words = ("--query-gpu=name,driver_version", "--format=csv,noheader")
    asked = ask_program("nvidia-smi", *words, within_s=_ASK_TIMEOUT_S) or ""
    rows = [line.rpartition(",") for line in asked.splitlines()]
    found = [(name.strip(), driver.strip()) for name, comma, driver in rows if comma]
    return Hardware(tuple(name for name, _ in found), found[0][1]) if found else Hardware()
