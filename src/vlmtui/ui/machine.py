"""Whether a model fits this machine: a rule of thumb, from its size and the memory that is free now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_BYTES_PER_PARAMETER = 2
"""16-bit weights."""
_OVERHEAD = 1.2
"""KV cache and activations, at the least."""
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Sizes in bytes."""

    name: str
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The memory of this machine, in bytes."""

    gpus: tuple[Gpu, ...]
    ram_free: int

    @classmethod
    def measure(cls) -> Machine:
        """Ask the driver and the kernel. Takes a while (NVML): call it in a thread."""
        import psutil

        return cls(_gpus(), psutil.virtual_memory().available)

    def describe(self) -> str:
        """One line: the GPUs and what is free, or the memory when there is no GPU."""
        if not self.gpus:
            return f"no GPU, {gib(self.ram_free)} of memory free"
        first = self.gpus[0]
        count = f"{len(self.gpus)} × " if len(self.gpus) > 1 else ""
        return f"{count}{first.name}, {gib(sum(gpu.free for gpu in self.gpus))} free"


class Fit(StrEnum):
    """Whether a model fits."""

    YES = "fits"
    SEVERAL = "several GPUs"
    NO = "too big"
    UNKNOWN = "?"


def needed_bytes(parameters_b: float) -> int:
    """What a model of that many billions of parameters needs to run, roughly."""
    return int(parameters_b * 1e9 * _BYTES_PER_PARAMETER * _OVERHEAD)


def fit(parameters_b: float | None, machine: Machine | None) -> Fit:
    """Whether a model of that size fits into the free memory: of one GPU, of all of them, or of the computer."""
    if parameters_b is None or machine is None:
        return Fit.UNKNOWN
    needed = needed_bytes(parameters_b)
    if not machine.gpus:
        return Fit.YES if needed <= machine.ram_free else Fit.NO
    if needed <= max(gpu.free for gpu in machine.gpus):
        return Fit.YES
    return Fit.SEVERAL if needed <= sum(gpu.free for gpu in machine.gpus) else Fit.NO


def gib(size: int) -> str:
    """A size for people: `80 GiB`, `1.5 GiB`, `7 MiB`."""
    value = size / GIB
    if value < 0.1:
        return f"{size / 2**20:.0f} MiB"
    return f"{value:.0f} GiB" if value >= 10 else f"{value:.1f} GiB"


def _gpus() -> tuple[Gpu, ...]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        return tuple(_gpu(handle) for handle in handles)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: object) -> Gpu:
    import pynvml

    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    name = pynvml.nvmlDeviceGetName(handle)
    return Gpu(name if isinstance(name, str) else name.decode(), int(memory.free), int(memory.total))
