"""The builds of vLLM that can be installed, and their requirements."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

LOCKS = Path(__file__).with_name("locks")
UV_LOCK = LOCKS / "uv.txt"
TORCH_LOCK = LOCKS / "torch.txt"
"""PyPI's PyTorch: on Linux a CUDA build, which also runs on the CPU."""
TORCH = "2.13.0"
VLLM = "0.32.0"
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)


class EngineBuild(NamedTuple):
    """A build of vLLM. Sizes in GB (1e9 bytes), as measured."""

    name: str
    engine: str
    version: str
    title: str
    lock: Path
    disk_gb: float
    """Size of the finished environment."""
    disk_gb_without_cpu_torch: float
    """The same with PyPI's PyTorch."""
    needs_torch: bool = False
    """Whether PyTorch is missing from the lock file; its build is then chosen during installation."""
    driver: int = 0
    """Minimum major version of NVIDIA's driver; 0: no driver needed."""
    torch: str = TORCH
    """The version of PyTorch."""
    torch_lock: Path = TORCH_LOCK
    """PyPI's build of it."""
    newest_python: tuple[int, int] = NEWEST_PYTHON
    """The newest Python for which its packages have wheels."""
    resolves: bool = False
    """Whether the lock is made when it is installed."""
    is_pinned: bool = False
    """Whether it serves only models that ask for this version, by a server of its own."""

    @property
    def size_text(self) -> str:
        """Its size, for display."""
        if self.disk_gb == self.disk_gb_without_cpu_torch:
            return f"{self.disk_gb:g} GB, some minutes"
        return f"{self.disk_gb:g} GB (or {self.disk_gb_without_cpu_torch:g}, with PyPI's PyTorch), about 2 minutes"

    @property
    def needed_gb(self) -> float:
        """Free space required for a full installation, with room for temporary copies."""
        return self.disk_gb_without_cpu_torch * 1.3


VARIANTS = {
    "cpu": EngineBuild("cpu", "vllm", VLLM, f"vLLM {VLLM} for the CPU", LOCKS / "cpu.txt", 3.5, 6.8, needs_torch=True),
    "cuda": EngineBuild("cuda", "vllm", VLLM, f"vLLM {VLLM} for CUDA 13", LOCKS / "cuda.txt", 10.0, 10.0, driver=580),
}
