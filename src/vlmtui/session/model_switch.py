"""Whether the loaded model can stay until another one has loaded."""

from __future__ import annotations

from vlmtui.engine.machine import Machine
from vlmtui.engine.memory_fit import Fit, check_fit, claimed_share
from vlmtui.registry.match import Model


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
