"""Names that tell several loaded engines apart: `shapes`, `shapes (Transformers)`, `shapes (dtype=bfloat16)`."""

from __future__ import annotations

from collections.abc import Sequence

from vlmtui.domain.backend_choice import BackendChoice
from vlmtui.domain.engine import REMOTE_BACKEND, LoadSpec

_OF_FAMILY = {"limit_mm_per_prompt", "placeholders"}
"""A server's arguments that follow from the model's family."""


def kind_of(spec: LoadSpec) -> str:
    """Return what runs it: `vLLM`, `Transformers`, `vLLM 0.23.0`, `server`."""
    return "server" if spec.backend == REMOTE_BACKEND else BackendChoice.of(spec).title


def apart(spec: LoadSpec, others: Sequence[LoadSpec]) -> str:
    """Return what tells an engine from others of the same name: its kind, where theirs are different; the arguments
    that differ; empty where there is no such other."""
    same = [one for one in others if one.name == spec.name and one != spec]
    told = [kind_of(spec)] if any(kind_of(one) != kind_of(spec) for one in same) else []
    alike = [one for one in same if kind_of(one) == kind_of(spec)]
    if any(one.family != spec.family for one in alike):
        told.append(f"family={spec.family or 'unknown'}")
    names = {name for one in (spec, *alike) for name in one.engine_args}
    for name in sorted(names - _OF_FAMILY if spec.backend == REMOTE_BACKEND else names):
        value = spec.engine_args.get(name)
        if any(one.engine_args.get(name) != value for one in alike):
            told.append(f"{name}={'default' if value is None else value}")
    return ", ".join(told)


def labels(specs: Sequence[LoadSpec]) -> list[str]:
    """Return a name for each engine, with what tells it apart."""
    return [f"{spec.name} ({found})" if (found := apart(spec, specs)) else spec.name for spec in specs]
