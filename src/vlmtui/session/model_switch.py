"""Whether models fit in memory beside what is loaded."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vlmtui.engine.machine import Machine, gib
from vlmtui.engine.memory_fit import Fit, check_fit, claimed_share
from vlmtui.registry.match import Model
from vlmtui.text import one_line


class MemoryNeed(msgspec.Struct, frozen=True):
    """What loading further engines here takes."""

    names: tuple[str, ...]
    """Of the engines to load here; hostile."""
    fits: bool
    """Whether they probably fit beside what is loaded."""
    text: str
    """What they need and what is free, for people."""


def fits_beside(model: Model, machine: Machine) -> bool:
    """Whether a model fits in the free memory while another one is loaded; False if its size is unknown.
    Reads small files: call it in a thread.

    On a GPU the engine does not start unless its whole share of the memory is free, however small the model is.
    """
    verdict = check_fit(model, machine)
    if verdict.fit not in (Fit.YES, Fit.SEVERAL) or verdict.settings:
        return False
    share = claimed_share(model)
    wanted = model.spec.engine_args.get("tensor_parallel_size", 1)
    free = [gpu for gpu in machine.gpus if gpu.free >= share * gpu.total]
    if not machine.gpus:
        return verdict.needed <= machine.ram_free
    return len(free) >= (wanted if isinstance(wanted, int) else 1)


def memory_need(models: Sequence[Model], machine: Machine) -> MemoryNeed:
    """Estimate whether models can be loaded beside what is loaded. Reads small files: call it in a thread."""
    needed = [check_fit(model, machine).needed for model in models]
    total = sum(needed)
    free = machine.ram_free if not machine.gpus else sum(gpu.free for gpu in machine.gpus)
    fits = all(fits_beside(model, machine) for model in models) and total <= free
    about = f"about {gib(total)}" if all(needed) else "an unknown amount"
    names = tuple(one_line(model.spec.name) for model in models)
    return MemoryNeed(names, fits, f"Needs {about} of memory; here: {machine.describe()}.")
