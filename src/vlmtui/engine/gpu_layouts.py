"""The ways to spread a model over this machine's GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vlmtui.engine.machine import Machine, gib
from vlmtui.engine.memory_fit import attention_heads, claimed_share, estimate
from vlmtui.registry.match import Model

_TENSOR_SIZES = (1, 2, 4, 8, 16)


class GpuLayout(msgspec.Struct, frozen=True):
    """Copies of the weights, each split over some GPUs."""

    tensor: int
    """GPUs that share one copy (vLLM's `tensor_parallel_size`)."""
    data: int
    """Copies (vLLM's `data_parallel_size`)."""
    bytes_per_gpu: int | None
    """Needed on each GPU, estimated; None: unknown."""
    fits: bool | None
    """Whether that is free on as many GPUs; None: unknown."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The engine arguments, each as `name = value`."""
        return (f"tensor_parallel_size = {self.tensor}", f"data_parallel_size = {self.data}")

    @property
    def label(self) -> str:
        """`TP 2 × DP 2 · 9.3 GiB on each of 4 GPUs · fits`."""
        sizes = ((name, size) for name, size in (("TP", self.tensor), ("DP", self.data)) if size > 1)
        name = " × ".join(f"{kind} {size}" for kind, size in sizes) or "1 GPU"
        count = self.tensor * self.data
        where = "" if count == 1 else f" on each of {count} GPUs"
        if self.bytes_per_gpu is None:
            return f"{name} · size unknown"
        return f"{name} · {gib(self.bytes_per_gpu)}{where} · {'fits' if self.fits else 'too big'}"


def gpu_layouts(model: Model, machine: Machine) -> tuple[GpuLayout, ...]:
    """Return the layouts for this machine's GPUs, those that fit first, few GPUs before many; none without a second
    GPU. A split that does not divide the model's attention heads is left out, where their number is known: vLLM refuses
    it."""
    if len(machine.gpus) < 2:
        return ()
    return tuple(sorted(_layouts(model, machine), key=lambda one: (one.fits is False, one.tensor * one.data)))


def _layouts(model: Model, machine: Machine) -> Iterator[GpuLayout]:
    found, heads = estimate(model), attention_heads(model)
    share = claimed_share(model)
    free = sorted((min(gpu.free, int(gpu.total * share)) for gpu in machine.gpus), reverse=True)
    for tensor in _TENSOR_SIZES:
        if tensor > len(free) or (heads is not None and heads % tensor):
            continue
        needed = None if found is None else round(found.per_gpu(tensor))
        for data in range(1, len(free) // tensor + 1):
            if data & (data - 1):
                continue  # powers of two alone, or the list would be long on eight GPUs
            fits = None if needed is None else needed <= free[tensor * data - 1]
            yield GpuLayout(tensor, data, needed, fits)
