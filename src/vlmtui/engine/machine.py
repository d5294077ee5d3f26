"""The memory of this machine, and estimates of whether a model fits into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from vlmtui.domain.engine import FITTED
from vlmtui.errors import VlmtuiError
from vlmtui.registry.hub_cache import language_value, model_folder, read_config, weights_bytes
from vlmtui.registry.match import Model

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
    """Return a size for display: `80 GiB`, `1.5 GiB`, `7 MiB`."""
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
    found = []
    try:
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            name, memory = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetMemoryInfo(handle)
            found.append(Gpu(name if isinstance(name, str) else name.decode(), int(memory.free), int(memory.total)))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()
    return tuple(found)


_OVERHEAD = 1.5 * GIB
"""Bytes per GPU for the CUDA context, activations and the vision encoder."""
_DEFAULT_UTILIZATION = 0.92
"""vLLM's own `gpu_memory_utilization`."""
_KV_SHARE = 0.08
"""KV cache of a full context as a fraction of 16-bit weights, if the config is unknown: typical for models of 2 to 72
billion parameters with grouped-query attention at 16k tokens."""
_FITTED_LEAST = 8192
"""The context in tokens that has to fit if the engine fits the context to the memory."""
_BYTES = {"float32": 4.0, "float": 4.0, "float16": 2.0, "half": 2.0, "bfloat16": 2.0}
_QUANTISED_BYTES = {"fp8": 1.0, "compressed-tensors": 1.0, "awq": 0.56, "gptq": 0.56, "bitsandbytes": 0.56}


_IN_NAME = re.compile(r"(?:^|[-_])(\d{1,4}(?:\.\d{1,2})?)[bB](?![a-zA-Z0-9])")
"""Billions of parameters in a repository's name: `-7B-`."""


class Fit(StrEnum):
    YES = "fits"
    SEVERAL = "several GPUs"
    NO = "too big"
    UNKNOWN = "?"


class MemoryEstimate(msgspec.Struct, frozen=True):
    """The memory a model needs, in bytes summed over all GPUs."""

    weights: int
    kv_cache: int
    """The KV cache of one conversation that fills the context."""
    measured: bool
    """True if the size of the weights was read from the files; False if derived from the number of parameters."""
    max_model_len: int | None
    tensor_parallel_size: int

    def per_gpu(self, gpus: int, *, context_share: float = 1.0) -> float:
        """Return the bytes needed on each of `gpus` GPUs. `context_share`: the fraction of the context that the KV
        cache holds."""
        return (self.weights + self.kv_cache * context_share) / gpus + _OVERHEAD


class FitResult(msgspec.Struct, frozen=True):
    """Whether a model fits, and the engine arguments that would make it fit."""

    fit: Fit
    needed: int
    """Total bytes."""
    settings: tuple[str, ...] = ()
    """Engine arguments that would make it fit, each as `name = value`; empty if it fits or none helps."""
    smaller: tuple[str, ...] = ()
    """Smaller models of the family, if no engine argument helps."""

    @property
    def advice(self) -> str:
        """The engine arguments, or else the smaller models, that would make the model fit, for display; empty if none
        would."""
        return ", ".join(self.settings) or " or ".join(self.smaller)


def estimate(model: Model) -> MemoryEstimate | None:
    """Estimate a model's memory; None if neither its files nor its number of parameters are known. Blocking."""
    folder = model_folder(model.spec.model)
    config = _config(folder)
    arguments = model.spec.engine_args
    dtype = _BYTES.get(str(arguments.get("dtype") or _get(config, "torch_dtype") or _get(config, "dtype")), 2.0)
    on_disk = weights_bytes(folder) if folder is not None else 0
    weights = on_disk or _from_parameters(model, config, dtype)
    if not weights:
        return None
    context = _number(arguments.get("max_model_len")) or _number(language_value(config, "max_position_embeddings"))
    context = context or model.family.context
    if arguments.get("max_model_len") == FITTED:
        context = min(context or _FITTED_LEAST, _FITTED_LEAST)
    cache = _kv_bytes(config, context, dtype) or int(weights * _KV_SHARE * (context or 16384) / 16384)
    parallel = _number(arguments.get("tensor_parallel_size")) or 1
    return MemoryEstimate(weights, cache, bool(on_disk), context, parallel)


