"""The builds of vLLM that can be installed, and what each takes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

LOCKS = Path(__file__).with_name("locks")
UV_LOCK = LOCKS / "uv.txt"
TORCH_LOCK = LOCKS / "torch.txt"
"""PyPI's own PyTorch: a CUDA build on Linux, which carries the code for the CPU too."""
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
    """What its environment takes when it is finished."""
    disk_gb_without_cpu_torch: float
    """The same where only PyPI's PyTorch is to be had."""
    needs_torch: bool = False
    """Whether PyTorch is not in the lock: which build of it is taken is found out when it is installed."""
    driver: int = 0
    """The oldest major version of NVIDIA's driver that will do; 0: none is needed."""

    @property
    def size_text(self) -> str:
        """Its size, for people."""
        if self.disk_gb == self.disk_gb_without_cpu_torch:
            return f"{self.disk_gb:g} GB, some minutes"
        return f"{self.disk_gb:g} GB (or {self.disk_gb_without_cpu_torch:g}, with PyPI's PyTorch), about 2 minutes"

    @property
    def needed_gb(self) -> float:
        """Free space that an installation from nothing asks for, with room for what lies there twice for a while."""
        return self.disk_gb_without_cpu_torch * 1.3


VARIANTS = {
    "cpu": EngineBuild("cpu", "vllm", VLLM, f"vLLM {VLLM} for the CPU", LOCKS / "cpu.txt", 3.5, 6.8, needs_torch=True),
    "cuda": EngineBuild("cuda", "vllm", VLLM, f"vLLM {VLLM} for CUDA 13", LOCKS / "cuda.txt", 10.0, 10.0, driver=580),
}
