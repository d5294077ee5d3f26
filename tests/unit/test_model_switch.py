"""Whether a model fits in memory in addition to the loaded one."""

from __future__ import annotations

import msgspec
import pytest

from vlmtui.engine.machine import GIB, Gpu, Machine
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.models import fits_beside


def shapes(**engine_args: object) -> Model:
    model = resolve(Registry.bundled(), "shapes")
    arguments = {**model.spec.engine_args, **engine_args}
    return msgspec.structs.replace(model, spec=msgspec.structs.replace(model.spec, engine_args=arguments))


def gpus(*free: float) -> Machine:
    return Machine(tuple(Gpu("Test GPU", int(one * 80 * GIB), 80 * GIB) for one in free), ram_free=64 * GIB)


@pytest.mark.parametrize(
    ("model", "machine", "fits"),
    [
        (shapes(), Machine((), ram_free=16 * GIB), True),
        (shapes(), Machine((), ram_free=GIB), False),
        (shapes(), gpus(0.99), True),
        (shapes(), gpus(0.07), False),
        (shapes(gpu_memory_utilization=0.3), gpus(0.35), True),
        (shapes(gpu_memory_utilization=0.3), gpus(0.25), False),
        (shapes(tensor_parallel_size=2), gpus(0.99, 0.07), False),
    ],
)
def test_a_gpu_must_have_the_engines_whole_share_free(model: Model, machine: Machine, fits: bool) -> None:
    assert fits_beside(model, machine) is fits


def test_a_model_of_unknown_size_does_not_count_as_fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmtui.engine.machine.estimate", lambda model: None)
    assert not fits_beside(shapes(), gpus(0.99))