def check_fit(model: Model, machine: Machine | None) -> FitResult:
    """Check whether a model fits in the free memory; if not, find the smallest change that would make it fit."""
    found = estimate(model)
    if found is None or machine is None:
        return FitResult(Fit.UNKNOWN, 0 if found is None else found.weights + found.kv_cache)
    needed = round(found.weights + found.kv_cache + _OVERHEAD)
    if not machine.gpus:
        fits = found.weights + found.kv_cache <= machine.ram_free
        return FitResult(Fit.YES if fits else Fit.NO, needed, smaller=() if fits else _smaller(model))
    share = claimed_share(model)
    free = sorted((min(gpu.free, int(gpu.total * share)) for gpu in machine.gpus), reverse=True)
    asked = found.tensor_parallel_size
    if asked <= len(free) and found.per_gpu(asked) <= free[asked - 1]:
        return FitResult(Fit.YES if asked == 1 else Fit.SEVERAL, needed)
    sizes = [size for size in (1, 2, 4, 8, 16) if size <= len(free)]  # of tensor parallelism: powers of two
    for gpus in sizes:
        if found.per_gpu(gpus) <= free[gpus - 1]:
            return FitResult(Fit.SEVERAL if gpus > 1 else Fit.YES, needed, (f"tensor_parallel_size = {gpus}",))
    for share_of_context in (0.5, 0.25, 0.125):
        for gpus in sizes:
            if found.max_model_len and found.per_gpu(gpus, context_share=share_of_context) <= free[gpus - 1]:
                length = int(found.max_model_len * share_of_context)
                also = (f"tensor_parallel_size = {gpus}",) if gpus != asked else ()
                return FitResult(Fit.NO, needed, (f"max_model_len = {length}", *also))
    return FitResult(Fit.NO, needed, smaller=_smaller(model))


def claimed_share(model: Model) -> float:
    """Return the fraction of each GPU's memory that the engine claims."""
    utilization = model.spec.engine_args.get("gpu_memory_utilization")
    return utilization if isinstance(utilization, float) and utilization > 0.2 else _DEFAULT_UTILIZATION


def fit_text(verdict: FitResult, machine: Machine) -> str:
    """Return the result as a sentence for display."""
    if verdict.fit is Fit.UNKNOWN:
        return "Size unknown; can't tell if it fits."
    about = f"Needs about {gib(verdict.needed)}; here: {machine.describe()}."
    return f"{about} It would fit with {verdict.advice}." if verdict.advice else about


def _smaller(model: Model) -> tuple[str, ...]:
    return tuple(name for name in model.family.smaller if name != model.spec.model)


def _config(folder: Path | None) -> Mapping[str, object]:
    if folder is None:
        return {}
    try:
        return read_config(folder)
    except VlmtuiError:
        return {}


def parameters_b(model: Model) -> float | None:
    """Return a model's billions of parameters: those of the record for its first model, else those in the name."""
    family, name = model.family, model.spec.model
    if not family.models or name == family.models[0] or family.models[0].startswith("bundled:"):
        return family.parameters_b
    found = _IN_NAME.search(name.rpartition("/")[2])
    return float(found[1]) if found else None


def _from_parameters(model: Model, config: Mapping[str, object], dtype: float) -> int:
    billions = parameters_b(model)
    if billions is None:
        return 0
    method = _get(_get(config, "quantization_config"), "quant_method")
    per_parameter = _QUANTISED_BYTES.get(str(method), dtype)
    if method is None and model.spec.model.casefold().endswith("fp8"):
        per_parameter = 1.0
    return int(billions * 1e9 * per_parameter)


def _kv_bytes(config: Mapping[str, object], context: int | None, dtype: float) -> int:
    def number(name: str) -> int | None:
        return _number(language_value(config, name))

    layers, all_heads = number("num_hidden_layers"), number("num_attention_heads")
    heads = number("num_key_value_heads") or all_heads
    width = number("head_dim")
    if width is None:
        hidden = number("hidden_size")
        width = hidden // all_heads if hidden and all_heads else None
    if not (layers and heads and width and context):
        return 0
    return int(2 * layers * heads * width * context * dtype)


def _get(config: object, name: str) -> object:
    return config.get(name) if isinstance(config, Mapping) else None


def _number(value: object) -> int | None:
    """Return a plausible count from a model's config, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**12 else None
