"""GPU and main memory of this machine."""

from __future__ import annotations

import msgspec

GIB = 2**30


class Gpu(msgspec.Struct, frozen=True):
    """One GPU. Sizes in bytes."""

    name: str
    free: int
    total: int


class Machine(msgspec.Struct, frozen=True):
    """The memory of this machine, in bytes."""

    gpus: tuple[Gpu, ...]
    ram_free: int

    @classmethod
    def measure(cls) -> Machine:
        """Query the GPU driver and the kernel. NVML is slow: call this in a thread."""
        import psutil

        return cls(_nvidia_gpus(), psutil.virtual_memory().available)

    def describe(self) -> str:
        """Return one line: the GPUs and their free memory, or the free RAM if there is no GPU."""
        if not self.gpus:
            return f"no GPU, {gib(self.ram_free)} RAM free"
        first = self.gpus[0]
        count = f"{len(self.gpus)} × " if len(self.gpus) > 1 else ""
        return f"{count}{first.name}, {gib(sum(gpu.free for gpu in self.gpus))} free"


def gib(size: int) -> str:
    """Return a size for people: `80 GiB`, `1.5 GiB`, `7 MiB`."""
    value = size / GIB
    if value < 0.1:
        return f"{size / 2**20:.0f} MiB"
    return f"{value:.0f} GiB" if value >= 10 else f"{value:.1f} GiB"


def _nvidia_gpus() -> tuple[Gpu, ...]:
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
